//! System counters below the stores: reads of the device that holds a directory, and the space of files on
//! it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Completed reads of the device that holds `dir`, since the start of the system; 0 if the device has no
/// counter. Counts all processes, so the machine should be otherwise idle.
pub(crate) fn reads(dir: &Path) -> u64 {
    let Ok(metadata) = fs::metadata(dir) else { return 0 };
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    parse_reads(&fs::read_to_string("/proc/diskstats").unwrap_or_default(), major, minor)
}

/// Empties the page cache, and returns whether that was possible.
pub(crate) fn empty_page_cache() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

fn parse_reads(diskstats: &str, major: u32, minor: u32) -> u64 {
    let of_device = |line: &&str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        (number(), number()) == (Some(major), Some(minor))
    };
    let line = diskstats.lines().find(of_device);
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0)
}

/// The space of the files under `dir` on the device, bytes, without holes.
pub(crate) fn space(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => space(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // The file was removed meanwhile.
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_numbers() {
        let stats = " 254 0 vda 10 1 80 5 7 0 56 3 0 1 8\n 254 1 vda1 3 0 24 1 0 0 0 0 0 0 1\n";
        assert_eq!((parse_reads(stats, 254, 0), parse_reads(stats, 254, 1)), (10, 3));
        assert_eq!((parse_reads(stats, 8, 0), parse_reads("", 1, 1)), (0, 0));
    }

    #[test]
    fn holes_take_no_space() {
        let dir = std::env::temp_dir().join(format!("peers-space-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).unwrap();
        fs::write(dir.join("inner/full"), vec![1; 100_000]).unwrap();
        fs::File::create(dir.join("hole")).unwrap().set_len(1 << 30).unwrap();
        let bytes = space(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
    }
}

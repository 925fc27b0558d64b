//! The memory that this process may use: the machine's, or less if a control group limits it.

use std::path::Path;

use base::limits::MEMORY_BYTES_MIN;

/// The default memory limit is the memory that the process may use, divided by this number.
const DEFAULT_DIVISOR: u64 = 4;

/// Assumed memory of a machine that does not report it, bytes.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// The default memory limit, bytes: a quarter of the memory that this process may use, and at least
/// [`MEMORY_BYTES_MIN`].
pub(crate) fn default_memory() -> u64 {
    let limit = limit_under(Path::new("/")).unwrap_or(UNKNOWN_BYTES);
    (limit / DEFAULT_DIVISOR).max(MEMORY_BYTES_MIN)
}

/// The smallest of the machine's memory and the limits of the process's control groups (version 1 and 2) and
/// their ancestors, bytes. `root` is the directory of `proc` and `sys`. Files that are missing or cannot be
/// parsed set no limit; `None` if no file sets one.
fn limit_under(root: &Path) -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(&root.join("proc/meminfo")).and_then(|text| machine_bytes(&text));
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        // `hierarchy:controllers:path`; version 2 is hierarchy 0 without controllers.
        let mut fields = line.splitn(3, ':');
        let (hierarchy, controllers) = (fields.next(), fields.next().unwrap_or_default());
        let path = fields.next().unwrap_or_default();
        let (mount, file) = match controllers {
            "" if hierarchy == Some("0") => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let mount = root.join(mount);
        // In a container the path may be the host's, which is not mounted. The mount's root is then the
        // process's group. An absolute path or one with `..` stays below the mount.
        let relative: std::path::PathBuf = Path::new(path)
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .collect();
        let groups = relative.ancestors().map(|group| mount.join(group).join(file));
        groups.filter_map(|file| read(&file)?.trim().parse::<u64>().ok()).collect()
    });
    limits.chain(machine).min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit on a machine with these files.
    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        limit_under(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:  1048576 kB\n");

    #[test]
    fn the_limit_without_groups_is_the_machines_memory() {
        assert_eq!(limit(&[MACHINE]), Some(1 << 30));
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/meminfo", "MemTotal: lots")]), None);
        let unlimited =
            [MACHINE, ("proc/self/cgroup", "0::/"), ("sys/fs/cgroup/memory.max", "max")];
        assert_eq!(limit(&unlimited), Some(1 << 30));
        assert!(default_memory() >= MEMORY_BYTES_MIN);
    }

    #[test]
    fn the_limit_is_the_smallest_of_a_group_and_its_ancestors() {
        let tree = |own: &str, parent: &str| {
            limit(&[
                MACHINE,
                ("proc/self/cgroup", "0::/pods/one\n"),
                ("sys/fs/cgroup/pods/one/memory.max", own),
                ("sys/fs/cgroup/pods/memory.max", parent),
            ])
        };
        assert_eq!(tree("200000000\n", "max\n"), Some(200_000_000));
        assert_eq!(tree("max\n", "300000000\n"), Some(300_000_000));
        assert_eq!(tree("200000000\n", "100000000\n"), Some(100_000_000));
        // A group may have a higher limit than the machine has memory.
        assert_eq!(tree("99999999999999\n", "max\n"), Some(1 << 30));
    }

    #[test]
    fn a_container_uses_the_group_at_the_root_of_the_mount() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/../docker/0123abcd\n"),
            ("sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(limit(&files), Some(512 << 20));
    }

    #[test]
    fn version_one_limits_are_read_from_the_memory_controller() {
        let groups = "9:cpu,cpuacct:/a\n4:memory,hugetlb:/a/b\n0::/unified\n";
        let files = [
            MACHINE,
            ("proc/self/cgroup", groups),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(limit(&files), Some(256 << 20));
    }
}

//! How much memory this process may use: the machine's, or less where a control group says so.

use std::path::Path;

use base::limits::MEMORY_BYTES_MIN;

/// The part of what the process may use that a store takes where nobody says how much.
const DEFAULT_PART: u64 = 4;

/// What is assumed where the machine does not say what it has.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// A quarter of what this process may use, and at least the least memory a store works in.
pub(crate) fn default_memory() -> u64 {
    let limit = limit_under(Path::new("/")).unwrap_or(UNKNOWN_BYTES);
    (limit / DEFAULT_PART).max(MEMORY_BYTES_MIN)
}

/// The least of the machine's memory and the limits of the process's control groups, of version 2
/// and 1, up to the root: a group is bound by the groups it is in. `root` is where `/proc` and
/// `/sys` are; files that are missing or say nothing bind nothing.
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
        // In a container the path may be that of the host, which is not mounted: the mount's own
        // root is then the group. An absolute or upward path stays below the mount.
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

    /// A machine with these files, and what it says.
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
    fn without_groups_the_machine_is_the_limit() {
        assert_eq!(limit(&[MACHINE]), Some(1 << 30));
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/meminfo", "MemTotal: lots")]), None);
        let unlimited =
            [MACHINE, ("proc/self/cgroup", "0::/"), ("sys/fs/cgroup/memory.max", "max")];
        assert_eq!(limit(&unlimited), Some(1 << 30));
        assert!(default_memory() >= MEMORY_BYTES_MIN);
    }

    #[test]
    fn the_tightest_group_up_the_tree_binds() {
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
        // More than there is.
        assert_eq!(tree("99999999999999\n", "max\n"), Some(1 << 30));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_root_of_the_mount() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/../docker/0123abcd\n"),
            ("sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(limit(&files), Some(512 << 20));
    }

    #[test]
    fn version_one_is_read_where_the_controller_is() {
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

//! Poll queues of a device: hardware queues without an interrupt, whose completions the kernel finds only
//! when a thread enters it to poll (`IORING_SETUP_IOPOLL`). Records whether a device has them, and whether
//! they work.
//!
//! A polled ring accepts direct reads only. The kernel may refuse one even if the device announces poll
//! queues, when the ring is created or for a file: then they are not tried again, and
//! [`PollQueues::notice`] gives the reason.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Dev, FileType, fstat, major, minor};

/// The kernel's file system with its devices.
const SYSFS: &str = "/sys";

/// Whether one device has poll queues, and whether they were refused.
#[derive(Debug, Default)]
pub(super) struct PollQueues {
    has: bool,
    refused: OnceLock<String>,
}

impl PollQueues {
    /// Those of the block device `file`, or of the device of its file system.
    pub(super) fn of(file: impl AsFd) -> Arc<Self> {
        let has = fstat(file).is_ok_and(|stat| {
            let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
            has(Path::new(SYSFS), if is_device { stat.st_rdev } else { stat.st_dev })
        });
        Self::known(has)
    }

    /// Those of a device that has them or has none.
    pub(super) fn known(has: bool) -> Arc<Self> {
        Arc::new(Self { has, refused: OnceLock::new() })
    }

    /// Whether reads may use them.
    pub(super) fn are_used(&self) -> bool {
        self.has && self.refused.get().is_none()
    }

    /// Whether `error`, of a polled read, means that the kernel cannot poll for it. If so, no later read is
    /// polled.
    pub(super) fn is_refusal(&self, error: &io::Error) -> bool {
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        let is_refusal = matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP));
        if is_refusal {
            self.refuse(error);
        }
        is_refusal
    }

    /// Stops polling, for the reason `why`.
    pub(super) fn refuse(&self, why: &io::Error) {
        // The first reason is kept.
        let _known =
            self.refused.set(format!("poll queues refused ({why}): reads wait for interrupts"));
    }

    /// The reason why announced poll queues are not used.
    pub(super) fn notice(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }
}

/// Whether the kernel reports, in the file system `sysfs`, that `device` has poll queues. A partition has
/// those of its disk; a device over disks, such as the device mapper, reports its own. The device numbers of
/// file systems over several devices, or over none, are no block devices.
fn has(sysfs: &Path, device: Dev) -> bool {
    let device = format!("{}:{}", major(device), minor(device));
    let place = sysfs.join("dev/block").join(device);
    // `place` is a link to the device; the directory above a partition is its disk.
    let whole = if place.join("partition").exists() { place.join("..") } else { place };
    fs::read_to_string(whole.join("queue/io_poll")).is_ok_and(|answer| answer.trim() == "1")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn a_partition_has_the_poll_queues_of_its_disk() {
        let sysfs = tempfile::tempdir().unwrap();
        let (devices, numbers) = (sysfs.path().join("devices"), sysfs.path().join("dev/block"));
        fs::create_dir_all(&numbers).unwrap();
        for (disk, number, polls) in [("nvme0", 0, "1\n"), ("vda", 16, "0\n"), ("dm-0", 32, "1\n")]
        {
            let (disk, part) = (devices.join(disk), devices.join(disk).join("part1"));
            fs::create_dir_all(disk.join("queue")).unwrap();
            fs::write(disk.join("queue/io_poll"), polls).unwrap();
            fs::create_dir_all(&part).unwrap();
            fs::write(part.join("partition"), "1\n").unwrap();
            symlink(&disk, numbers.join(format!("259:{number}"))).unwrap();
            symlink(&part, numbers.join(format!("259:{}", number + 1))).unwrap();
        }
        fs::create_dir_all(devices.join("old/queue")).unwrap();
        symlink(devices.join("old"), numbers.join("8:0")).unwrap();
        for (number, polls) in [
            ((259, 0), true),
            ((259, 1), true),
            ((259, 16), false),
            ((259, 17), false),
            ((259, 32), true),
        ] {
            assert_eq!(has(sysfs.path(), makedev(number.0, number.1)), polls, "{number:?}");
        }
        assert!(!has(sysfs.path(), makedev(8, 0)), "a kernel without the file");
        assert!(!has(sysfs.path(), makedev(0, 44)), "no device");
    }

    #[test]
    fn a_refusal_stops_polling_and_is_reported() {
        assert!(!PollQueues::default().are_used());
        let queues = PollQueues::known(true);
        assert!(!queues.is_refusal(&io::Error::from_raw_os_error(5)), "the device failed");
        assert!(queues.are_used() && queues.notice().is_none());
        assert!(queues.is_refusal(&io::Error::from_raw_os_error(95)));
        assert!(queues.is_refusal(&io::Error::from_raw_os_error(22)), "of another read under way");
        assert!(!queues.are_used());
        let notice = queues.notice().unwrap();
        assert!(notice.contains("os error 95") && notice.contains("interrupts"), "{notice}");
    }
}

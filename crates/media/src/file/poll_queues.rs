//! Poll queues of a device: hardware queues without an interrupt, whose completions are seen only by
//! entering the kernel to look (`IORING_SETUP_IOPOLL`). Whether a device has them, and whether they turned
//! out to work.
//!
//! A ring that polls takes direct reads only, and the kernel may refuse one although the device promised, at
//! its making or for a file: then nobody asks again, and [`PollQueues::notice`] says why.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Dev, FileType, fstat, major, minor};

/// Where the kernel tells of its devices.
const SYSFS: &str = "/sys";

/// What is known of one device's poll queues.
#[derive(Debug, Default)]
pub(super) struct PollQueues {
    has: bool,
    refused: OnceLock<String>,
}

impl PollQueues {
    /// Of the block device that `file` is, or else lies on with its file system.
    pub(super) fn of(file: impl AsFd) -> Arc<Self> {
        let has = fstat(file).is_ok_and(|stat| {
            let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
            has(Path::new(SYSFS), if is_device { stat.st_rdev } else { stat.st_dev })
        });
        Self::known(has)
    }

    /// Of a device that has them, or has not.
    pub(super) fn known(has: bool) -> Arc<Self> {
        Arc::new(Self { has, refused: OnceLock::new() })
    }

    /// Whether reads may go there.
    pub(super) fn are_used(&self) -> bool {
        self.has && self.refused.get().is_none()
    }

    /// Whether `error`, of a read there, says that the kernel does not poll for it. From then on nothing goes
    /// there.
    pub(super) fn is_refusal(&self, error: &io::Error) -> bool {
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        let is_refusal = matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP));
        if is_refusal {
            self.refuse(error);
        }
        is_refusal
    }

    /// Nothing goes there any more.
    pub(super) fn refuse(&self, why: &io::Error) {
        // The first reason stays.
        let _known =
            self.refused.set(format!("poll queues refused ({why}): interrupts tell of reads"));
    }

    /// What was promised and is not there.
    pub(super) fn notice(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }
}

/// Whether the kernel says, in the file system `sysfs`, that `device` has poll queues. A partition has those
/// of its disk; what lies over disks, as those of the device mapper do, has what it says itself. File systems
/// over several devices, or none, have numbers of no device.
fn has(sysfs: &Path, device: Dev) -> bool {
    let device = format!("{}:{}", major(device), minor(device));
    let place = sysfs.join("dev/block").join(device);
    // The system's own way up: `place` is a link, and the disk of a partition lies above where it leads.
    let whole = if place.join("partition").exists() { place.join("..") } else { place };
    fs::read_to_string(whole.join("queue/io_poll")).is_ok_and(|answer| answer.trim() == "1")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn a_device_or_its_disk_says_whether_it_polls() {
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
    fn what_was_refused_once_is_not_asked_again() {
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

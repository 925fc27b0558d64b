//! Processor time, resident memory and device traffic of this process, and the I/O wait of the machine, as
//! Linux reports them. On other systems, or without `/proc`, all but processor time read as zero.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads so far, user and system.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Now.
    pub now: u64,
    /// The peak since [`reset_peak`], or since the start of the process if the kernel refused that.
    pub peak: u64,
}

pub(crate) fn resident() -> Resident {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_status(&status)
}

/// Bytes that this process caused to be read from and written to devices, page cache and memory mappings
/// included. Bytes that were written and then dropped before they reached a device do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Io {
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Io {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

pub(crate) fn io() -> Io {
    parse_io(&std::fs::read_to_string("/proc/self/io").unwrap_or_default())
}

fn parse_io(io: &str) -> Io {
    let field = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let write_bytes = field("write_bytes:").saturating_sub(field("cancelled_write_bytes:"));
    Io { read_bytes: field("read_bytes:"), write_bytes }
}

/// Processor time of the machine since its start, over all processors, clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    all: u64,
    /// Idle while a thread waited for a device.
    io_wait: u64,
}

impl Processors {
    /// The share of the time since `earlier` that was idle waiting for a device.
    pub(crate) fn io_wait_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        // The kernel documents that this counter may decrease.
        self.io_wait.saturating_sub(earlier.io_wait) as f64 / all as f64
    }
}

pub(crate) fn processors() -> Processors {
    parse_stat(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn parse_stat(stat: &str) -> Processors {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal. The guest fields are included in user.
    let ticks = line.split_whitespace().take(8).map(|field| field.parse::<u64>().unwrap_or(0));
    let ticks: Vec<u64> = ticks.collect();
    Processors { all: ticks.iter().sum(), io_wait: ticks.get(4).copied().unwrap_or(0) }
}

/// Resets the peak to the current resident memory. If the kernel refuses, the old peak stays.
pub(crate) fn reset_peak() {
    let _refused_in_some_containers = std::fs::write("/proc/self/clear_refs", "5");
}

fn parse_status(status: &str) -> Resident {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map_or(0, |kib| kib << 10)
    };
    // Shared memory holds the emulated SCM tier, and only grows.
    let shared = field("RssShmem:");
    let [now, peak] = ["VmRSS:", "VmHWM:"].map(|name| field(name).saturating_sub(shared));
    Resident { now, peak }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_excludes_shared_memory() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(parse_status(status), Resident { now: 512 << 10, peak: 2 << 20 });
        let shared = format!("{status}RssShmem:\t     256 kB\n");
        assert_eq!(parse_status(&shared), Resident { now: 256 << 10, peak: 1792 << 10 });
        assert_eq!(parse_status("VmRSS: lots\n"), Resident::default());
    }

    #[test]
    fn io_subtracts_cancelled_writes() {
        let io = "rchar: 9\nsyscr: 8\nread_bytes: 4096\nwrite_bytes: 8192\n\
                  cancelled_write_bytes: 1024\n";
        let read = parse_io(io);
        assert_eq!(read, Io { read_bytes: 4096, write_bytes: 7168 });
        let earlier = Io { read_bytes: 96, write_bytes: 10_000 };
        assert_eq!(read.since(earlier), Io { read_bytes: 4000, write_bytes: 0 });
        assert_eq!(parse_io(""), Io::default());
    }

    #[test]
    fn io_wait_is_a_share_of_all_time() {
        let stat = "cpu  10 0 20 50 15 1 2 2 7 0\ncpu0 5 0 10 25 8 0 1 1 3 0\n";
        let (before, after) = (Processors { all: 80, io_wait: 10 }, parse_stat(stat));
        assert_eq!(after, Processors { all: 100, io_wait: 15 });
        assert!((after.io_wait_since(before) - 0.25).abs() < 1e-9);
        assert_eq!(before.io_wait_since(after), 0.0);
        assert_eq!(parse_stat("intr 5"), Processors::default());
    }

    #[test]
    fn work_uses_processor_time_and_memory() {
        let before = cpu_time();
        let mut sum = 0u64;
        // Ends, because processor time advances while this runs.
        while cpu_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time() > before);
        if cfg!(target_os = "linux") {
            let Resident { now, peak } = resident();
            assert!(now > 0 && peak >= now / 2, "{now} {peak}");
        }
    }
}

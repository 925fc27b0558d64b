//! The device's own limit: random reads by `fio` on the tables of a loaded store. No store can be faster.

use std::path::{Path, PathBuf};
use std::process::Command;

use base::{Error, Result};
use serde_json::Value;
use workload::cases::Scale;

use crate::measured::{Measured, StoreResult};

/// The I/O engines of `fio` to compare with the steps of the case, by label.
const JOBS: [(&str, &[&str]); 2] = [
    ("get, 32 threads", &["--ioengine=psync", "--numjobs=32", "--iodepth=1"]),
    ("32 in flight, 1 thread", &["--ioengine=io_uring", "--numjobs=1", "--iodepth=32"]),
];

/// Files smaller than this fraction (1/4) of the largest are left out, because `fio` reads each file equally
/// often.
const LARGE_PART: u64 = 4;

/// Reads 4 KiB at random offsets of all tables in `dir`, with other offsets in each run: the host of a
/// virtual machine may keep recently read data in its memory.
pub(crate) fn measure(dir: &Path, scale: Scale, result: &mut StoreResult) -> Result<()> {
    let tables = Tables::link(dir)?;
    let seconds = if scale == Scale::Full { 20 } else { 12 };
    for (label, engine) in JOBS {
        let mut command = Command::new("fio");
        command.args(["--name=floor", "--rw=randread", "--bs=4k", "--direct=1", "--time_based"]);
        command.args(["--file_service_type=random", "--group_reporting", "--output-format=json"]);
        command.arg("--readonly").args(engine).arg(format!("--runtime={seconds}"));
        command.args(["--randrepeat=0", "--norandommap"]);
        command.arg(format!("--opendir={}", tables.folder.display()));
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                result.failures.push(format!("fio did not start: {error}"));
                return Ok(());
            }
        };
        match parse(&output.stdout) {
            Some(measured) => result.steps.entry(label.to_owned()).or_default().push(measured),
            None => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().last().unwrap_or("nothing");
                let status = output.status;
                let text = format!("{label}: fio gave no report ({status}), and said: {said}");
                result.failures.push(text);
            }
        }
        result.options = vec![
            "4 KiB at random, direct".to_owned(),
            format!("all {} large files of the loaded store", tables.count),
            "psync, 32 jobs; io_uring, one job, depth 32".to_owned(),
        ];
    }
    Ok(())
}

/// Hard links to the large files of a store, in a directory of their own that is removed on drop. `fio` reads
/// all files of a directory, but accepts only some dozens of names.
struct Tables {
    folder: PathBuf,
    count: usize,
}

impl Tables {
    fn link(dir: &Path) -> Result<Self> {
        let files = files(dir)?;
        let largest = files.iter().map(|(len, _)| *len).max().unwrap_or(0);
        let folder = dir.with_extension("floor");
        // Removes the leftovers of a killed run.
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", folder.display(), e))?;
        let mut tables = Self { folder, count: 0 };
        for (len, path) in files {
            if len < (largest / LARGE_PART).max(1) {
                continue;
            }
            let link = tables.folder.join(tables.count.to_string());
            std::fs::hard_link(&path, &link).map_err(|e| Error::io("link", path.display(), e))?;
            tables.count += 1;
        }
        Ok(tables)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // Links that stay behind only delay the release of disk space.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Lengths and paths of all files below `dir`.
fn files(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let io = |error| Error::io("list", dir.display(), error);
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let metadata = entry.metadata().map_err(io)?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                files.push((metadata.len(), entry.path()));
            }
        }
    }
    Ok(files)
}

/// The figures of one report.
fn parse(report: &[u8]) -> Option<Measured> {
    // `fio` prints notes before the report.
    let start = report.iter().position(|byte| *byte == b'{')?;
    let report: Value = serde_json::from_slice(report.get(start..)?).ok()?;
    let job = report.get("jobs")?.get(0)?;
    let read = job.get("read")?;
    let number = |value: Option<&Value>| value.and_then(Value::as_f64).unwrap_or(0.0);
    let percentile = |at: &str| {
        let latencies = read.get("clat_ns").and_then(|latencies| latencies.get("percentile"));
        number(latencies.and_then(|percentiles| percentiles.get(at))) / 1000.0
    };
    let reads = number(read.get("total_ios"));
    let seconds = number(read.get("runtime")) / 1000.0;
    let jobs = number(
        report
            .get("jobs")?
            .get(0)?
            .get("job options")?
            .get("numjobs")
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<f64>().ok())
            .map(Value::from)
            .as_ref(),
    )
    .max(1.0);
    let busy = (number(job.get("usr_cpu")) + number(job.get("sys_cpu"))) / 100.0;
    let cpu_seconds = busy * seconds * jobs;
    Some(Measured {
        ops_per_sec: number(read.get("iops")),
        p50_us: percentile("50.000000"),
        p99_us: percentile("99.000000"),
        p999_us: percentile("99.900000"),
        max_us: number(read.get("clat_ns").and_then(|latencies| latencies.get("max"))) / 1000.0,
        cpu_seconds,
        cpu_seconds_per_million: cpu_seconds * 1e6 / reads.max(1.0),
        device_reads_per_op: 1.0,
        read_bytes_per_op: 4096.0,
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_large_files_are_read_and_no_link_stays() {
        let dir = std::env::temp_dir().join(format!("peers-floor-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("tables")).unwrap();
        for number in 0..70 {
            std::fs::write(dir.join(format!("tables/{number}.table")), [0; 4096]).unwrap();
        }
        std::fs::write(dir.join("LOCK"), [0; 8]).unwrap();
        let tables = Tables::link(&dir).unwrap();
        let linked = files(&tables.folder).unwrap();
        assert!(linked.len() == 70 && tables.count == 70);
        assert!(linked.iter().all(|(len, _)| *len == 4096));
        let folder = tables.folder.clone();
        drop(tables);
        assert!(!folder.exists() && files(&dir).unwrap().len() == 71);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_report_is_read() {
        let report = br#"note
{"jobs":[{"job options":{"numjobs":"2"},"usr_cpu":5.0,"sys_cpu":15.0,"read":{"iops":70000.5,
"total_ios":1000000,"runtime":10000,"clat_ns":{"max":9000000,
"percentile":{"50.000000":400000,"99.000000":900000,"99.900000":2000000}}}}]}"#;
        let measured = parse(report).unwrap();
        assert_eq!(
            (measured.ops_per_sec, measured.p50_us, measured.max_us),
            (70000.5, 400.0, 9000.0)
        );
        assert!((measured.cpu_seconds - 4.0).abs() < 1e-9);
        assert!((measured.cpu_seconds_per_million - 4.0).abs() < 1e-9);
        assert!(parse(b"no report").is_none() && parse(b"{}").is_none());
    }
}

//! `terrace calibrate`: measures a device and writes the results as a table, a chart and a calibration file.
//!
//! A real device is measured in a temporary file on it, or with `--overwrite` on the bare device. An emulated
//! device is measured in virtual time, which costs only the arithmetic. The calibration of a directory is
//! stored in that directory, and an SCM tier there uses it.

mod chart;

use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use base::parse_bytes;
use base::{Clock, SystemClock};
use media::scm::ScmLocation;
use media::{CalibratedDevice, Calibration, calibrate, device_of};
use terracedb::{Error, Result};

use crate::interrupt::Scratch;
use crate::outcome::Outcome;
use crate::output::Output;

/// The name of the temporary file that is measured in a directory.
const FILE_NAME: &str = "terrace.calibrate";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the device, the device itself, `numa:N` or `emulated:PROFILE`
    #[arg(value_name = "PLACE")]
    place: ScmLocation,
    /// Bytes of the device to use: more than the CPU caches hold
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB")]
    size: u64,
    /// The largest number of threads
    #[arg(long, value_name = "N", default_value_t = 24)]
    threads: u32,
    /// Write the calibration to this file, instead of `terrace.calibration` in the measured directory, which
    /// an SCM tier reads
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a chart (SVG) to this file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Allow the measurement to overwrite the contents of a device
    #[arg(long)]
    overwrite: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (place, _file) = place_to_measure(&args.place, args.overwrite)?;
    let mut device = CalibratedDevice::open(&place, args.size)?;
    let is_terminal = std::io::stderr().is_terminal();
    let mut calibration = calibrate(&mut device, args.threads, |done, all| {
        if is_terminal {
            eprint!("\r{done} of {all} ");
        }
    })?;
    if is_terminal {
        eprint!("\r            \r");
    }
    calibration.place = args.place.to_string();
    calibration.device = device_of(&args.place);
    calibration.measured_unix_ms = SystemClock::new().unix_millis();
    let file = args.out.clone().or_else(|| Calibration::file_of(&args.place));
    let mut out = Output::new();
    print(&calibration, &mut out)?;
    out.flush()?;
    if let Some(path) = file {
        replace(&path, &calibration.to_text())?;
        out.line(format_args!("\nwritten to {}", path.display()))?;
        out.flush()?;
    }
    if let Some(path) = &args.chart {
        let chart = chart::draw(&calibration);
        fs::write(path, chart).map_err(|error| Error::io("write", path.display(), error))?;
    }
    Ok(Outcome::Done)
}

/// Replaces a file atomically: a store that opens meanwhile reads the old or the new file.
fn replace(path: &Path, content: &str) -> Result<()> {
    let failed = |error| Error::io("write", path.display(), error);
    let new = path.with_added_extension("new");
    // An interrupted calibration may have left the file. A link at its name is removed, and not followed.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = fs::File::create_new(&new).map_err(failed)?;
    file.write_all(content.as_bytes()).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

/// The temporary file that is measured. Dropping it removes the file.
struct MeasuredFile(PathBuf, #[expect(dead_code, reason = "its drop ends the guard")] Scratch);

impl MeasuredFile {
    /// Creates the file, or reuses one that an interrupted measurement left.
    ///
    /// # Errors
    /// `Invalid` if another process measures it now; `Io` if it cannot be created.
    fn create(path: PathBuf) -> Result<Self> {
        let failed = |error| Error::io("create", path.display(), error);
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            let error = Error::invalid("place to calibrate").at(path.display());
            return Err(error.expected("a file, or no such name: move it away"));
        }
        let mut options = fs::File::options();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            // The lock ends here with `file`; the measurement itself locks the file again.
            Ok(()) => {
                let removed = Scratch::new(&path);
                Ok(Self(path, removed))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let error = Error::invalid("place to calibrate").at(path.display());
                Err(error.expected("no other measurement of it").got("a running one"))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Drop for MeasuredFile {
    fn drop(&mut self) {
        // If this fails, the next calibration reuses the file.
        drop(fs::remove_file(&self.0));
    }
}

/// The place to measure for `place`, and the temporary file if one is needed. No contents are overwritten,
/// except those of a device if `overwrite` is set.
fn place_to_measure(
    place: &ScmLocation,
    overwrite: bool,
) -> Result<(ScmLocation, Option<MeasuredFile>)> {
    let ScmLocation::Path(path) = place else { return Ok((place.clone(), None)) };
    let refused = |expected: &str| {
        Err(Error::invalid("place to calibrate").at(path.display()).expected(expected))
    };
    let metadata = fs::metadata(path).map_err(|error| Error::io("open", path.display(), error))?;
    if metadata.is_dir() {
        let file = path.join(FILE_NAME);
        return Ok((ScmLocation::Path(file.clone()), Some(MeasuredFile::create(file)?)));
    }
    if metadata.is_file() {
        return refused("a directory on the device, because the contents of a file would be lost");
    }
    if !overwrite {
        return refused("--overwrite, because all contents of the device are lost");
    }
    Ok((place.clone(), None))
}

/// Prints the calibration as text.
fn print(calibration: &Calibration, out: &mut Output) -> Result<()> {
    out.line(format_args!("device         {}", calibration.place))?;
    if !calibration.emulated.is_empty() {
        out.line(format_args!("emulated       {}, in virtual time", calibration.emulated))?;
    }
    out.line(format_args!("read latency   {}", time(calibration.read_latency_ns)))?;
    out.line(format_args!("write latency  {}", time(calibration.write_latency_ns)))?;
    out.line(format_args!("write unit     {} B", calibration.unit_bytes))?;
    out.line(format_args!("readers        {} for nearly full bandwidth", calibration.readers()))?;
    out.line(format_args!("writers        {} for nearly full bandwidth", calibration.writers()))?;
    out.line(format_args!(
        "worst mix      {:.0} % of the bandwidth of reads and writes by turns",
        calibration.mixed_part() * 100.0
    ))?;
    let columns = |out: &mut Output, title: &str, reads: &[(f64, f64)], writes: &[(f64, f64)]| {
        out.line("")?;
        out.line(format_args!("{title:>12}  {:>10}  {:>10}", "read GB/s", "write GB/s"))?;
        for ((x, read), (_, write)) in reads.iter().zip(writes) {
            out.line(format_args!("{x:>12}  {read:>10.3}  {write:>10.3}"))?;
        }
        Ok::<(), Error>(())
    };
    columns(out, "threads", &calibration.read_threads, &calibration.write_threads)?;
    columns(out, "bytes", &calibration.read_sizes, &calibration.write_sizes)?;
    out.line("")?;
    out.line(format_args!("{:>12}  {:>10}", "writes", "both GB/s"))?;
    for (share, gb) in &calibration.mixed {
        out.line(format_args!("{:>11.0}%  {gb:>10.3}", share * 100.0))?;
    }
    Ok(())
}

/// A latency with its unit.
fn time(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.0} ns") } else { format!("{:.1} us", ns / 1000.0) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_a_temporary_file_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &Path| path.to_str().unwrap().parse::<ScmLocation>().unwrap();
        {
            let (measured, file) = place_to_measure(&place(folder.path()), false).unwrap();
            assert!(measured.to_string().ends_with(FILE_NAME) && file.is_some());
            // A second measurement is refused: each would slow the other.
            let device = CalibratedDevice::open(&measured, 1 << 20).unwrap();
            assert!(place_to_measure(&place(folder.path()), false).is_err());
            drop(device);
        }
        assert!(!folder.path().join(FILE_NAME).exists());
        // The file of an interrupted measurement is reused.
        fs::write(folder.path().join(FILE_NAME), "left").unwrap();
        assert!(place_to_measure(&place(folder.path()), false).is_ok());
        let file = folder.path().join("precious");
        fs::write(&file, "x").unwrap();
        assert!(place_to_measure(&place(&file), true).is_err());
        assert!(place_to_measure(&place(Path::new("/dev/null")), false).is_err());
        assert!(place_to_measure(&place(&folder.path().join("none")), false).is_err());
        let emulated = "emulated:nvme".parse().unwrap();
        assert!(place_to_measure(&emulated, false).unwrap().1.is_none());
    }

    #[test]
    fn latency_is_printed_in_ns_or_us() {
        assert_eq!((time(305.4), time(10_000.0)), ("305 ns".to_owned(), "10.0 us".to_owned()));
    }
}

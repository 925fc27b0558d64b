//! `terrace calibrate`: what a device can do, as a table, a chart and a file.
//!
//! A real device is measured in a file of its own, removed afterwards, or where the user says so on the
//! bare device. An emulated one is asked in virtual time: that takes no longer than its arithmetic. What was
//! measured of a directory stays there, for the tier that lies in it.

mod chart;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base::{Clock, SystemClock};
use media::scm::ScmLocation;
use media::{CalibratedDevice, Calibration, calibrate, device_of};
use terracedb::{Error, Result, parse_bytes};

use crate::Outcome;
use crate::output::Output;

/// The file that is measured in a directory.
const NAME: &str = "terrace.calibrate";

/// Measures a device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the device, the device itself, `numa:N` or `emulated:PROFILE`
    #[arg(value_name = "PLACE")]
    place: ScmLocation,
    /// How much of it is used: more than the processor's caches hold
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB")]
    size: u64,
    /// The most threads at once
    #[arg(long, value_name = "N", default_value_t = 24)]
    threads: u32,
    /// Write the calibration to this file, and not to `terrace.calibration` in the directory that was
    /// measured, where an SCM tier finds it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a chart (SVG) to this file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// The place is a device, and what is on it may be overwritten
    #[arg(long)]
    overwrite: bool,
}

/// Measures, prints, writes files.
pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let (place, _file) = measured_place(&args.place, args.overwrite)?;
    let mut device = CalibratedDevice::open(&place, args.size)?;
    let is_watched = std::io::stderr().is_terminal();
    let mut calibration = calibrate(&mut device, args.threads, |done, all| {
        if is_watched {
            eprint!("\r{done} of {all} ");
        }
    })?;
    if is_watched {
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

/// Writes a file whole: who opens a store meanwhile finds the old one or the new one.
fn replace(path: &Path, content: &str) -> Result<()> {
    let failed = |error| Error::io("write", path.display(), error);
    let made = path.with_added_extension("new");
    fs::write(&made, content).map_err(failed)?;
    fs::rename(&made, path).map_err(failed)
}

/// Removes the file that was measured.
struct Made(PathBuf);

impl Made {
    /// Makes the file, or takes one that a measurement left which was cut off.
    fn at(path: PathBuf) -> Result<Self> {
        let failed = |error| Error::io("create", path.display(), error);
        let mut options = fs::File::options();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            // Whoever measures locks it again.
            Ok(()) => Ok(Self(path)),
            Err(fs::TryLockError::WouldBlock) => {
                let error = Error::invalid("place to calibrate").at(path.display());
                Err(error.expected("nobody else to measure it").got("a measurement under way"))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // What is left is a file whose name says what it was.
        drop(fs::remove_file(&self.0));
    }
}

/// Where to measure, so that nobody's content is lost unasked.
fn measured_place(place: &ScmLocation, overwrite: bool) -> Result<(ScmLocation, Option<Made>)> {
    let ScmLocation::Path(path) = place else { return Ok((place.clone(), None)) };
    let refused = |expected: &str| {
        Err(Error::invalid("place to calibrate").at(path.display()).expected(expected))
    };
    let metadata = fs::metadata(path).map_err(|error| Error::io("open", path.display(), error))?;
    if metadata.is_dir() {
        let file = path.join(NAME);
        return Ok((ScmLocation::Path(file.clone()), Some(Made::at(file)?)));
    }
    if metadata.is_file() {
        return refused("a directory on the device: a file's content would be lost");
    }
    if !overwrite {
        return refused("--overwrite, as all on the device is lost");
    }
    Ok((place.clone(), None))
}

/// The table.
fn print(calibration: &Calibration, out: &mut Output) -> Result<()> {
    out.line(format_args!("device         {}", calibration.place))?;
    if !calibration.emulated.is_empty() {
        out.line(format_args!("emulated       {}, in virtual time", calibration.emulated))?;
    }
    out.line(format_args!("read latency   {}", time(calibration.read_latency_ns)))?;
    out.line(format_args!("write latency  {}", time(calibration.write_latency_ns)))?;
    out.line(format_args!("write unit     {} B", calibration.unit_bytes))?;
    out.line(format_args!(
        "readers        {} for about the most bandwidth",
        calibration.readers()
    ))?;
    out.line(format_args!(
        "writers        {} for about the most bandwidth",
        calibration.writers()
    ))?;
    out.line(format_args!(
        "worst mix      {:.0} % of taking turns",
        calibration.mixed_part() * 100.0
    ))?;
    let two = |out: &mut Output, title: &str, reads: &[(f64, f64)], writes: &[(f64, f64)]| {
        out.line("")?;
        out.line(format_args!("{title:>12}  {:>10}  {:>10}", "read GB/s", "write GB/s"))?;
        for ((x, read), (_, write)) in reads.iter().zip(writes) {
            out.line(format_args!("{x:>12}  {read:>10.3}  {write:>10.3}"))?;
        }
        Ok::<(), Error>(())
    };
    two(out, "threads", &calibration.read_threads, &calibration.write_threads)?;
    two(out, "bytes", &calibration.read_sizes, &calibration.write_sizes)?;
    out.line("")?;
    out.line(format_args!("{:>12}  {:>10}", "writes", "both GB/s"))?;
    for (share, gb) in &calibration.mixed {
        out.line(format_args!("{:>11.0}%  {gb:>10.3}", share * 100.0))?;
    }
    Ok(())
}

fn time(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.0} ns") } else { format!("{:.1} us", ns / 1000.0) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_a_file_of_its_own_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &Path| path.to_str().unwrap().parse::<ScmLocation>().unwrap();
        {
            let (measured, made) = measured_place(&place(folder.path()), false).unwrap();
            assert!(measured.to_string().ends_with(NAME) && made.is_some());
            // Two at once would measure each other.
            let device = CalibratedDevice::open(&measured, 1 << 20).unwrap();
            assert!(measured_place(&place(folder.path()), false).is_err());
            drop(device);
        }
        assert!(!folder.path().join(NAME).exists());
        // One that was cut off is in nobody's way.
        fs::write(folder.path().join(NAME), "left").unwrap();
        assert!(measured_place(&place(folder.path()), false).is_ok());
        let file = folder.path().join("precious");
        fs::write(&file, "x").unwrap();
        assert!(measured_place(&place(&file), true).is_err());
        assert!(measured_place(&place(Path::new("/dev/null")), false).is_err());
        assert!(measured_place(&place(&folder.path().join("none")), false).is_err());
        let emulated = "emulated:nvme".parse().unwrap();
        assert!(measured_place(&emulated, false).unwrap().1.is_none());
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!((time(305.4), time(10_000.0)), ("305 ns".to_owned(), "10.0 us".to_owned()));
    }
}

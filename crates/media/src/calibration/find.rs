//! Finds the calibration of a device, and checks that it applies to that device.
//!
//! The calibration of a file system's device is a file in a directory there: the directory of the tier, or
//! its parent if that is on the same file system. Bare devices and memory have no directory for a file.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Error, Result};

use super::text::BYTES_MAX;
use super::values::Calibration;
use crate::scm::{Facts, ScmLocation};

/// Name of the file.
const NAME: &str = "terrace.calibration";

/// Older calibrations are measured again: devices wear, and machines change.
const AGE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A calibration that was found.
#[derive(Debug)]
pub struct FoundCalibration {
    /// The file.
    pub file: PathBuf,
    /// Its content, or why it cannot be read.
    pub calibration: Result<Calibration>,
}

impl Calibration {
    /// The file for a calibration of `place`; none if the location has no directory.
    #[must_use]
    pub fn file_of(place: &ScmLocation) -> Option<PathBuf> {
        directory(place).map(|directory| directory.join(NAME))
    }

    /// The calibration stored for `place`; none if there is none.
    #[must_use]
    pub fn find(place: &ScmLocation) -> Option<FoundCalibration> {
        let directory = directory(place)?;
        let device = device_at(&directory);
        let above = directory.parent().filter(|above| device_at(above) == device);
        let files = [Some(&*directory), above].into_iter().flatten().map(|at| at.join(NAME));
        files.into_iter().find_map(|file| {
            let calibration = match read(&file).transpose()? {
                Ok(text) => Self::parse(&text).map_err(|error| error.at(file.display())),
                Err(error) => Err(error),
            };
            Some(FoundCalibration { file, calibration })
        })
    }

    /// Checks that the calibration was measured within a year before `now_unix_ms`, on the device of `place`,
    /// whose properties are `facts`.
    ///
    /// # Errors
    /// `Invalid`, with the difference.
    pub fn holds_for(&self, place: &ScmLocation, facts: &Facts, now_unix_ms: u64) -> Result<()> {
        self.holds(&device_of(place), facts, now_unix_ms)
    }

    /// As [`Calibration::holds_for`], for the device with this identity.
    fn holds(&self, device: &str, facts: &Facts, now_unix_ms: u64) -> Result<()> {
        let refused = |expected: String, got: String| {
            Err(Error::invalid("calibration").expected(expected).got(got))
        };
        let emulated = facts.emulated.unwrap_or_default();
        if self.emulated != emulated {
            let named = |name: &str| match name {
                "" => "a real device".to_owned(),
                name => format!("the emulated {name}"),
            };
            return refused(named(emulated), named(&self.emulated));
        }
        if self.is_byte_addressable != facts.byte_addressable {
            let named = |is_memory| if is_memory { "memory" } else { "a block device" };
            let [wanted, found] = [facts.byte_addressable, self.is_byte_addressable].map(named);
            return refused(wanted.to_owned(), found.to_owned());
        }
        if self.device != device {
            let named = |device: &str| format!("a calibration of file system {device:?}");
            return refused(named(device), named(&self.device));
        }
        // If the clock was set back, the age is 0.
        let age = Duration::from_millis(now_unix_ms.saturating_sub(self.measured_unix_ms));
        if age > AGE_MAX {
            let days = |time: Duration| format!("{} days old", time.as_secs() / (24 * 3600));
            return refused(format!("a calibration at most {}", days(AGE_MAX)), days(age));
        }
        Ok(())
    }
}

/// The identity of the device of `place`; empty if it has none. An emulated device is identified by its
/// profile alone.
#[must_use]
pub fn device_of(place: &ScmLocation) -> String {
    match place {
        ScmLocation::Path(_) => directory(place).map_or_else(String::new, |at| device_at(&at)),
        ScmLocation::Numa(_) | ScmLocation::Emulated(..) => String::new(),
    }
}

/// The number of the file system, which most keep over restarts; empty if it has none.
fn device_at(directory: &Path) -> String {
    match rustix::fs::statvfs(directory).map(|found| found.f_fsid) {
        Ok(id) if id != 0 => format!("{id:016x}"),
        _ => String::new(),
    }
}

/// The directory that holds the content of `place`.
fn directory(place: &ScmLocation) -> Option<PathBuf> {
    let path = match place {
        ScmLocation::Path(path) | ScmLocation::Emulated(_, Some(path)) => {
            fs::canonicalize(path).ok()?
        }
        ScmLocation::Numa(_) | ScmLocation::Emulated(_, None) => return None,
    };
    let metadata = fs::metadata(&path).ok()?;
    if metadata.is_dir() {
        return Some(path);
    }
    // A device node is on another device than its content.
    path.parent().filter(|_| metadata.is_file()).map(Path::to_owned)
}

/// The text of a file; none if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    let failed = |error| Error::io("read", path.display(), error);
    // Only regular files are opened: opening a pipe would block.
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(Error::invalid("calibration").at(path.display()).expected("a file")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests;

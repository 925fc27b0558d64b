//! Where calibrations lie, and whether one speaks of the device that it is found on.
//!
//! A calibration of a file system's device lies in a directory there: the tier's own, or the one above it,
//! where that is of the same file system. Bare devices and memory have no place for a file.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Error, Result};

use super::Calibration;
use super::text::BYTES_MAX;
use crate::scm::{Facts, ScmLocation};

/// The file in a directory.
const NAME: &str = "terrace.calibration";

/// What was measured longer ago than this is measured again: devices wear, and machines change.
const AGE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// What was found, and where.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// What it says, or why it cannot be read.
    pub calibration: Result<Calibration>,
}

impl Calibration {
    /// The file that a calibration of `place` is kept in; none where a place has no directory.
    #[must_use]
    pub fn file_of(place: &ScmLocation) -> Option<PathBuf> {
        directory(place).map(|directory| directory.join(NAME))
    }

    /// What is kept for `place`; none where nothing is.
    #[must_use]
    pub fn find(place: &ScmLocation) -> Option<Found> {
        let directory = directory(place)?;
        let device = device_at(&directory);
        let above = directory.parent().filter(|above| device_at(above) == device);
        let files = [Some(&*directory), above].into_iter().flatten().map(|at| at.join(NAME));
        files.into_iter().find_map(|file| {
            let calibration = match read(&file).transpose()? {
                Ok(text) => Self::parse(&text).map_err(|error| error.at(file.display())),
                Err(error) => Err(error),
            };
            Some(Found { file, calibration })
        })
    }

    /// Whether it was measured, lately as of `now_unix_ms`, on the device of `place`, which was opened as
    /// `facts` say.
    ///
    /// # Errors
    /// `Invalid` with what it is of instead.
    pub fn holds_for(&self, place: &ScmLocation, facts: &Facts, now_unix_ms: u64) -> Result<()> {
        self.holds(&device_of(place), facts, now_unix_ms)
    }

    /// The same, of `device`.
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
            let named = |is_memory| if is_memory { "memory" } else { "a device of blocks" };
            let [wanted, found] = [facts.byte_addressable, self.is_byte_addressable].map(named);
            return refused(wanted.to_owned(), found.to_owned());
        }
        if self.device != device {
            let named = |device: &str| format!("one of file system {device:?}");
            return refused(named(device), named(&self.device));
        }
        // A clock that was set back makes nothing old.
        let age = Duration::from_millis(now_unix_ms.saturating_sub(self.measured_unix_ms));
        if age > AGE_MAX {
            let days = |time: Duration| format!("{} days old", time.as_secs() / (24 * 3600));
            return refused(format!("one of at most {}", days(AGE_MAX)), days(age));
        }
        Ok(())
    }
}

/// What tells the device of `place` from others, where anything does: of an emulated one its profile
/// alone does.
#[must_use]
pub fn device_of(place: &ScmLocation) -> String {
    match place {
        ScmLocation::Path(_) => directory(place).map_or_else(String::new, |at| device_at(&at)),
        ScmLocation::Numa(_) | ScmLocation::Emulated(..) => String::new(),
    }
}

/// The file system's number, which most keep over restarts; empty where it has none.
fn device_at(directory: &Path) -> String {
    match rustix::fs::statvfs(directory).map(|found| found.f_fsid) {
        Ok(id) if id != 0 => format!("{id:016x}"),
        _ => String::new(),
    }
}

/// The directory that the content of `place` is kept in.
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
    // A device's node lies on another device.
    path.parent().filter(|_| metadata.is_file()).map(Path::to_owned)
}

/// The text of a file; none where there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    let failed = |error| Error::io("read", path.display(), error);
    // Nothing else is opened: that of a pipe would wait.
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

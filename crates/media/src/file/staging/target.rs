//! Where a staged directory appears: a path without a directory, or an empty directory that exists.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::{Error, Result};

use super::super::directory_handle::DirectoryHandle;
use super::super::system::failed;

/// The name of an unfinished directory in an existing one; behind the name of a missing one, its suffix.
const UNFINISHED: &str = ".terrace-unfinished";

/// The place of a staged directory.
pub(super) struct Target {
    /// The directory above the unfinished one: the one to fill, or the one that it will be in.
    pub(super) above: DirectoryHandle,
    pub(super) unfinished: String,
    /// The name of the new directory, if there is none to fill.
    pub(super) name: Option<String>,
    pub(super) parents: NewParents,
}

impl Target {
    /// Examines `place`, and creates missing parent directories.
    ///
    /// # Errors
    /// `Invalid` if it is no directory, a link to nothing, or a path that does not end with a name.
    pub(super) fn of(place: &Path) -> Result<Self> {
        let at = place.display();
        let refused = |got: &str| {
            let error = Error::invalid("directory").at(&at);
            Err(error.expected("no directory, or an empty one").got(got))
        };
        match fs::metadata(place) {
            Ok(found) if found.is_dir() => {
                let above = DirectoryHandle::open(place, false)?;
                let (unfinished, parents) = (UNFINISHED.to_owned(), NewParents(Vec::new()));
                return Ok(Self { above, unfinished, name: None, parents });
            }
            Ok(_) => return refused("a file"),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("find", &at, error));
            }
            Err(_) if place.symlink_metadata().is_ok() => return refused("a link to nothing"),
            Err(_) => {}
        }
        let place = std::path::absolute(place).map_err(|error| failed("find", &at, error))?;
        let name = place.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::invalid("path of a new directory")
                .at(&at)
                .expected("a path that ends with a name")
        })?;
        let parent = place.parent().unwrap_or(Path::new("/"));
        let parents = NewParents::of(parent);
        let above = DirectoryHandle::open(parent, true)?;
        let unfinished = format!("{name}{UNFINISHED}");
        Ok(Self { above, unfinished, name: Some(name.to_owned()), parents })
    }
}

/// Directories that are created on the way. Dropped, it removes those of them that are empty.
#[derive(Debug)]
pub(super) struct NewParents(Vec<PathBuf>);

impl NewParents {
    /// Before `path` and the directories above it are created.
    fn of(path: &Path) -> Self {
        Self(path.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect())
    }
}

impl Drop for NewParents {
    fn drop(&mut self) {
        // Innermost first. Refused for a directory that is not empty.
        self.0.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

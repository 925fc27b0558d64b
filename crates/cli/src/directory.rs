//! A look at a directory before anything is opened, locked or made in it.

use std::path::Path;
use std::sync::Arc;

use media::{FileMedium, FileOptions, Medium};
use terracedb::{Error, Result};

/// The files in `dir`, to be read and nothing else: no lock is taken and no file made.
pub(crate) fn look(dir: &Path) -> Result<Arc<dyn Medium>> {
    let options = FileOptions {
        create: false,
        read_only: true,
        direct: false,
        io_uring: false,
        queue_depth: 1,
    };
    Ok(Arc::new(FileMedium::open(dir, options)?))
}

/// Refuses a directory without a store, so that a mistyped path is not written to.
pub(crate) fn must_hold_store(dir: &Path) -> Result<()> {
    let refused = |got: &str| {
        Err(Error::invalid("store").at(dir.display()).expected("one to exist").got(got))
    };
    if !dir.exists() {
        return refused("no such directory");
    }
    if look(dir)?.list()?.iter().any(|file| is_of_store(&file.name)) {
        return Ok(());
    }
    refused("none")
}

fn is_of_store(name: &str) -> bool {
    name.starts_with("manifest-")
        || table::parse_file_name(name).is_some()
        || table::parse_values_file_name(name).is_some()
        || wal::parse_segment_name(name).is_some()
}

/// Refuses a directory that has files and no store, so that a mistyped path gets none. What was measured of
/// the device may lie there.
pub(crate) fn may_hold_store(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    if look(dir)?.list()?.iter().any(|file| is_of_store(&file.name)) {
        return Ok(());
    }
    let failed = |error| Error::io("list", dir.display(), error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let is_own = name.starts_with("terrace") || ["LOCK", "lost+found"].contains(&&*name);
        if !is_own && !name.starts_with('.') {
            return Err(Error::invalid("store")
                .at(dir.display())
                .expected("an empty directory, or one with a store")
                .got(format_args!("`{name}` in it")));
        }
    }
    Ok(())
}

/// Refuses a directory that holds any file: a measurement destroys nothing.
pub(crate) fn must_be_empty(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    match look(dir)?.list()?.first() {
        None => Ok(()),
        Some(file) => Err(Error::invalid("--data")
            .at(dir.display())
            .expected("an empty directory, or --existing")
            .got(format_args!("`{}` in it", file.name))),
    }
}

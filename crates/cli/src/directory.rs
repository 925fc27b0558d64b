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
    let is_store = |name: &str| {
        name.starts_with("manifest-")
            || table::parse_file_name(name).is_some()
            || table::parse_values_file_name(name).is_some()
            || log::parse_segment_name(name).is_some()
    };
    if look(dir)?.list()?.iter().any(|file| is_store(&file.name)) {
        return Ok(());
    }
    refused("none")
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

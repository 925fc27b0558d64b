//! Checks of a directory before a command opens, locks or creates anything in it.

use std::path::Path;
use std::sync::Arc;

use manifest::KeyspaceFile;
use media::{FileMedium, FileOptions, Medium};
use terracedb::{Error, Result};

/// The files in `dir`, read-only: takes no lock and creates no file.
pub(crate) fn open_read_only(dir: &Path) -> Result<Arc<dyn Medium>> {
    let options = FileOptions {
        create: false,
        read_only: true,
        direct: false,
        io_uring: false,
        queue_depth: 1,
    };
    Ok(Arc::new(FileMedium::open(dir, options)?))
}

/// Refuses a directory without a store, so that a command does not write to a mistyped path.
pub(crate) fn must_hold_store(dir: &Path) -> Result<()> {
    let refused = |got: &str| {
        Err(Error::invalid("store").at(dir.display()).expected("an existing one").got(got))
    };
    if !dir.exists() {
        return refused("no such directory");
    }
    if open_read_only(dir)?.list()?.iter().any(|file| is_store_file(&file.name)) {
        return Ok(());
    }
    refused("none")
}

/// The names of the manifests in `dir`, sorted; none if it cannot be read.
pub(crate) fn manifests(dir: &Path) -> Vec<String> {
    files_named(dir, "manifest-")
}

/// Whether there is a backup in `dir`.
pub(crate) fn holds_backups(dir: &Path) -> bool {
    !files_named(dir, "backup-").is_empty()
}

/// Whether there is a store in `dir`, and no backup.
pub(crate) fn holds_only_store(dir: &Path) -> bool {
    !manifests(dir).is_empty() && !holds_backups(dir)
}

/// The files in `dir` whose names begin with `prefix`, sorted; none if it cannot be read.
fn files_named(dir: &Path, prefix: &str) -> Vec<String> {
    let listed = open_read_only(dir).and_then(|medium| medium.list()).unwrap_or_default();
    let names = listed.into_iter().map(|file| file.name);
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Whether `name` is that of a file of a store.
pub(crate) fn is_store_file(name: &str) -> bool {
    name.starts_with("manifest-")
        || table::Dictionary::parse_file_name(name).is_some()
        || table::parse_file_name(name).is_some()
        || table::parse_values_file_name(name).is_some()
        || wal::parse_segment_name(name).is_some()
        || KeyspaceFile::parse_file_name(name).is_some()
}

/// Refuses a directory that has other files and no store, so that no store is created at a mistyped path.
/// Files of `terrace` such as a calibration, hidden files, and lost+found are allowed.
pub(crate) fn may_hold_store(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    if open_read_only(dir)?.list()?.iter().any(|file| is_store_file(&file.name)) {
        return Ok(());
    }
    let failed = |error| Error::io("list", dir.display(), error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let is_allowed = name.starts_with("terrace") || ["LOCK", "lost+found"].contains(&&*name);
        if !is_allowed && !name.starts_with('.') {
            return Err(Error::invalid("store")
                .at(dir.display())
                .expected("an empty directory, or one with a store")
                .got(format_args!("`{name}` in it")));
        }
    }
    Ok(())
}

/// Refuses a directory that holds any file, so that a benchmark overwrites nothing.
pub(crate) fn must_be_empty(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    match open_read_only(dir)?.list()?.first() {
        None => Ok(()),
        Some(file) => Err(Error::invalid("--data")
            .at(dir.display())
            .expected("an empty directory, or --existing")
            .got(format_args!("`{}` in it", file.name))),
    }
}

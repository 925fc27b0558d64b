//! That nothing lies on a device that no one owns.

use std::path::Path;

use media::Medium;
use terracedb::Db;

/// Asserts that the device holds no table and no manifest but those in use.
pub(crate) fn assert_tidy(db: &Db, medium: &dyn Medium, why: &str) {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    assert_tidy_names(db, &names.collect::<Vec<_>>(), why);
}

/// As [`assert_tidy`], of a directory.
pub(crate) fn assert_tidy_directory(db: &Db, directory: &Path, why: &str) {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    assert_tidy_names(db, &names.collect::<Vec<_>>(), why);
}

fn assert_tidy_names(db: &Db, listed: &[String], why: &str) {
    let count = |part: &str| listed.iter().filter(|name| name.contains(part)).count();
    let tables: usize = db.statistics().keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    assert_eq!(count(".table"), tables, "{why}: tables among {listed:?}");
    let values: usize = db.statistics().keyspaces.iter().map(|it| it.value_files).sum();
    assert_eq!(count(".values"), values, "{why}: value files among {listed:?}");
    assert_eq!(count("manifest"), 1, "{why}: manifests among {listed:?}");
}

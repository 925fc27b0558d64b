//! Checks that a device has no orphan files.

use std::path::Path;

use media::Medium;
use terracedb::Db;

use super::until;

/// Asserts that the device holds exactly the tables, value files and manifest in use. For stores without
/// running background work.
pub(crate) fn assert_tidy(db: &Db, medium: &dyn Medium, why: &str) {
    if let Some(found) = untidy(db, &names(medium)) {
        panic!("{why}: {found}");
    }
}

/// As [`assert_tidy`], but waits: a background thread may still hold the files of its last read or write.
pub(crate) fn assert_tidy_soon(db: &Db, medium: &dyn Medium, why: &str) {
    becomes_tidy(db, || names(medium), why);
}

/// As [`assert_tidy_soon`], for a store in a directory.
pub(crate) fn assert_tidy_directory(db: &Db, directory: &Path, why: &str) {
    let names = || {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    becomes_tidy(db, names, why);
}

fn becomes_tidy(db: &Db, names: impl Fn() -> Vec<String>, why: &str) {
    let mut found = None;
    until(&format!("{why}: files that no one owns"), || {
        let now = untidy(db, &names());
        if now.is_some() && now != found {
            println!("{why}: for the moment {}", now.as_deref().unwrap_or_default());
            found.clone_from(&now);
        }
        now.is_none().then_some(())
    });
}

fn names(medium: &dyn Medium) -> Vec<String> {
    medium.list().unwrap().into_iter().map(|file| file.name).collect()
}

/// Describes the first kind of file of which `listed` has more or fewer than are in use.
fn untidy(db: &Db, listed: &[String]) -> Option<String> {
    let keyspaces = db.statistics().keyspaces;
    let tables: usize = keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    let values: usize = keyspaces.iter().map(|keyspace| keyspace.value_files).sum();
    let owned = [(".table", tables), (".values", values), ("manifest", 1)];
    owned.into_iter().find_map(|(part, owned)| {
        let count = listed.iter().filter(|name| name.contains(part)).count();
        (count != owned).then(|| format!("{count} of {part}, {owned} in use: {listed:?}"))
    })
}

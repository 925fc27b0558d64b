//! The claim of a prefix of an object store: by one store, and by its newest process.
//!
//! A file names the store, its lineage, and how often the store has claimed the prefix. The manifest has the
//! same number. A copy of the store's directory has the old number once the original has claimed again, and
//! is refused: it would remove objects that the original names. The lock of the medium, numbered manifests
//! that are created only if their number is free, stops a process that another one has replaced.
//!
//! The number is raised in the manifest first. A crash between the two leaves the manifest one ahead.

use std::any::Any;
use std::collections::BTreeSet;

use base::{Error, LineageId, Result, StoreId};
use manifest::{Edit, Manifest};
use media::{Access, Buf, Cold, Medium, Purpose};

use super::is_cold_file_name;

/// First part of the name of the file that claims.
const OWNER: &str = "store-";

/// The right to change the files of a prefix, until it is dropped.
pub(super) struct Claim {
    _lock: Box<dyn Any + Send + Sync>,
}

fn owner_name(store: StoreId, lineage: LineageId, number: u64) -> String {
    format!("{OWNER}{:032x}-{:032x}-{number}", store.0, lineage.0)
}

/// The number in the name of the owner's file, if it is that of this store.
fn number_of(name: &str, store: StoreId, lineage: LineageId) -> Option<u64> {
    let number = name.rsplit_once('-')?.1.parse().ok()?;
    (name == owner_name(store, lineage, number)).then_some(number)
}

impl Claim {
    /// Claims `medium` for the store with this manifest, and removes files that no name of `cold` needs: the
    /// remains of uploads that were not finished, and of removals.
    ///
    /// # Errors
    /// `Conflict`, which no retry heals, if the prefix is not that of this store, or if a copy of the store
    /// has claimed it; those of the medium and the manifest.
    pub(super) fn begin(
        medium: &dyn Medium,
        store: StoreId,
        manifest: &Manifest,
        cold: &Cold,
    ) -> Result<Self> {
        let lock = medium.lock()?;
        let state = manifest.state();
        let (lineage, known) = (state.lineage_of(store), state.cold_opened);
        let files: Vec<String> = medium.list()?.into_iter().map(|file| file.name).collect();
        let owner = files.iter().find(|name| name.starts_with(OWNER));
        let refused = |expected: &str, got: &str| {
            let error = Error::conflict("object store of cold tables").expected(expected);
            Err(error.got(format_args!("`{}`", got.escape_debug())))
        };
        let found = owner.and_then(|name| number_of(name, store, lineage));
        match (owner, found, files.first()) {
            (Some(other), None, _) => {
                return refused("a prefix that no other store uses", other);
            }
            (Some(other), Some(number), _) if number != known && number + 1 != known => {
                return refused("no other copy of the store that uses it", other);
            }
            (None, _, Some(file)) => {
                return refused("an empty prefix, or that of the store's cold tables", file);
            }
            (None, _, None) if state.cold_tables().next().is_some() => {
                return refused("the prefix with the store's cold tables", "no file");
            }
            _ => {}
        }
        // One that the manifest has and the prefix has not: the process that raised it died in between.
        let is_raised = found.map_or(known > 0, |found| found < known);
        let number = if is_raised { known } else { known + 1 };
        let next = owner_name(store, lineage, number);
        if !is_raised {
            manifest.append(vec![Edit::ColdOpened { number }])?;
        }
        match owner {
            Some(owner) => medium.rename(owner, &next)?,
            None => {
                let file = medium.create(&next, Access::Direct, 0)?;
                file.write(0, Buf::pages(1), Purpose::Scrub).1?;
                file.sync(Purpose::Scrub)?;
            }
        }
        let named: BTreeSet<String> = cold.named().into_iter().map(|name| name.file).collect();
        let is_orphan = |name: &&String| is_cold_file_name(name) && !named.contains(*name);
        files.iter().filter(is_orphan).try_for_each(|name| medium.remove(name))?;
        medium.sync_names(&[&next])?;
        Ok(Self { _lock: lock })
    }
}

//! Capture: the state of an open store at one instant, kept so that it can be copied while the store goes on.
//!
//! The order of steps makes the capture consistent. While it is taken, no keyspace is created or dropped.
//! First the files are held, so that no file that the manifest then names is removed. Second comes the
//! manifest's state. Last comes the end of the log, so that the log up to it has every write that a table of
//! the state has: replaying the log over the tables gives whole batches, among them all that were
//! acknowledged before the capture. Ingests are in no log: if one happened between the last two steps, both
//! are taken again, or the copy would have writes that follow the ingest but not the ingest.
//!
//! Threads: any; `Store::keyspaces` is locked meanwhile. Memory: a copy of the manifest's state, encoded, and
//! its file names.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, LineageId, Result, Seqno, StoreId};
use engine::{Components as _, Store};
use manifest::ManifestState;
use media::{Access, Hold, Medium, Purpose};
use wal::{Extent, Known, extents};

/// The number of a copied manifest: it is the first of its directory.
const MANIFEST_NUMBER: u64 = 1;

/// A consistent state of an open store, and a hold on its files. See the module.
#[derive(Debug)]
pub(crate) struct Capture {
    pub store: StoreId,
    /// The lineage of the captured store.
    pub lineage: LineageId,
    /// The medium that has the files.
    pub medium: Arc<dyn Medium>,
    /// Every file that the manifest names.
    pub files: BTreeSet<String>,
    /// The extents of the log, oldest first. Copy them first: until then the hold keeps every segment and
    /// every obsolete file.
    pub log: Vec<Extent>,
    /// The log, as the manifest states it.
    known_log: Known,
    /// The last sequence number in the log; zero if nothing was appended since the store was opened. Then no
    /// number needs to be found in the copy, because the opening made durable all that it read.
    log_last: Seqno,
    /// The encoded manifest of the captured state, in whole pages.
    pub manifest: Vec<u8>,
    hold: Hold,
}

/// Returns a state, and an end of the log taken after it, with no ingest between the two.
fn state_and_log_end<E>(
    state: impl Fn() -> ManifestState,
    end: impl Fn() -> E,
) -> (ManifestState, E) {
    let ingested = |state: &ManifestState| -> Vec<_> {
        state.keyspaces.values().map(|keyspace| keyspace.ingested).collect()
    };
    let mut before = state();
    // A turn repeats only if an ingest finished meanwhile, and an ingest syncs a device.
    loop {
        let end = end();
        let after = state();
        if ingested(&after) == ingested(&before) {
            return (before, end);
        }
        before = after;
    }
}

impl Capture {
    /// Captures `store` as it is now. The captured manifest states the lineage `began` if there is one: the
    /// copy then goes its own way.
    ///
    /// # Errors
    /// The device's, when it lists the log.
    pub(crate) fn take(store: &Store, began: Option<LineageId>) -> Result<Self> {
        // If a keyspace were created meanwhile, a batch over it and others would be restored in part.
        let keyspaces = store.keyspaces.lock();
        let hold = store.holding.hold();
        let (mut state, ends) = state_and_log_end(|| store.manifest.state(), || store.log.ends());
        // Entries that expired in the store stay expired in the copy, whatever the copy's clock says.
        state.clock_ms = state.clock_ms.max(store.timekeeper.trusted_now());
        let log = extents(&*store.medium, &state.log_start, &ends)?;
        drop(keyspaces);
        // A copy has its log in its directory, in the same lanes.
        state.log_place = wal::LogPlace::default();
        // It has the content of the cold tables in its own files.
        state.warm_all();
        let lineage = state.lineage_of(store.id);
        state.lineage = began.or(state.lineage);
        let manifest = encode_manifest(store.id, &state)?;
        let medium = Arc::clone(&store.medium);
        let (files, known_log) = (state.files(), state.known_log());
        let log_last = ends.iter().map(|end| end.last).max().unwrap_or(Seqno::ZERO);
        Ok(Self {
            store: store.id,
            lineage,
            medium,
            files,
            log,
            known_log,
            log_last,
            manifest,
            hold,
        })
    }

    /// The file name of the copied manifest.
    pub(crate) fn manifest_name() -> String {
        manifest::file_name(MANIFEST_NUMBER)
    }

    /// Releases the log, and every other file that was not captured.
    pub(crate) fn log_is_copied(&self) {
        self.hold.narrow(self.files.iter().cloned());
    }

    /// Reads the log's copy on `copy` as recovery would, up to the captured end. The copy may be short if the
    /// store was opened past damage, or if the device dropped writes that it failed to sync and that the
    /// store's readers still get from memtables.
    ///
    /// # Errors
    /// `Corrupt` if the copy is damaged or ends too early, `Poisoned` if a failed sync is the reason.
    pub(crate) fn check_log(&self, store: &Store, copy: &Arc<dyn Medium>) -> Result<()> {
        let account = store.resources.account("copies");
        let (id, strict) = (Some(self.store), wal::Recover::Strict);
        // How far the store's log reached is not required of a copy that `log_last` already judges: after a
        // failed sync its cause is the error that tells.
        let known = Known { start: self.known_log.start.clone(), ..Default::default() };
        let copied = wal::check(copy, id, &known, strict, &account)?.last;
        if copied >= self.log_last {
            return Ok(());
        }
        let short = match store.log.poisoned() {
            Some(first) => Error::poisoned_by("copy of the commit log", &first),
            None => Error::corrupt("copy of the commit log"),
        };
        Err(short.expected(format_args!("writes up to {}", self.log_last)).got(copied))
    }

    /// The length of a file that the manifest names, bytes.
    ///
    /// # Errors
    /// `Corrupt` if the file is missing.
    pub(crate) fn len(&self, name: &str) -> Result<u64> {
        let open = || self.medium.open(name, Access::Bytes)?.size();
        open().map_err(|error| match error.kind() {
            ErrorKind::Invalid => {
                Error::corrupt("store").at(name).expected("the file").caused_by(error)
            }
            _ => error,
        })
    }

    /// Releases one file, which is copied.
    pub(crate) fn is_copied(&self, name: &str) {
        self.hold.release(name);
    }

    /// Writes the manifest to `to` and syncs it. This makes `to` a store, so everything else must exist there
    /// and be durable (I3).
    pub(crate) fn write_manifest(&self, to: &dyn Medium) -> Result<()> {
        write_manifest(to, &self.manifest)?;
        to.sync_names(&[])
    }
}

/// Encodes the manifest of a copy of `store`, in whole pages.
pub(crate) fn encode_manifest(store: StoreId, state: &ManifestState) -> Result<Vec<u8>> {
    let (mut manifest, _) = manifest::encode(store, state, MANIFEST_NUMBER)?;
    manifest.resize(manifest.len().next_multiple_of(PAGE_BYTES), 0);
    Ok(manifest)
}

/// Writes the encoded manifest of a copy to `to` and syncs it. The caller syncs its name.
pub(crate) fn write_manifest(to: &dyn Medium, manifest: &[u8]) -> Result<()> {
    base::invariant!(manifest.len().is_multiple_of(PAGE_BYTES), "a copied manifest is whole pages");
    let file = to.create(&Capture::manifest_name(), Access::Bytes, manifest.len() as u64)?;
    file.store(0, manifest, Purpose::Manifest)?;
    file.sync(Purpose::Manifest)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base::KeyspaceId;
    use manifest::{Edit, KeyspaceKind};

    use super::*;

    #[test]
    fn an_ingest_between_state_and_log_end_takes_both_again() {
        let state = |ingested: u64| {
            let (keyspace, mut state) = (KeyspaceId(1), ManifestState::default());
            let kind = KeyspaceKind::Ordered;
            state.apply(Edit::KeyspaceCreated { keyspace, kind, name: "k".to_owned() }).unwrap();
            state.apply(Edit::Ingested { keyspace, last: Seqno::new(ingested) }).unwrap();
            state
        };
        // Two ingests, each right after a state was taken.
        let (states, ends) = (Cell::new(0), Cell::new(0));
        let next_state = || state(states.replace(states.get() + 1).min(2));
        let next_end = || ends.replace(ends.get() + 1);
        let (taken, end) = state_and_log_end(next_state, next_end);
        assert_eq!(taken.keyspaces[&KeyspaceId(1)].ingested, Seqno::new(2));
        assert_eq!(end, 2, "taken after the last ingest");
    }
}

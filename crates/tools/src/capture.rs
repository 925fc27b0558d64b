//! A moment of an open store, kept so that it can be copied while the store goes on.
//!
//! Order makes the moment whole. Keyspaces neither come nor go while it is taken. Files are held
//! first, so that whatever the manifest then names stays; the manifest's state comes second; the
//! log's end comes last, so that no table of the state holds a write that the log before the end
//! does not: replaying the log over the tables gives every batch whole, the ones acknowledged
//! before the capture among them. Ingests are in no log: the two are taken anew where one came between,
//! or the copy would have what was written after it and not the ingest.
//!
//! Memory: the manifest's state once more, and its file names.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, Result, Seqno, StoreId};
use media::{Access, Hold, Medium, Purpose};
use wal::{Extent, Start, extents};

use engine::Store;
use manifest::{self, ManifestState};

/// The number of a copied manifest: it is the first of its directory.
const MANIFEST_NUMBER: u64 = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Capture {
    pub store: StoreId,
    /// Where the files are.
    pub medium: Arc<dyn Medium>,
    /// Everything that the manifest names.
    pub files: BTreeSet<String>,
    /// The log, oldest first. To be copied first: it is held whole, and so is whatever else goes.
    pub log: Vec<Extent>,
    /// Where the log begins, as the manifest says.
    pub log_start: Start,
    /// The last number in the log. None needs to be found where nothing was appended since the store was
    /// opened: the opening made durable what it read.
    log_last: Seqno,
    /// A manifest that names all of this, in whole pages.
    pub manifest: Vec<u8>,
    hold: Hold,
}

/// A state and an end of the log that is after it, with no ingest between the two.
fn moment<E>(state: impl Fn() -> ManifestState, end: impl Fn() -> E) -> (ManifestState, E) {
    let ingested = |state: &ManifestState| -> Vec<_> {
        state.keyspaces.values().map(|keyspace| keyspace.ingested).collect()
    };
    let mut before = state();
    // Each turn an ingest came between, which takes syncs of the device.
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
    pub(crate) fn take(store: &Store) -> Result<Self> {
        // A batch over a keyspace that the state does not name would come back in part.
        let keyspaces = store.keyspaces.lock();
        let hold = store.holding.hold();
        let (mut state, end) = moment(|| store.manifest.state(), || store.log.end());
        // What expired in the store stays so in the copy, wherever its clock stands.
        state.clock_ms = state.clock_ms.max(store.timekeeper.trusted_now());
        let log = extents(&*store.medium, &state.log_start, end)?;
        drop(keyspaces);
        let (mut manifest, _) = manifest::encode(store.id, &state, MANIFEST_NUMBER)?;
        manifest.resize(manifest.len().next_multiple_of(PAGE_BYTES), 0);
        let medium = Arc::clone(&store.medium);
        let (files, log_start) = (state.files(), state.log_start);
        let log_last = end.map_or(Seqno::ZERO, |end| end.last);
        Ok(Self { store: store.id, medium, files, log, log_start, log_last, manifest, hold })
    }

    /// The name that the manifest goes by.
    pub(crate) fn manifest_name() -> String {
        manifest::file_name(MANIFEST_NUMBER)
    }

    /// Lets go of the log, and of whatever was not captured.
    pub(crate) fn log_is_copied(&self) {
        self.hold.narrow(self.files.iter().cloned());
    }

    /// Reads the log's copy on `copy` as recovery would, up to the moment. The store may have been opened
    /// past damage; and the device may have dropped what it could not sync, which readers of the store
    /// still get from memtables.
    ///
    /// # Errors
    /// `Corrupt` where the copy is damaged or ends too early, `Poisoned` where a failed sync is why.
    pub(crate) fn check_log(&self, store: &Store, copy: &Arc<dyn Medium>) -> Result<()> {
        let account = store.resources.account("copies");
        let (id, strict) = (Some(self.store), wal::Recover::Strict);
        let copied = wal::check(copy, id, &self.log_start, strict, &account)?.last;
        if copied >= self.log_last {
            return Ok(());
        }
        let short = match store.log.poisoned() {
            Some(first) => Error::poisoned_by("copy of the commit log", &first),
            None => Error::corrupt("copy of the commit log"),
        };
        Err(short.expected(format_args!("writes up to {}", self.log_last)).got(copied))
    }

    /// The length of a file that the manifest names.
    ///
    /// # Errors
    /// `Corrupt` where it is lost.
    pub(crate) fn len(&self, name: &str) -> Result<u64> {
        let open = || self.medium.open(name, Access::Bytes)?.size();
        open().map_err(|error| match error.kind() {
            ErrorKind::Invalid => {
                Error::corrupt("store").at(name).expected("the file").caused_by(error)
            }
            _ => error,
        })
    }

    /// Lets go of one file.
    pub(crate) fn is_copied(&self, name: &str) {
        self.hold.release(name);
    }

    /// Writes the manifest to `to`, which becomes a store by it: everything else is there and
    /// durable (I3).
    pub(crate) fn write_manifest(&self, to: &dyn Medium) -> Result<()> {
        let len = self.manifest.len() as u64;
        let file = to.create(&Self::manifest_name(), Access::Bytes, len)?;
        file.store(0, &self.manifest, Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        to.sync_names(&[])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base::KeyspaceId;

    use super::*;
    use manifest::{Edit, KeyspaceKind};

    #[test]
    fn an_ingest_between_the_state_and_the_logs_end_is_in_both_or_neither() {
        let state = |ingested: u64| {
            let (keyspace, mut state) = (KeyspaceId(1), ManifestState::default());
            let kind = KeyspaceKind::Ordered;
            state.apply(Edit::KeyspaceCreated { keyspace, kind, name: "k".to_owned() }).unwrap();
            state.apply(Edit::Ingested { keyspace, last: Seqno::new(ingested) }).unwrap();
            state
        };
        // Of two ingests, each comes right after a state was taken.
        let (states, ends) = (Cell::new(0), Cell::new(0));
        let next_state = || state(states.replace(states.get() + 1).min(2));
        let next_end = || ends.replace(ends.get() + 1);
        let (taken, end) = moment(next_state, next_end);
        assert_eq!(taken.keyspaces[&KeyspaceId(1)].ingested, Seqno::new(2));
        assert_eq!(end, 2, "taken after the last of them");
    }
}

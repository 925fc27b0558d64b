//! The manifest being appended to: one record a change, and a new file once edits outgrow the old one.
//!
//! Concurrency: any thread. One lock is held over the device's write and sync, so that changes are durable in
//! the order in which they take effect.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{DictionaryId, Error, ErrorKind, KeyspaceId, Result, StoreId, TableId};
use media::{Access, File, Medium, Purpose};
use parking_lot::Mutex;

use crate::header::{HEADERS_BYTES, encode_header};
use crate::name::{file_name, parse_file_name};
use crate::reader::{self, Recovered};
use crate::{Edit, ManifestState, ValuesEntry, frame};

/// A manifest is rewritten when its edits pass this, or eight times its first record.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Table ids are reserved this many at a time: one record a thousand tables.
const TABLE_IDS_STEP: u64 = 1024;

/// The manifest being appended to.
#[derive(Debug)]
pub struct Manifest {
    medium: Arc<dyn Medium>,
    store: StoreId,
    inner: Mutex<Inner>,
    /// The first failure. Set with `inner` held, and read without it: who asks waits for no device.
    poison: OnceLock<Error>,
}

#[derive(Debug)]
struct Inner {
    state: ManifestState,
    number: u64,
    file: Arc<dyn File>,
    seed: u32,
    /// Where the next record goes, and where the reserved space ends; bytes.
    end: u64,
    limit: u64,
    sequence: u64,
    next_table: TableId,
}

impl Manifest {
    /// Writes a new manifest holding `state`, numbered after every one that exists, and removes
    /// the older ones.
    pub fn start(
        medium: Arc<dyn Medium>,
        store: StoreId,
        state: ManifestState,
        number: u64,
    ) -> Result<Self> {
        let next_table = state.tables_below;
        let inner = write_new(&*medium, store, state, number, next_table).inspect_err(|_| {
            // It says no more than the one before; the next open may read either.
            let _ = withdraw(&*medium, number);
        })?;
        let manifest = Self::of(medium, store, inner);
        manifest.remove_older(number)?;
        Ok(manifest)
    }

    /// Goes on in the manifest that was read: where there is no space for a new one, since nothing
    /// is needed for this until its own space is used up. The others are removed.
    pub fn resume(medium: Arc<dyn Medium>, found: Recovered) -> Result<Self> {
        let Recovered { store, state, in_force, number: highest, .. } = found;
        let content = reader::content(&*medium, &in_force)?;
        let reader::InForce { number, seed, sequence, end, torn, limit } = in_force;
        let name = file_name(number);
        let file = medium.open(&name, Access::Bytes)?;
        // What was read may be on no device: a process died, or a sync failed, after which the system may go
        // on to show what was not stored, and report a later sync as done. No sector changes.
        file.store(0, &content, Purpose::Manifest)?;
        // What a torn append left must not look like the end of a record to come.
        if torn > end {
            let zeros = vec![0; usize::try_from(torn - end).unwrap_or(usize::MAX)];
            file.store(end, &zeros, Purpose::Manifest)?;
        }
        file.sync(Purpose::Manifest)?;
        for listing in medium.list()? {
            if parse_file_name(&listing.name).is_some_and(|other| other != number) {
                medium.remove(&listing.name)?;
            }
        }
        // One that was never finished, or was withdrawn by who then died, must not come back over records
        // to come: it would be in force.
        withdraw(&*medium, highest.saturating_add(1))?;
        let next_table = state.tables_below;
        let inner = Inner { state, number, file, seed, end, limit, sequence, next_table };
        Ok(Self::of(medium, store, inner))
    }

    const fn of(medium: Arc<dyn Medium>, store: StoreId, inner: Inner) -> Self {
        Self { medium, store, inner: Mutex::new(inner), poison: OnceLock::new() }
    }

    /// Appends `edits` as one record; durable on return.
    ///
    /// # Errors
    /// `NoSpace` where a new file was needed and there was no room: nothing happened. Any other
    /// failure poisons the manifest.
    pub fn append(&self, edits: Vec<Edit>) -> Result<()> {
        let mut inner = self.inner.lock();
        self.append_locked(&mut inner, edits)
    }

    /// Remembers that the log begins there, unless that is known: a flush says it with its tables.
    ///
    /// # Errors
    /// As [`Manifest::append`].
    pub fn begin_log(&self, start: &wal::Start) -> Result<()> {
        let mut inner = self.inner.lock();
        let known = &inner.state.log_start;
        let edits: Vec<_> = Edit::log_begins(start)
            .filter(|edit| matches!(edit, Edit::LogBegins { lane, segment } if known.of(*lane) < *segment))
            .collect();
        if edits.is_empty() {
            return Ok(());
        }
        self.append_locked(&mut inner, edits)
    }

    fn append_locked(&self, inner: &mut Inner, edits: Vec<Edit>) -> Result<()> {
        base::unbroken()?;
        self.check()?;
        let mut body = Vec::new();
        let mut state = inner.state.clone();
        for edit in edits {
            edit.encode(&mut body);
            state.apply(edit)?;
        }
        let mut record = Vec::new();
        frame::encode_record(&mut record, inner.seed, inner.sequence, &body);
        if inner.end + record.len() as u64 > inner.limit {
            // The whole state in a new file takes the place of one more edit.
            return self.change_files(inner, state);
        }
        let written = inner
            .file
            .store(inner.end, &record, Purpose::Manifest)
            .and_then(|()| inner.file.sync(Purpose::Manifest));
        if let Err(error) = written {
            return Err(self.poisoned_by(error));
        }
        inner.end += record.len() as u64;
        inner.sequence += 1;
        inner.state = state;
        Ok(())
    }

    /// Goes on in a new manifest, which begins with `state`.
    fn change_files(&self, inner: &mut Inner, state: ManifestState) -> Result<()> {
        let number = inner.number + 1;
        match write_new(&*self.medium, self.store, state, number, inner.next_table) {
            Ok(new) => *inner = new,
            Err(error) => {
                // If it is read at the next open, records appended to this one are not.
                if withdraw(&*self.medium, number).is_err() {
                    return Err(self.poisoned_by(error));
                }
                return Err(error);
            }
        }
        // No older one is read while this one is there; what stays goes at the next open.
        let _ = self.remove_older(number);
        Ok(())
    }

    /// An id no table had before.
    pub fn next_table(&self) -> Result<TableId> {
        self.reserve_tables(1).map(|ids| ids.start)
    }

    /// As many ids that no table had before.
    pub fn reserve_tables(&self, count: u64) -> Result<Range<TableId>> {
        let mut inner = self.inner.lock();
        self.check()?;
        let (first, end) = (inner.next_table, TableId(inner.next_table.0 + count));
        if end > inner.state.tables_below {
            let below = TableId(first.0 + count.next_multiple_of(TABLE_IDS_STEP));
            self.append_locked(&mut inner, vec![Edit::TableIdsReserved { below }])?;
        }
        inner.next_table = end;
        Ok(first..end)
    }

    /// The dictionary that a keyspace's new tables use, and an id that no dictionary had before.
    pub fn dictionary(&self, keyspace: KeyspaceId) -> (Option<DictionaryId>, DictionaryId) {
        let inner = self.inner.lock();
        let entry = inner.state.keyspaces.get(&keyspace);
        let current = entry.and_then(|entry| entry.dictionaries.last().copied());
        (current, DictionaryId(inner.state.last_dictionary.0 + 1))
    }

    /// A copy of the state.
    pub fn state(&self) -> ManifestState {
        self.inner.lock().state.clone()
    }

    /// What is known of the value file `id`, where a table points into it.
    pub fn values(&self, id: TableId) -> Option<(KeyspaceId, ValuesEntry)> {
        let inner = self.inner.lock();
        let keyspaces = &inner.state.keyspaces;
        keyspaces.iter().find_map(|(keyspace, entry)| {
            entry.values.get(&id).map(|values| (*keyspace, values.entry))
        })
    }

    /// Whether nobody needs the value file `id` any more: no table points into it, for certain.
    pub fn has_given_up(&self, id: TableId) -> bool {
        let inner = self.inner.lock();
        self.poison.get().is_none() && !inner.state.has_values(id)
    }

    /// The first failure, if there was one.
    pub fn poisoned(&self) -> Option<Error> {
        self.poison.get().cloned()
    }

    /// Poisons the manifest with `error`, which the caller gets.
    fn poisoned_by(&self, error: Error) -> Error {
        // There is none yet: who finds one appends nothing.
        let _ = self.poison.set(error.clone());
        error
    }

    fn check(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |first| Err(Error::poisoned_by("manifest", first)))
    }

    fn remove_older(&self, number: u64) -> Result<()> {
        for listing in self.medium.list()? {
            if parse_file_name(&listing.name).is_some_and(|other| other < number) {
                self.medium.remove(&listing.name)?;
            }
        }
        // One that comes back is older than this one: it is not read, and goes at the next open.
        let _ = self.medium.sync_names(&[]);
        Ok(())
    }
}

/// A whole manifest, which begins and ends with `state`; its checksums' seed.
pub fn encode(store: StoreId, state: &ManifestState, number: u64) -> Result<(Vec<u8>, u32)> {
    let header = encode_header(store, number);
    let seed = frame::seed(&header);
    let mut bytes = vec![0; HEADERS_BYTES];
    for copy in bytes.chunks_mut(HEADERS_BYTES / 2) {
        for (to, from) in copy.iter_mut().zip(&header) {
            *to = *from;
        }
    }
    let mut body = Vec::new();
    for edit in state.edits() {
        edit.encode(&mut body);
    }
    if body.len() > frame::BODY_BYTES_MAX {
        return Err(Error::invalid("manifest size")
            .expected(format_args!("at most {} bytes", frame::BODY_BYTES_MAX))
            .got(body.len()));
    }
    frame::encode_record(&mut bytes, seed, 0, &body);
    Ok((bytes, seed))
}

fn write_new(
    medium: &dyn Medium,
    store: StoreId,
    state: ManifestState,
    number: u64,
    next_table: TableId,
) -> Result<Inner> {
    let (bytes, seed) = encode(store, &state, number)?;
    let limit = FILE_BYTES_MIN.max(8 * bytes.len() as u64).next_multiple_of(PAGE_BYTES as u64);
    let name = file_name(number);
    let write = || {
        let file = medium.create(&name, Access::Bytes, limit)?;
        file.store(0, &bytes, Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        medium.sync_names(&[&name])?;
        Ok(file)
    };
    let file: Arc<dyn File> = write()?;
    let end = bytes.len() as u64;
    Ok(Inner { state, number, file, seed, end, limit, sequence: 1, next_table })
}

/// Sees to it, durably, that there is no manifest `number`.
///
/// Where it was removed before, that may have been lost by a sync that failed, which a later one does not
/// make good; and a removal may wait for who copies the store's files. So it is made once more, empty, which
/// is never in force, whether its removal waits, too, or not. Where the device has no space even for a
/// name, what was removed is trusted.
fn withdraw(medium: &dyn Medium, number: u64) -> Result<()> {
    let name = file_name(number);
    if medium.list()?.iter().any(|listing| listing.name == name) {
        medium.remove(&name)?;
    }
    match medium.create(&name, Access::Bytes, 0) {
        Ok(_) => medium.remove(&name)?,
        Err(error) if error.kind() == ErrorKind::NoSpace => {}
        Err(error) => return Err(error),
    }
    medium.sync_names(&[])
}

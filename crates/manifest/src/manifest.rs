//! The open manifest: appends one record per change, and starts a new file when the edits outgrow the old
//! one.
//!
//! Threads: any. One lock is held over the write and the sync of a record, so that changes become durable in
//! the order in which they take effect. Cost: an append copies the state (pointers to shared keyspaces and
//! tables), and waits for one write and one sync.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{DictionaryId, Error, ErrorKind, KeyspaceId, Result, StoreId, TableId};
use media::{Access, File, Medium, Purpose};
use parking_lot::Mutex;

use crate::header::{HEADERS_BYTES, VERSION_FIRST, VERSION_OPENED, encode_header};
use crate::name::{file_name, parse_file_name};
use crate::reader::{self, Recovered};
use crate::{Edit, ManifestState, ValuesEntry, frame};

/// Least space reserved for a manifest file, bytes. A file gets this or eight times its first record; when
/// the space is used up, a new file begins.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Table ids reserved by one record: a thousand tables cost one record.
const TABLE_IDS_STEP: u64 = 1024;

/// The open manifest, to which edits are appended.
#[derive(Debug)]
pub struct Manifest {
    medium: Arc<dyn Medium>,
    store: StoreId,
    inner: Mutex<Inner>,
    /// The first failure. Set with `inner` held; read without the lock, so that reading it waits for no
    /// device.
    poison: OnceLock<Error>,
}

#[derive(Debug)]
struct Inner {
    state: ManifestState,
    /// The number in the file's name.
    number: u64,
    file: Arc<dyn File>,
    /// The format version of the file.
    version: u32,
    /// The seed of the file's checksums.
    seed: u32,
    /// File offset of the next record, bytes.
    end: u64,
    /// Reserved length of the file, bytes.
    limit: u64,
    /// The number of the next record in the file.
    sequence: u64,
    /// The next table id to hand out; at most the state's `tables_below`.
    next_table: TableId,
}

impl Manifest {
    /// Writes manifest `number`, which begins with `state`, and removes the older ones. `number` must be
    /// higher than that of every manifest on the medium.
    ///
    /// # Errors
    /// The device's, `NoSpace` among them; the older manifest is then still in force.
    pub fn start(
        medium: Arc<dyn Medium>,
        store: StoreId,
        state: ManifestState,
        number: u64,
    ) -> Result<Self> {
        let next_table = state.tables_below;
        let inner = write_new(&*medium, store, state, number, next_table).inspect_err(|_| {
            // Both manifests hold the same state, so the next open may read either one.
            let _ = withdraw(&*medium, number);
        })?;
        let manifest = Self::of(medium, store, inner);
        manifest.remove_older(number)?;
        Ok(manifest)
    }

    /// Continues in the manifest that was read, and removes all others. Used when there is no space for a new
    /// manifest: this needs no new space until the reserved space is used up.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the file changed since it was read.
    pub fn resume(medium: Arc<dyn Medium>, found: Recovered) -> Result<Self> {
        let Recovered { store, state, in_force, number: highest, .. } = found;
        let content = reader::content(&*medium, &in_force)?;
        let reader::InForce { number, version, seed, sequence, end, torn, limit } = in_force;
        let name = file_name(number);
        let file = medium.open(&name, Access::Bytes)?;
        // The content may be in the operating system's cache only: the process died before a sync, or a sync
        // failed, after which the system may still return the data and report a later sync as successful. So
        // it is written again. No sector changes.
        file.store(0, &content, Purpose::Manifest)?;
        // The remains of a torn append must not look like the end of a later record.
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
        // The next number may belong to a manifest that was never finished, or that was withdrawn by a
        // process that then died. If it reappeared after records are appended here, it would be in force.
        withdraw(&*medium, highest.saturating_add(1))?;
        let next_table = state.tables_below;
        let inner = Inner { state, number, file, version, seed, end, limit, sequence, next_table };
        Ok(Self::of(medium, store, inner))
    }

    const fn of(medium: Arc<dyn Medium>, store: StoreId, inner: Inner) -> Self {
        Self { medium, store, inner: Mutex::new(inner), poison: OnceLock::new() }
    }

    /// Appends `edits` as one record, which is durable on return. The edits take effect together.
    ///
    /// # Errors
    /// `Corrupt` if an edit contradicts the state; nothing changed. `NoSpace` if a new file was needed and
    /// there was no space; nothing changed. Any other failure poisons the manifest.
    pub fn append(&self, edits: Vec<Edit>) -> Result<()> {
        let mut inner = self.inner.lock();
        self.append_locked(&mut inner, edits)
    }

    /// Records the first needed segment of each lane, unless the state already has it (a flush records it in
    /// the same record as its tables).
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

    /// Records how far the log is durable, if the state does not say it yet: with `exactly`, if it says less;
    /// else only if it names an earlier segment. A flush records the same in its own record.
    ///
    /// # Errors
    /// As [`Manifest::append`].
    pub fn reach_log(&self, reached: wal::Reached, exactly: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        let known = inner.state.log_reached;
        let is_known = known.is_some_and(|known| {
            known.sequence >= reached.sequence || !exactly && known.segment >= reached.segment
        });
        if is_known {
            return Ok(());
        }
        self.append_locked(&mut inner, vec![Edit::LogReached { reached }])?;
        base::invariant!(
            inner.state.log_reaches(&reached),
            "the manifest states the end of the log that was recorded"
        );
        Ok(())
    }

    fn append_locked(&self, inner: &mut Inner, edits: Vec<Edit>) -> Result<()> {
        base::unbroken()?;
        self.check()?;
        let mut body = Vec::new();
        let mut state = inner.state.clone();
        let mut version = inner.version;
        for edit in edits {
            version = version.max(edit.format_version());
            edit.encode(&mut body);
            state.apply(edit)?;
        }
        debug_assert!(
            replays(&inner.state, &body, &state),
            "the edits of a record, read back, lead to the same state"
        );
        state.check_successor_of(&inner.state)?;
        frame::check_body(&body)?;
        base::invariant!(inner.sequence > 0, "the first record of a manifest is its state");
        base::invariant!(inner.end <= inner.limit, "records end within the reserved space");
        let mut record = Vec::new();
        frame::encode_record(&mut record, inner.seed, inner.sequence, &body);
        if inner.end + record.len() as u64 > inner.limit || version > inner.version {
            // A new file that begins with the whole state, in a version that has all of its edits, replaces
            // this record.
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

    /// Continues in a new manifest, which begins with `state`.
    fn change_files(&self, inner: &mut Inner, state: ManifestState) -> Result<()> {
        let number = inner.number + 1;
        match write_new(&*self.medium, self.store, state, number, inner.next_table) {
            Ok(new) => *inner = new,
            Err(error) => {
                // If the new file is read at the next open, records appended to the old one are lost.
                if withdraw(&*self.medium, number).is_err() {
                    return Err(self.poisoned_by(error));
                }
                return Err(error);
            }
        }
        // The older manifest is not read while the newer one exists; the next open removes it if this fails.
        let _ = self.remove_older(number);
        Ok(())
    }

    /// Returns an id that no table had before.
    ///
    /// # Errors
    /// As [`Manifest::append`].
    pub fn next_table(&self) -> Result<TableId> {
        self.reserve_tables(1).map(|ids| ids.start)
    }

    /// Returns `count` consecutive ids that no table had before.
    ///
    /// # Errors
    /// As [`Manifest::append`].
    pub fn reserve_tables(&self, count: u64) -> Result<Range<TableId>> {
        let mut inner = self.inner.lock();
        self.check()?;
        let (first, end) = (inner.next_table, TableId(inner.next_table.0 + count));
        base::invariant!(first < end, "a reservation has a table id");
        if end > inner.state.tables_below {
            let below = TableId(first.0 + count.next_multiple_of(TABLE_IDS_STEP));
            self.append_locked(&mut inner, vec![Edit::TableIdsReserved { below }])?;
        }
        base::invariant!(
            end <= inner.state.tables_below,
            "table ids are reserved durably before they are used"
        );
        inner.next_table = end;
        Ok(first..end)
    }

    /// Returns the dictionary that new tables of `keyspace` use, and an id that no dictionary had before.
    pub fn dictionary(&self, keyspace: KeyspaceId) -> (Option<DictionaryId>, DictionaryId) {
        let inner = self.inner.lock();
        let entry = inner.state.keyspaces.get(&keyspace);
        let current = entry.and_then(|entry| entry.dictionaries.last().copied());
        (current, DictionaryId(inner.state.last_dictionary.0 + 1))
    }

    /// The id of the next table: no file has it or a greater one.
    pub fn upcoming_table(&self) -> TableId {
        self.inner.lock().next_table
    }

    /// The number of the manifest's file. It grows while the store is open and with each open.
    pub fn number(&self) -> u64 {
        self.inner.lock().number
    }

    /// Returns a copy of the state; it shares keyspaces and tables.
    pub fn state(&self) -> ManifestState {
        self.inner.lock().state.clone()
    }

    /// Returns the keyspace and entry of the value file `id`, if a table points into it.
    pub fn values(&self, id: TableId) -> Option<(KeyspaceId, ValuesEntry)> {
        let inner = self.inner.lock();
        let keyspaces = &inner.state.keyspaces;
        keyspaces.iter().find_map(|(keyspace, entry)| {
            entry.values.get(&id).map(|values| (*keyspace, values.entry))
        })
    }

    /// Whether the table `id` is cold.
    pub fn is_cold(&self, id: TableId) -> bool {
        self.inner.lock().state.is_cold(id)
    }

    /// Whether the value file `id` is certainly obsolete: no table points into it. False if the manifest is
    /// poisoned, because the next open may then read an older state.
    pub fn is_value_file_obsolete(&self, id: TableId) -> bool {
        let inner = self.inner.lock();
        self.poison.get().is_none() && !inner.state.has_values(id)
    }

    /// The first failure, if there was one.
    pub fn poisoned(&self) -> Option<Error> {
        self.poison.get().cloned()
    }

    /// Poisons the manifest with `error`, and returns it.
    fn poisoned_by(&self, error: Error) -> Error {
        let set = self.poison.set(error.clone());
        base::invariant!(set.is_ok(), "a poisoned manifest is not appended to");
        error
    }

    fn check(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |first| Err(Error::poisoned_by("manifest", first)))
    }

    fn remove_older(&self, number: u64) -> Result<()> {
        let listed = self.medium.list()?;
        base::invariant!(
            listed.iter().any(|listing| parse_file_name(&listing.name) == Some(number)),
            "older manifests are removed once the newer one has a name"
        );
        for listing in listed {
            if parse_file_name(&listing.name).is_some_and(|other| other < number) {
                self.medium.remove(&listing.name)?;
            }
        }
        // If a removal is lost in a power cut, the file has a lower number: it is not read, and the next open
        // removes it.
        let _ = self.medium.sync_names(&[]);
        Ok(())
    }
}

/// Encodes a manifest file with one record, which holds `state`. Returns its bytes and the seed of its
/// checksums.
///
/// # Errors
/// `Invalid` if the state is longer than a record may be.
pub fn encode(store: StoreId, state: &ManifestState, number: u64) -> Result<(Vec<u8>, u32)> {
    encode_as(VERSION_FIRST, store, state, number).map(|(bytes, seed, _)| (bytes, seed))
}

/// As [`encode`], in the format version `least` or a later one. Returns the version too.
fn encode_as(
    least: u32,
    store: StoreId,
    state: &ManifestState,
    number: u64,
) -> Result<(Vec<u8>, u32, u32)> {
    let edits = state.edits();
    let version = format_version(&edits).max(least);
    let header = encode_header(version, store, number);
    let seed = frame::seed(&header);
    let mut bytes = vec![0; HEADERS_BYTES];
    for copy in bytes.chunks_mut(HEADERS_BYTES / 2) {
        for (to, from) in copy.iter_mut().zip(&header) {
            *to = *from;
        }
    }
    let mut body = Vec::new();
    for edit in &edits {
        edit.encode(&mut body);
    }
    frame::check_body(&body)?;
    frame::encode_record(&mut bytes, seed, 0, &body);
    Ok((bytes, seed, version))
}

/// Whether the edits in `body` lead from the state `before` to `after`.
fn replays(before: &ManifestState, body: &[u8], after: &ManifestState) -> bool {
    let mut state = before.clone();
    let edits = Edit::decode_all(body).unwrap_or_default();
    edits.into_iter().all(|edit| state.apply(edit).is_ok()) && state == *after
}

/// The body of the only record of a new manifest file.
fn record_body(bytes: &[u8], seed: u32) -> &[u8] {
    let records = frame::decode_records(bytes, seed, HEADERS_BYTES);
    records.ok().and_then(|records| records.bodies.first().copied()).unwrap_or_default()
}

/// The least format version that has all of `edits`.
fn format_version(edits: &[Edit]) -> u32 {
    edits.iter().map(Edit::format_version).max().unwrap_or(VERSION_FIRST)
}

fn write_new(
    medium: &dyn Medium,
    store: StoreId,
    state: ManifestState,
    number: u64,
    next_table: TableId,
) -> Result<Inner> {
    let (bytes, seed, version) = encode_as(VERSION_OPENED, store, &state, number)?;
    debug_assert!(
        replays(&ManifestState::default(), record_body(&bytes, seed), &state),
        "the edits of a state build the same state"
    );
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
    Ok(Inner { state, number, file, version, seed, end, limit, sequence: 1, next_table })
}

/// Makes it durable that manifest `number` does not exist.
///
/// If the file was removed before, that removal may have been lost by a failed sync, which a later sync does
/// not repair. A removal may also be deferred while the store's files are copied. So the file is created once
/// more, empty, and removed: an empty manifest is never in force, even if its removal is deferred too. If the
/// device has no space even for a name, the earlier removal is trusted.
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

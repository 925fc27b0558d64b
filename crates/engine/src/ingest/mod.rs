//! Bulk ingest: sorted data becomes tables without passing through the log and the memtables.
//!
//! [`Ingest`] writes tables as its caller adds keys. No manifest names them until it is finished; an ingest
//! that is dropped removes them, and one that crashed leaves orphans, which the next open removes. Finishing
//! gives all entries one seqno and makes them visible together ([`mod@commit`]). Every byte is written
//! once.
//!
//! Memory: one table writer and one value file writer, whatever the size, and the pinned metadata of the open
//! tables. Charged (I10).

mod built;
mod commit;

use std::fmt;
use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, VALUE_APART_BYTES};
use base::{
    Account, Codec, EntryKind, Error, Key, Result, Seqno, Trailer, Write, expiry, invariant,
};
use compact::{RetainedVersion, ValueSeparator};
use media::Purpose;
use table::{Dictionaries, FILTER_BITS_DEFAULT, Layout, Leave, Spec, Table, ValuesSpec, Writer};
use tree::Tree;

use crate::EntryOptions;
use crate::entry_options::entry_put;
use crate::resources::Components as _;
use crate::store::Store;
use built::Built;
use commit::commit;

/// Adds sorted keys to a keyspace, atomically and faster than writes can.
///
/// Keys are added in ascending order. [`Ingest::finish`] makes them visible together, as if they were all
/// written at that time: newer than every write before, older than every write after. Until then no reader
/// sees them, and dropping the ingest removes them. After a crash all of them are there or none.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// let numbers = db.create_keyspace("numbers")?;
/// let mut ingest = numbers.ingest()?;
/// for number in 0..1000u32 {
///     ingest.put(number.to_be_bytes(), number.to_string())?;
/// }
/// let ingested = ingest.finish()?;
/// assert_eq!(ingested.entries, 1000);
/// assert_eq!(numbers.get(7u32.to_be_bytes())?.as_deref(), Some(&b"7"[..]));
/// # Ok(()) }
/// ```
pub struct Ingest {
    store: Arc<Store>,
    tree: Arc<Tree>,
    account: Account,
    tables: Built,
    writer: Option<Writer>,
    /// Moves long values to a value file, so that no merge meets one in a table. Made for the first key.
    separator: Option<ValueSeparator>,
    last_key: Vec<u8>,
    /// Buffer for an expiring value as stored.
    stored: Vec<u8>,
    entries: u64,
    user_bytes: u64,
    /// Bytes of keys and values that the caller was not delayed for yet.
    undelayed_bytes: usize,
    /// Length at which a table is finished, bytes.
    table_bytes: u64,
    /// The first error of a write. The ingest cannot go on: added keys may be lost.
    failed: Option<Error>,
}

/// The size of a finished ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// Keys added.
    pub entries: u64,
    /// Tables written.
    pub tables: usize,
    /// Length of all tables and of the file of their long values, bytes.
    pub file_bytes: u64,
}

/// Capacity of the value buffer that is kept between keys, bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// The caller is delayed once for this many bytes.
const DELAYED_BYTES: usize = 64 << 10;

/// Approximate length of a table, bytes: that of merge outputs.
const TABLE_BYTES: u64 = 64 << 20;

/// How often an ingest makes way for writers to its range before it makes them wait.
const ROUNDS_MAX: usize = 4;

impl Store {
    /// An empty ingest into `tree`.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped.
    pub fn ingest(self: &Arc<Self>, tree: &Arc<Tree>) -> Result<Ingest> {
        tree.usable()?;
        self.buffers.check_open()?;
        Ok(Ingest {
            account: self.resources.account("ingest"),
            tables: Built::new(Arc::clone(&self.medium)),
            store: Arc::clone(self),
            tree: Arc::clone(tree),
            writer: None,
            separator: None,
            stored: Vec::new(),
            last_key: Vec::with_capacity(KEY_BYTES_MAX.min(256)),
            entries: 0,
            user_bytes: 0,
            undelayed_bytes: 0,
            table_bytes: TABLE_BYTES,
            failed: None,
        })
    }
}

impl Ingest {
    /// How often an ingest makes way for writers to its range before it makes them wait.
    #[cfg(feature = "testing")]
    pub const ROUNDS_MAX: usize = ROUNDS_MAX;

    /// Sets the approximate length of tables, for tests.
    #[cfg(feature = "testing")]
    pub fn set_table_bytes(&mut self, bytes: u64) {
        self.table_bytes = bytes;
    }

    /// Adds `key` with `value`. Each key must be greater than the one before.
    ///
    /// # Errors
    /// `Invalid` if the key is not greater than the last one, or key or value is too long; the ingest can go
    /// on without it. `NoSpace` if the device is full, `Retry` if memory is short, `Closed` if the keyspace
    /// was dropped; every later call fails then.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_opt(key, value, &EntryOptions::new())
    }

    /// As [`Ingest::put`], with options. A ttl counts from this call.
    ///
    /// # Errors
    /// As [`Ingest::put`]; the limit of a value that expires is 8 bytes lower.
    pub fn put_opt(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &EntryOptions,
    ) -> Result<()> {
        let key = Key::new(key.as_ref())?;
        let write = entry_put(options, &self.tree, value.as_ref());
        self.store.check_write(&self.tree, write)?;
        let Write::PutExpiring { expiry: unix_ms, value: expiring } = write else {
            return self.add_entry(key.bytes(), EntryKind::Put, value.as_ref());
        };
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        expiry::put(&mut stored, unix_ms, expiring);
        let added = self.add_entry(key.bytes(), EntryKind::PutExpiring, &stored);
        stored.shrink_to(SCRATCH_BYTES_MAX);
        self.stored = stored;
        added
    }

    fn add_entry(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(Error::invalid("order of keys to ingest")
                .expected(format_args!("a key after `{}`", self.last_key.escape_ascii()))
                .got(format_args!("`{}`", key.escape_ascii())));
        }
        self.usable()?;
        self.write(key, kind, value).inspect_err(|error| self.failed = Some(error.clone()))?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        self.delay(key.len() + value.len());
        Ok(())
    }

    /// Writes an entry to the open table, and finishes the table if it is long enough.
    fn write(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let (store, tree, account) = (&self.store, &self.tree, &self.account);
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(create_table(store, tree, account)?),
        };
        let separator = match &mut self.separator {
            Some(separator) => separator,
            none => none.insert(create_separator(store, tree, account)?),
        };
        let trailer = Trailer::new(Seqno::ZERO, kind);
        let placed = separator.separate(key, trailer, value)?;
        RetainedVersion { key, trailer, value, superseded_by: None }.add_to(writer, placed)?;
        if writer.file_bytes() >= self.table_bytes {
            self.finish_table()?;
        }
        Ok(())
    }

    /// Fails after a failed write, which may have lost added keys.
    fn usable(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::poisoned_by("ingest", first)),
            None => Ok(()),
        }
    }

    /// Delays the caller as a writer if merges are behind: ingested bytes add as much to the compaction
    /// debt.
    fn delay(&mut self, bytes: usize) {
        self.undelayed_bytes += bytes;
        if self.undelayed_bytes >= DELAYED_BYTES {
            let store = &self.store;
            let bytes = std::mem::take(&mut self.undelayed_bytes);
            store.pace.delay_write(bytes, store.resources.executor());
        }
    }

    /// Finishes and opens the table that is being written, if there is one.
    fn finish_table(&mut self) -> Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let store = &self.store;
        // A repair without a manifest orders the table by this seqno.
        writer.written_after(store.ring.visible());
        let summary = writer.finish()?;
        let id = summary.table;
        let bytes = summary.file_bytes;
        self.tables.add(summary);
        let dictionaries = Arc::clone(&store.dictionaries) as Arc<dyn Dictionaries>;
        let account = store.resources.account("tables");
        let medium = &*store.medium;
        let table = Table::open(medium, store.id, id, Some(bytes), None, dictionaries, &account)?;
        self.tables.opened(table.whole()?);
        Ok(())
    }

    /// The number of keys added so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// True if no key was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Makes all keys visible and durable. Memtables that hold keys of their range are flushed first. Other
    /// threads may write to the range meanwhile; each such write is newer or older than the ingest, and none
    /// is lost.
    ///
    /// # Errors
    /// `NoSpace` if the device is full, `Retry` if memory is short, `Closed` if the keyspace was dropped.
    /// `Corrupt` if the device fails, or if a sync of the directory failed since the ingest began, which may
    /// have lost its files: ingest again. `Poisoned` after an earlier call failed, and after a failed write
    /// of the log or the manifest. Nothing was added then, except that after `Poisoned` by the log or the
    /// manifest all keys may be there at the next open.
    pub fn finish(self) -> Result<Ingested> {
        self.finish_within(ROUNDS_MAX)
    }

    /// As [`Ingest::finish`], but makes way for other writers at most `rounds` times, for tests.
    #[cfg(feature = "testing")]
    pub fn finish_after(self, rounds: usize) -> Result<Ingested> {
        self.finish_within(rounds)
    }

    fn finish_within(mut self, rounds: usize) -> Result<Ingested> {
        self.usable()?;
        self.store.buffers.check_open()?;
        self.finish_table()?;
        if self.is_empty() {
            return Ok(Ingested::default());
        }
        invariant!(self.tables.len() > 0, "an ingest with a key has a table");
        let values = self.separator.take().map(|mut it| it.finish()).transpose()?.flatten();
        self.tables.set_values(values);
        let store = &self.store;
        let (tables, file_bytes) = (self.tables.len(), self.tables.file_bytes());
        self.tables.sync_names()?;
        commit(store, &self.tree, &mut self.tables, rounds)?;
        store.committer.user_bytes.add(self.user_bytes);
        store.committer.ops.add(self.entries);
        Ok(Ingested { entries: self.entries, tables, file_bytes })
    }
}

/// Moves long values to a new value file, which is created with the first of them.
fn create_separator(store: &Store, tree: &Tree, account: &Account) -> Result<ValueSeparator> {
    let options = tree.options(&*store.settings);
    let spec = ValuesSpec {
        store: store.id,
        file: store.manifest.next_table()?,
        keyspace: tree.id(),
        codec: options.codec,
        level: options.level,
        purpose: Purpose::Ingest,
        leave: Leave::ForDeletes,
    };
    let least = VALUE_APART_BYTES as u64;
    Ok(ValueSeparator::new(&store.medium, Some(spec), least, Vec::new(), account))
}

/// Creates the next table.
fn create_table(store: &Store, tree: &Tree, account: &Account) -> Result<Writer> {
    tree.usable()?;
    let id = tree.id();
    // First, because a poisoned manifest refuses it.
    let table = store.manifest.next_table()?;
    let options = tree.options(&*store.settings);
    let dictionary = match options.codec {
        Codec::Zstd => store.manifest.dictionary(id).0,
        _ => None,
    };
    let spec = Spec {
        store: store.id,
        table,
        keyspace: id,
        codec: options.codec,
        level: options.level,
        dictionary: dictionary.map(|id| store.dictionaries.get(id)).transpose()?,
        filter_bits: tree.table_options().filter_bits.unwrap_or(FILTER_BITS_DEFAULT),
        layout: Layout::Sorted,
        purpose: Purpose::Ingest,
        leave: Leave::ForDeletes,
    };
    Writer::create(&store.medium, spec, account)
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ingest({} keys into `{}`)", self.entries, self.tree.name())
    }
}

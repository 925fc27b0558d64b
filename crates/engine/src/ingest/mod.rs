//! Bulk ingest: sorted data becomes tables without passing through the log and the memtables.
//!
//! [`Ingest`] writes tables as its caller adds keys; nobody knows of them until it is finished, and
//! what is left of one that never was is removed, by its drop or by the next opening. Finishing
//! gives all of it one sequence number and makes it visible at once ([`mod@commit`]). Every byte is
//! written once.
//!
//! Memory: one table writer's, whatever the size, and what open tables pin. Charged (I10).

mod commit;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::limits::KEY_BYTES_MAX;
use base::{Account, Codec, EntryKind, Error, Key, Result, Seqno, Trailer, expiry};
use commit::{Built, commit};
use media::Purpose;
use table::{Dictionaries, FILTER_BITS_DEFAULT, Spec, Table, Writer};

use crate::expiry::unix_millis;
use crate::store::Store;
use base::Write;
use tree::Tree;

/// Adds sorted keys to a keyspace, all at once and faster than writes can.
///
/// Keys are added in ascending order; [`Ingest::finish`] makes them visible together, as if written
/// at that moment: over what was there before, under what is written after. Until then nobody sees
/// anything of it; dropped, it leaves nothing. A crash leaves all of it or nothing.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// let numbers = db.keyspace("numbers")?;
/// let mut ingest = numbers.ingest()?;
/// for number in 0..1000u32 {
///     ingest.add(number.to_be_bytes(), number.to_string())?;
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
    last_key: Vec<u8>,
    /// Where the next expiring value is put together.
    stored: Vec<u8>,
    entries: u64,
    user_bytes: u64,
    /// Bytes of keys and values that no time was paid for yet.
    unpaid_bytes: usize,
    table_bytes: u64,
    /// Why it is of no more use: keys that were added may be lost.
    failed: Option<Error>,
}

/// What an ingest added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// Keys.
    pub entries: u64,
    /// Tables, and their length, bytes.
    pub tables: usize,
    /// See `tables`.
    pub file_bytes: u64,
}

/// Scratch memory kept between keys, bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// So many bytes are paid for at once.
const PAID_BYTES: usize = 64 << 10;

/// About how long a table is, bytes: as long as merges make them.
const TABLE_BYTES: u64 = 64 << 20;

impl Ingest {
    /// How often an ingest makes way for others who write to its range before it has them wait.
    #[doc(hidden)]
    pub const ROUNDS_MAX: usize = 4;

    pub fn new(store: &Arc<Store>, tree: &Arc<Tree>) -> Result<Self> {
        tree.usable()?;
        Ok(Self {
            account: store.resources.account("ingest"),
            tables: Built::new(Arc::clone(&store.medium)),
            store: Arc::clone(store),
            tree: Arc::clone(tree),
            writer: None,
            stored: Vec::new(),
            last_key: Vec::with_capacity(KEY_BYTES_MAX.min(256)),
            entries: 0,
            user_bytes: 0,
            unpaid_bytes: 0,
            table_bytes: TABLE_BYTES,
            failed: None,
        })
    }

    /// Ends tables at about `bytes`, for tests.
    #[doc(hidden)]
    pub fn set_table_bytes(&mut self, bytes: u64) {
        self.table_bytes = bytes;
    }

    /// Adds `key` with `value`. Keys ascend: each is greater than the one before.
    ///
    /// # Errors
    /// `Invalid` where the key is not greater than the last, or key or value is too long: the
    /// ingest goes on without it. `NoSpace` where the device is full, `Retry` where memory is
    /// short, `Closed` where the keyspace was dropped: the ingest is then of no more use, and every later
    /// call fails.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (Key::new(key.as_ref())?, value.as_ref());
        self.store.check_write(&self.tree, Write::Put(value))?;
        self.add_entry(key.bytes(), EntryKind::Put, value)
    }

    /// As [`Ingest::add`], with a value that is gone `ttl` from now.
    ///
    /// # Errors
    /// As [`Ingest::add`].
    pub fn add_with_ttl(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let moment = self.tree.view().read_context.timekeeper().expiry_after(ttl);
        self.add_expiring(key.as_ref(), value.as_ref(), moment)
    }

    /// As [`Ingest::add`], with a value that is gone from `expiry` on.
    ///
    /// # Errors
    /// As [`Ingest::add`].
    pub fn add_expiring_at(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: SystemTime,
    ) -> Result<()> {
        self.add_expiring(key.as_ref(), value.as_ref(), unix_millis(expiry))
    }

    fn add_expiring(&mut self, key: &[u8], value: &[u8], moment: u64) -> Result<()> {
        let key = Key::new(key)?;
        self.store.check_write(&self.tree, Write::PutExpiring { expiry: moment, value })?;
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        expiry::put(&mut stored, moment, value);
        let added = self.add_entry(key.bytes(), EntryKind::PutExpiring, &stored);
        stored.shrink_to(SCRATCH_BYTES_MAX);
        self.stored = stored;
        added
    }

    fn add_entry(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        if self.entries > 0 && key <= self.last_key.as_slice() {
            return Err(Error::invalid("order of keys to ingest")
                .expected(format_args!("one after `{}`", self.last_key.escape_ascii()))
                .got(format_args!("`{}`", key.escape_ascii())));
        }
        self.usable()?;
        self.write(key, kind, value).inspect_err(|error| self.failed = Some(error.clone()))?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        self.pay(key.len() + value.len());
        Ok(())
    }

    fn write(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(create(&self.store, &self.tree, &self.account)?),
        };
        writer.add(key, Trailer::new(Seqno::ZERO, kind), value)?;
        if writer.file_bytes() >= self.table_bytes {
            self.end_table()?;
        }
        Ok(())
    }

    /// # Errors
    /// The first failure: what was added before may be gone with it.
    fn usable(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::poisoned_by("ingest", first)),
            None => Ok(()),
        }
    }

    /// Pays with time, as writers do, where merges are behind: what is ingested over other keys gives
    /// them as much to do.
    fn pay(&mut self, bytes: usize) {
        self.unpaid_bytes += bytes;
        if self.unpaid_bytes >= PAID_BYTES {
            let store = &self.store;
            store.pace.pay(std::mem::take(&mut self.unpaid_bytes), store.resources.executor());
        }
    }

    fn end_table(&mut self) -> Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let store = &self.store;
        // All that a repair without a manifest can know of where the table belongs.
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

    /// Keys added so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// True where nothing was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Makes all of it visible and durable. Memtables that hold keys of its range are flushed
    /// first; others may write to the range meanwhile, and are then newer or older, never lost.
    ///
    /// # Errors
    /// `NoSpace` where the device is full, `Retry` where memory is short, `Poisoned` after a failed
    /// write of the log or the manifest, `Closed` where the keyspace was dropped, `Corrupt` where the
    /// device fails, or a sync of the directory failed since this was begun, which may have lost its
    /// files: ingest anew. `Poisoned`, too, where an earlier call failed. Nothing was added then, except that
    /// after a `Poisoned` of the log or the manifest all of it may be there at the next opening.
    pub fn finish(self) -> Result<Ingested> {
        self.finish_after(Self::ROUNDS_MAX)
    }

    /// As [`Ingest::finish`], after making way for other writers at most `rounds` times, for tests.
    #[doc(hidden)]
    pub fn finish_after(mut self, rounds: usize) -> Result<Ingested> {
        self.usable()?;
        self.end_table()?;
        if self.is_empty() {
            return Ok(Ingested::default());
        }
        let store = &self.store;
        let (tables, file_bytes) = (self.tables.len(), self.tables.file_bytes());
        self.tables.sync_names()?;
        commit(store, &self.tree, &mut self.tables, rounds)?;
        store.committer.user_bytes.add(self.user_bytes);
        store.committer.ops.add(self.entries);
        Ok(Ingested { entries: self.entries, tables, file_bytes })
    }
}

/// A writer of the next table.
fn create(store: &Store, tree: &Tree, account: &Account) -> Result<Writer> {
    tree.usable()?;
    let id = tree.id();
    // First: a manifest that failed gives none, and nothing else is tried then.
    let table = store.manifest.next_table()?;
    let settings = store.settings.load();
    let dictionary = match settings.codec {
        Codec::Zstd => store.manifest.dictionary(id).0,
        _ => None,
    };
    let spec = Spec {
        store: store.id,
        table,
        keyspace: id,
        codec: settings.codec,
        level: settings.zstd_level,
        dictionary: dictionary.map(|id| store.dictionaries.get(id)).transpose()?,
        filter_bits: FILTER_BITS_DEFAULT,
        purpose: Purpose::Ingest,
    };
    Writer::create(&store.medium, spec, account)
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ingest({} keys into `{}`)", self.entries, self.tree.name())
    }
}

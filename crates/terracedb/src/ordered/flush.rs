//! A flush: one sealed memtable becomes one table.
//!
//! The table is written and synced, then one manifest record names it and raises the keyspace's
//! flushed sequence number (I3), then readers see it in the memtable's place, then the log may
//! free what it held (I7). Versions nobody can read any more are left out. A job takes bounded
//! steps; a failed one leaves no trace but a used table id, and the memtable stays.

use std::sync::Arc;

use arena::PublishRing;
use base::{Account, Codec, Result, Seqno, StoreId, Trailer};
use cache::PageCache;
use compact::Horizon;
use media::{Medium, Purpose};
use table::{Accounts, Dictionaries, Dictionary, FILTER_BITS_DEFAULT, Spec, Table, Writer};

use super::training::{Samples, is_worth_adopting, is_worth_training};
use super::{Memtable, Tree};
use crate::dictionaries::StoreDictionaries;
use crate::manifest::{Edit, Manifest, TableEntry};
use crate::snapshot_list::SnapshotList;

/// What a flush works with.
pub(crate) struct FlushEnv {
    pub(crate) store: StoreId,
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) cache: Arc<PageCache>,
    /// Tells this store's pages from others' in the cache.
    pub(crate) space: u32,
    pub(crate) dictionaries: Arc<StoreDictionaries>,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) ring: Arc<PublishRing>,
    /// Makes the log durable up to a sequence number. A table must not outlive the log records
    /// before it: a batch over several keyspaces would come back in part.
    pub(crate) make_durable: Box<dyn Fn(Seqno) -> Result<()> + Send + Sync>,
    /// Charged for tables' pinned metadata, and for long values in flight.
    pub(crate) accounts: Accounts,
    /// Charged for the writer's buffers.
    pub(crate) writer_account: Account,
    pub(crate) codec: Codec,
    pub(crate) zstd_level: i32,
}

/// A flush in progress.
pub(crate) struct FlushJob {
    tree: Arc<Tree>,
    memtable: Arc<Memtable>,
    /// Every write to the keyspace below this is in the memtable or in tables.
    below: Seqno,
    horizon: Horizon,
    cursor: arena::Cursor,
    writer: Option<Writer>,
    /// The key looked at last, and its version looked at last.
    last_key: Vec<u8>,
    last: Option<Seqno>,
}

/// What a finished flush did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    pub(crate) below: Seqno,
    pub(crate) file_bytes: u64,
}

/// Entries in one step: about a millisecond of work.
const STEP_ENTRIES: usize = 2048;

impl FlushJob {
    pub(crate) fn new(
        env: &FlushEnv,
        tree: Arc<Tree>,
        memtable: Arc<Memtable>,
        below: Seqno,
    ) -> Self {
        let mut cursor = memtable.map().cursor();
        cursor.seek_first();
        let horizon = env.snapshots.horizon(&env.ring);
        let last_key = Vec::new();
        Self { tree, memtable, below, horizon, cursor, writer: None, last_key, last: None }
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Does one step; the outcome with the last.
    pub(crate) fn step(&mut self, env: &FlushEnv) -> Result<Option<Flushed>> {
        for _ in 0..STEP_ENTRIES {
            if !self.cursor.valid() {
                return self.finish(env).map(Some);
            }
            let trailer = self.cursor.trailer();
            if self.is_needed(trailer) {
                if self.writer.is_none() {
                    self.writer = Some(self.create(env)?);
                }
                if let Some(writer) = &mut self.writer {
                    writer.add(self.cursor.key(), trailer, self.cursor.value())?;
                }
            }
            self.cursor.next();
        }
        Ok(None)
    }

    /// Whether anyone can still read this version.
    fn is_needed(&mut self, trailer: Trailer) -> bool {
        let key = self.cursor.key();
        let newer = self.last.replace(trailer.seqno());
        if let Some(newer) = newer
            && key == self.last_key.as_slice()
        {
            return self.horizon.needs(trailer.seqno(), newer);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        true
    }

    fn create(&self, env: &FlushEnv) -> Result<Writer> {
        // First: a manifest that failed gives none, and nothing else is tried then.
        let table = env.manifest.next_table()?;
        let dictionary = match env.codec {
            // A table without its dictionary is larger and no worse: shortages are no failure.
            Codec::Zstd => self.dictionary(env).unwrap_or(None),
            _ => None,
        };
        let spec = Spec {
            store: env.store,
            table,
            keyspace: self.tree.id(),
            codec: env.codec,
            level: env.zstd_level,
            dictionary,
            filter_bits: FILTER_BITS_DEFAULT,
            purpose: Purpose::Flush,
        };
        Writer::create(&env.medium, spec, &env.writer_account)
    }

    /// The keyspace's dictionary: the one in use, or a new one where that gains clearly more on
    /// this memtable.
    fn dictionary(&self, env: &FlushEnv) -> Result<Option<Arc<Dictionary>>> {
        let keyspace = self.tree.id();
        let (current, next) = env.manifest.dictionary(keyspace);
        let current = current.map(|id| env.dictionaries.get(id)).transpose()?;
        let account = env.dictionaries.account();
        let samples = match Samples::draw(self.memtable.map(), account) {
            Ok(samples) => samples,
            Err(_) => return Ok(current),
        };
        let gain_of = |dictionary| samples.gain(dictionary, env.zstd_level, account);
        let gain = current.as_ref().map(gain_of).transpose()?;
        if !is_worth_training(self.tree.dictionary_gain(), gain) {
            return Ok(current);
        }
        let candidate = match samples.train(account) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(_) => return Ok(current),
        };
        let trial = Arc::new(Dictionary::new(next, &candidate, account)?);
        let new_gain = gain_of(&trial)?;
        if !is_worth_adopting(gain.unwrap_or(0.0), new_gain) {
            // Measured anew when it falls further.
            self.tree.set_dictionary_gain(gain.unwrap_or(0.0));
            return Ok(current);
        }
        drop(trial);
        let adopted = env.dictionaries.add(next, &candidate)?;
        let added = Edit::DictionaryAdded { keyspace, dictionary: next };
        env.manifest.append(vec![added]).inspect_err(|_| {
            // As with a table: a manifest that failed may name it all the same (I3).
            if env.manifest.poisoned().is_none() {
                env.dictionaries.withdraw(next);
            }
        })?;
        self.tree.set_dictionary_gain(new_gain);
        Ok(Some(adopted))
    }

    fn finish(&mut self, env: &FlushEnv) -> Result<Flushed> {
        let keyspace = self.tree.id();
        (env.make_durable)(self.below.before())?;
        let flushed = Edit::Flushed { keyspace, below: self.below };
        let Some(writer) = self.writer.take() else {
            env.manifest.append(vec![flushed])?;
            self.tree.shape().install_flushed(&self.memtable, None);
            return Ok(Flushed { below: self.below, file_bytes: 0 });
        };
        let summary = writer.finish()?;
        let id = summary.table;
        let open = || {
            let (medium, bytes) = (&*env.medium, Some(summary.file_bytes));
            let dictionaries = Arc::clone(&env.dictionaries) as Arc<dyn Dictionaries>;
            Table::open(medium, env.store, id, bytes, None, dictionaries, &env.accounts)
        };
        let opened = env.medium.sync_names().and_then(|()| open());
        // Its place holds until it is installed there.
        let shape = self.tree.shape();
        let mut entry = TableEntry::of(&summary, TableEntry::UNPLACED, 0);
        entry.run = shape.place_newest(&entry.range);
        let entry = Arc::new(entry);
        let added = Edit::TableAdded { keyspace, table: Arc::clone(&entry) };
        let table = opened.and_then(|table| {
            env.manifest.append(vec![added, flushed])?;
            Ok(table)
        });
        let table = table.inspect_err(|_| {
            // A manifest that failed may name it all the same (I3). Otherwise it is an orphan; one
            // that cannot be removed goes at the next open.
            if env.manifest.poisoned().is_none() {
                let _ = env.medium.remove(&table::file_name(id));
            }
        })?;
        shape.install_flushed(&self.memtable, Some(env.table_file(Ok(table), entry)));
        Ok(Flushed { below: self.below, file_bytes: summary.file_bytes })
    }
}

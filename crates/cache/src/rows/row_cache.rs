//! The cache of rows: an index that readers take no lock of, over a log behind one mutex.
//!
//! A row is what a get found in tables, and stands for its key until the key is written. That this
//! holds (rows are never stale):
//!
//! - A reader takes the key's bucket and the owner's floor ([`RowCache::vacancy`]), then a view of the
//!   data, then the sequence number it reads at. Its fill is refused where either changed since, and
//!   the caller fills nothing where memtables of its view have a version of the key, or a range delete
//!   over it, that is newer than its number.
//! - A writer puts a version in a memtable, then forgets the key ([`RowCache::forget`]), then makes
//!   the version visible. A reader that takes the bucket before that is refused; one that takes it
//!   later finds the version: its view is as new as the bucket, so it has the memtable, or the
//!   version was flushed, thus visible, and the reader's number sees it.
//! - A flush renews ([`RowCache::renew`]) what was forgotten, or expected by readers that found it in
//!   memtables ([`RowCache::expect`]): in a table it would be read from the device the next time. It
//!   takes the key's bucket, then a view, then the number of readers, as they do, and renews nothing
//!   where memtables of its view have a newer version of the key or a newer range delete over it,
//!   visible or not, or the floor passed the version's number.
//! - A write to many keys raises its owner's floor ([`RowOwner::raise_floor`]) before it is visible. A
//!   row filled as of a number below the floor is not used any more. A reader's view may lack that write
//!   and its number pass it, where a memtable was sealed between the two; then the floor was raised
//!   after the reader took it, and its fill is refused.
//! - A row that leaves for the tier below is put there, under the lock of its group there, only if its bucket
//!   here is what it was when the row left; and a writer forgets the key here, then there. Either it is there
//!   first, and its change here is seen under that lock, or it finds the row. What is found there is filled
//!   here as what is found in tables.
//! - A row is used at a number that its version's does not pass; whatever is newer and not above that
//!   number has forgotten it before.
//!
//! Concurrency: [`RowCache::get`] takes no lock and allocates nothing but what the caller's buffer
//! needs. Fills and giving back take the log's mutex, under which the cache's own spare account is
//! charged, which asks nobody. Writers change one bucket. Cost: a get touches the bucket and the
//! row.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arena::{Awaited, Bucket, TagBuckets, WORD_BYTES, Words};
use base::{Account, Reclaim, Result, Seqno};
use parking_lot::Mutex;

use super::evicted_rows::EvictedRows;
use super::log::{RowLog, Shared, word_of};
use super::owner::RowOwner;
use super::policy::Queue;
use super::row::{ROW_BYTES_LEAST, ROW_BYTES_MAX, Row, RowFrom, RowHit, RowRef};
use super::segments::CHUNK_BYTES;
use super::statistics::{Refusal, RowStatistics};
use crate::scm::{NewRow, ScmTier};

/// A cache of single rows, shared by any number of threads and stores.
pub struct RowCache {
    words: Words,
    index: TagBuckets,
    account: Account,
    log: Mutex<RowLog>,
    /// Where rows go that leave, and rows on their way there.
    lower_tier: OnceLock<Arc<ScmTier>>,
    evicted: Mutex<EvictedRows>,
    owners: AtomicU32,
    large: AtomicU64,
    busy: AtomicU64,
    is_tight: AtomicBool,
}

/// What of a key's row is known before its data is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    bucket: Bucket,
    floor: u64,
}

/// The address space asked for, in multiples of the capacity: a capacity may be raised.
const ROOM_TO_GROW: u64 = 8;

/// What of a row is asked for before its length is known, words: most small rows.
const ROW_WORDS_AHEAD: usize = 24;

/// The most words: places are 32 bits.
const WORDS_MAX: u64 = u32::MAX as u64 - 1;

impl RowCache {
    /// A cache whose rows take at most `capacity_bytes`, which may later be raised eightfold. Memory
    /// is charged as rows come, 2 MiB at a time, and that of their index beside it.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold the least index, or there is no address space.
    pub fn new(account: &Account, capacity_bytes: u64) -> Result<Self> {
        let most = capacity_bytes.saturating_mul(ROOM_TO_GROW) / WORD_BYTES as u64;
        let words = Words::reserve(most.min(WORDS_MAX) as usize)?;
        let index = TagBuckets::new(account, words.len() * WORD_BYTES / ROW_BYTES_LEAST)?;
        let log = Mutex::new(RowLog::new(account, &words, capacity_bytes));
        Ok(Self {
            words,
            index,
            account: account.clone(),
            log,
            lower_tier: OnceLock::new(),
            evicted: Mutex::default(),
            owners: AtomicU32::new(1),
            large: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            is_tight: AtomicBool::new(false),
        })
    }

    /// A new owner of rows.
    #[must_use]
    pub fn owner(&self) -> RowOwner {
        RowOwner::new(self.owners.fetch_add(1, Relaxed))
    }

    fn shared(&self) -> Shared<'_> {
        Shared { words: &self.words, index: &self.index, below: self.lower_tier() }
    }

    /// Has rows that leave go to `tier`, where it takes rows; that of the first caller stays.
    pub fn set_lower_tier(&self, tier: &Arc<ScmTier>) {
        if tier.takes_rows() && self.lower_tier.set(Arc::clone(tier)).is_ok() {
            self.log.lock().enable_demotion(&self.account);
        }
    }

    fn lower_tier(&self) -> Option<&ScmTier> {
        self.lower_tier.get().map(|tier| &**tier)
    }

    /// Writes rows that left to the tier below: background work, for one at a time. Whether more wait.
    pub fn demote_rows(&self) -> bool {
        let Some(below) = self.lower_tier() else { return false };
        let mut evicted = self.evicted.lock();
        self.log.lock().take_evicted(&mut evicted);
        let waited = evicted.len();
        let rows = evicted.rows().map(|(row, words)| {
            // What was asked for once takes the place of nothing below.
            let may_evict = row.queue == Queue::Main;
            let is_current = move || self.index.is_unchanged(row.hash, row.bucket);
            (NewRow { hash: row.hash, words, may_evict }, is_current)
        });
        below.put_rows(rows);
        evicted.clear();
        waited > 0
    }

    /// Asks the processor for what [`RowCache::get`] and [`RowCache::forget`] need first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// As [`RowCache::prefetch`] for the row itself, whose bucket was asked for before.
    #[inline]
    pub fn prefetch_row(&self, hash: u64) {
        self.index.places(hash, |place| {
            let at = word_of(place);
            self.words.prefetch(at);
            self.words.prefetch_lines(at, ROW_WORDS_AHEAD);
        });
    }

    /// Where a row with this hash ([`RowOwner::hash`]) may be left: to be taken before the view of the data
    /// is that a fill is made of. `None` where there will be no fill.
    #[inline]
    #[must_use]
    pub fn vacancy(&self, owner: &RowOwner, hash: u64) -> Option<Vacancy> {
        let floor = owner.floor();
        self.index.bucket(hash).map(|bucket| Vacancy { bucket, floor })
    }

    /// Finds the row of `key` for a reader at `at`, puts its value in the place of what `value`
    /// holds, and says what else is known of it. Whether it has expired is for the caller to say.
    #[inline]
    pub fn get(
        &self,
        owner: &RowOwner,
        key: &[u8],
        hash: u64,
        at: Seqno,
        value: &mut Vec<u8>,
    ) -> Option<RowHit> {
        let floor = owner.floor();
        self.index.find(hash, |place| {
            let row = RowRef::read(self.words.get(word_of(place), ROW_BYTES_MAX / WORD_BYTES))?;
            self.words.prefetch_lines(word_of(place), row.words());
            let hit = row.hit(owner, floor, key, at)?;
            row.copy_value(value);
            Some(hit)
        })
    }

    /// As [`RowCache::get`], of rows in the tier below. What is found may be kept ([`RowCache::fill`]), as of
    /// the hit's number, where the caller may fill what it reads now.
    #[inline]
    pub fn get_from_scm(
        &self,
        owner: &RowOwner,
        key: &[u8],
        hash: u64,
        at: Seqno,
        value: &mut Vec<u8>,
    ) -> Option<RowHit> {
        self.lower_tier()?.find_row(owner, (key, hash), at, value)
    }

    /// Keeps a row, made of what was read after `vacancy` was taken; the module's header says when it
    /// may be filled.
    ///
    /// # Errors
    /// Why it is not kept, which is no harm.
    pub fn fill(
        &self,
        owner: &RowOwner,
        hash: u64,
        vacancy: Vacancy,
        row: Row<'_>,
    ) -> std::result::Result<(), Refusal> {
        self.check_size(&row)?;
        if let Some(below) = self.lower_tier().filter(|_| row.from == RowFrom::Device) {
            below.row_missed(hash);
        }
        // A reader never waits for another: with more threads than cores the one that holds the lock may not
        // run for milliseconds. What is asked for often is asked for again.
        let Some(mut log) = self.log.try_lock() else {
            self.busy.fetch_add(1, Relaxed);
            return Err(Refusal::Busy);
        };
        let filled = match owner.floor() == vacancy.floor {
            true => log.fill(self.shared(), owner.number, hash, vacancy.bucket, row),
            false => Err(Refusal::Written),
        };
        self.is_tight.store(log.is_tight(), Relaxed);
        filled.inspect_err(|refusal| log.counts.refused.count(*refusal))
    }

    /// A key with this hash, whose row would be this large, is asked for and in a memtable: once that is
    /// flushed there may be a row; whether that is news.
    #[inline]
    pub fn expect(&self, hash: u64, row_bytes: usize) -> bool {
        row_bytes <= ROW_BYTES_MAX && self.index.expect(hash)
    }

    /// No row comes of this hash: of what was deleted, say.
    pub fn give_up(&self, hash: u64) {
        self.index.give_up(hash);
    }

    /// Whether rows wait for what was written to be flushed.
    #[inline]
    #[must_use]
    pub fn awaits_any(&self) -> bool {
        self.index.stale_len() > 0
    }

    /// The bucket of a hash of which a row was forgotten or is expected: to be taken before the view that
    /// it is renewed from.
    #[must_use]
    pub fn awaited(&self, hash: u64) -> Option<(Bucket, Awaited)> {
        self.index.awaited(hash)
    }

    /// Keeps a row that was awaited, made of what was read after that was found out; the module's header
    /// says when it may be renewed. Waits for whoever fills.
    ///
    /// # Errors
    /// Why it is not kept, which is no harm.
    pub fn renew(
        &self,
        owner: &RowOwner,
        hash: u64,
        awaited: (Bucket, Awaited),
        row: Row<'_>,
    ) -> std::result::Result<(), Refusal> {
        self.check_size(&row)?;
        let mut log = self.log.lock();
        let renewed = match owner.floor() > row.seqno.get() {
            true => Err(Refusal::Written),
            false => log.renew(self.shared(), owner.number, hash, awaited, row),
        };
        renewed.inspect_err(|refusal| log.counts.refused.count(*refusal))
    }

    fn check_size(&self, row: &Row<'_>) -> std::result::Result<(), Refusal> {
        if row.words() * WORD_BYTES > ROW_BYTES_MAX || row.key.is_empty() {
            self.large.fetch_add(1, Relaxed);
            return Err(Refusal::Large);
        }
        Ok(())
    }

    /// Whether memory is short for rows that come: the shorter one is, the fewer others have to go for it.
    /// Not where most that come are not let in. As of the last fill.
    #[inline]
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    /// A key with this hash is written: its row answers no more, and what is read of it meanwhile is not
    /// kept. After the new version is in a memtable, and before it is visible.
    #[inline]
    pub fn forget(&self, hash: u64) {
        self.index.forget(hash);
        // Then below: who writes a row there looks here first, with the lock there.
        if let Some(below) = self.lower_tier() {
            below.forget_row(hash);
        }
    }

    /// Changes the most bytes of rows; those above it are given back now.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.log.lock().bytes_max = capacity_bytes;
        loop {
            let mut log = self.log.lock();
            if log.bytes() <= capacity_bytes || log.give_back(self.shared()) == 0 {
                return;
            }
        }
    }

    /// Has what went last remembered as far as it lay in so many bytes.
    pub(crate) fn set_shadow_bytes(&self, bytes: u64) {
        self.log.lock().set_shadow_bytes(bytes);
    }

    /// The memory of rows, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log.lock().bytes()
    }

    /// As [`RowCache::set_capacity`]; memory for as much is taken now, as far as nobody needs it.
    pub(crate) fn grow_to(&self, capacity_bytes: u64) {
        let mut log = self.log.lock();
        log.bytes_max = capacity_bytes;
        let missing = capacity_bytes.saturating_sub(log.bytes());
        log.grow(missing / CHUNK_BYTES);
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> RowStatistics {
        let log = self.log.lock();
        let mut statistics = log.counts;
        statistics.rows = self.index.len() as u64;
        statistics.bytes = log.bytes();
        statistics.free_bytes = log.free_bytes();
        statistics.index_bytes = self.index.bytes() + log.ghost_bytes();
        statistics.bytes_max = log.bytes_max;
        statistics.refused.large = self.large.load(Relaxed);
        statistics.refused.busy = self.busy.load(Relaxed);
        statistics
    }
}

impl Reclaim for RowCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = 0;
        while given < bytes {
            match self.log.lock().give_back(self.shared()) {
                0 => break,
                chunk => given += chunk,
            }
        }
        given
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowCache({:?})", self.index)
    }
}

#[cfg(test)]
#[path = "row_cache_tests.rs"]
pub(super) mod tests;

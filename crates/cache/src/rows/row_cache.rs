//! The row cache: an index that readers use without a lock, over a log of rows behind one mutex.
//!
//! A row is the result of a get from tables. It answers reads of its key until the key is written. Why no
//! reader gets a stale row (I1):
//!
//! - A reader first takes the key's bucket and the owner's floor ([`RowCache::vacancy`]), then a read view,
//!   then its read sequence number. Its fill is refused if the bucket or the floor changed since. The reader
//!   must not fill if the memtables of its view have a version of the key, or a range delete that covers it,
//!   newer than its read sequence number.
//! - A writer inserts a version into a memtable, then makes the key's row stale ([`RowCache::invalidate`]),
//!   then publishes the version. The fill of a reader that took the bucket before that is refused. A reader
//!   that took it later finds the version: its view is at least as new as the bucket, so it has the memtable;
//!   or the version was flushed, so it was visible, and the reader's sequence number covers it.
//! - A flush renews ([`RowCache::renew`]) stale rows, and makes rows for miss notes: keys that readers found
//!   in memtables ([`RowCache::note_miss`]): otherwise the next get would read the new table from
//!   the device. Like a reader it takes the key's bucket, then a view, then the visible sequence number. It
//!   renews nothing if the memtables of its view have a newer version of the key or a newer range delete that
//!   covers it, visible or not, or if the floor passed the seqno of the version.
//! - A write to many keys raises its owner's floor ([`RowOwner::raise_floor`]) before it is visible. Rows
//!   filled as of a seqno below the floor are not used any more. A reader's view may lack that write although
//!   its sequence number covers it, if a memtable was sealed between the two; but then the floor was raised
//!   after the reader took it, and its fill is refused.
//! - An evicted row is written to the lower tier, under the lock of its group there, only if its bucket here
//!   is still what it was at the eviction. A writer invalidates the row here first and then there. Either the
//!   writer is first, and its change of the bucket is seen under that lock; or the writer comes later, and
//!   finds the row there. A row found in the lower tier is filled here like one found in tables.
//! - A reader uses a row only if the row's version is not newer than the read sequence number. The writer of
//!   a newer version that the reader should see has made the row stale before.
//!
//! Concurrency: any thread may call. [`RowCache::get`] takes no lock and allocates only what the caller's
//! buffer needs. Fills and reclaim take the log's mutex; under it only the cache's own spare account is
//! charged, which reclaims from nobody. Writers change one bucket. Cost: a get touches the cache lines of the
//! bucket and of the row.

mod hot_rows;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arena::{Awaited, Bucket, TagBuckets, WORD_BYTES, Words};
use base::{Account, Reclaim, Result, Seqno, invariant};
use parking_lot::Mutex;

use super::evicted_rows::EvictedRows;
use super::log::{RowLog, Shared, word_of};
use super::owner::RowOwner;
use super::policy::Queue;
use super::row::{ROW_BYTES_LEAST, ROW_BYTES_MAX, Row, RowFrom, RowHit, RowRef};
use super::segments::CHUNK_BYTES;
use super::statistics::{Refusal, RowStatistics};
use crate::PageKind;
use crate::curve::{Contest, Subject};
use crate::scm::{NewRow, ScmTier};

/// A cache of single rows, shared by any number of threads and stores.
pub struct RowCache {
    words: Words,
    index: TagBuckets,
    account: Account,
    log: Mutex<RowLog>,
    /// The tier that evicted rows are written to, and rows that are being written.
    lower_tier: OnceLock<Arc<ScmTier>>,
    evicted: Mutex<EvictedRows>,
    owners: AtomicU32,
    large: AtomicU64,
    busy: AtomicU64,
    is_tight: AtomicBool,
    contest: Contest,
    /// Memory of rows at the last fill, for the contest. A plain number: `Relaxed`.
    filled_bytes: AtomicU64,
}

/// State of a key's bucket and of its owner before the key is read; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    bucket: Bucket,
    floor: u64,
}

/// Address space, in multiples of the first capacity: a capacity may be raised.
const ROOM_TO_GROW: u64 = 8;

/// Words of a row that are prefetched before its length is known: most rows are smaller.
const ROW_WORDS_AHEAD: usize = 24;

/// Most words of the log: positions have 32 bits.
const WORDS_MAX: u64 = u32::MAX as u64 - 1;

impl RowCache {
    /// A cache whose rows use at most `capacity_bytes`, which may later be raised eightfold. Memory for rows
    /// is charged as they come, 2 MiB at a time; the index is charged beside it.
    ///
    /// # Errors
    /// `Retry` if the account has no room for the smallest index, or there is no address space.
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
            contest: Contest::new(account, Subject::Rows, capacity_bytes),
            filled_bytes: AtomicU64::new(0),
        })
    }

    /// A new owner of rows.
    #[must_use]
    pub fn owner(&self) -> RowOwner {
        RowOwner::new(self.owners.fetch_add(1, Relaxed))
    }

    fn shared(&self) -> Shared<'_> {
        let rules = self.contest.rules();
        Shared { words: &self.words, index: &self.index, lower: self.lower_tier(), rules }
    }

    /// Sets the tier that evicted rows are written to, if it holds rows. The first caller's tier stays.
    pub fn set_lower_tier(&self, tier: &Arc<ScmTier>) {
        if tier.takes_rows() && self.lower_tier.set(Arc::clone(tier)).is_ok() {
            self.log.lock().enable_demotion(&self.account);
        }
    }

    fn lower_tier(&self) -> Option<&ScmTier> {
        self.lower_tier.get().map(|tier| &**tier)
    }

    /// Writes evicted rows to the lower tier: background work, one thread at a time. Returns whether there
    /// were any.
    pub fn demote_rows(&self) -> bool {
        let Some(lower) = self.lower_tier() else { return false };
        let mut evicted = self.evicted.lock();
        self.log.lock().take_evicted(&mut evicted);
        let waited = evicted.len();
        let rows = evicted.rows().map(|(row, words)| {
            // A row that was used once evicts no other row there.
            let may_evict = row.queue == Queue::Main;
            let is_current = move || self.index.is_unchanged(row.hash, row.bucket);
            (NewRow { hash: row.hash, words, may_evict }, is_current)
        });
        lower.put_rows(rows);
        evicted.clear();
        waited > 0
    }

    /// Prefetches what [`RowCache::get`] and [`RowCache::invalidate`] read first: the bucket.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the row itself, after [`RowCache::prefetch`].
    #[inline]
    pub fn prefetch_row(&self, hash: u64) {
        self.index.positions(hash, |place| {
            let at = word_of(place);
            self.words.prefetch(at);
            self.words.prefetch_lines(at, ROW_WORDS_AHEAD);
        });
    }

    /// The state that a fill of this hash ([`RowOwner::hash`]) depends on. The caller takes it before its
    /// read view. `None` if the row cannot be filled.
    #[inline]
    #[must_use]
    pub fn vacancy(&self, owner: &RowOwner, hash: u64) -> Option<Vacancy> {
        let floor = owner.floor();
        self.index.bucket(hash).map(|bucket| Vacancy { bucket, floor })
    }

    /// Looks up the row of `key` for a reader at seqno `at`. Replaces the content of `value` by the row's
    /// value. The caller checks the expiry.
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
            self.note_access(hash, row.words());
            Some(hit)
        })
    }

    /// Counts an access of a row that is cached or may be.
    #[inline]
    fn note_access(&self, hash: u64, words: usize) {
        let bytes = || self.filled_bytes.load(Relaxed);
        self.contest.ask(hash, words * WORD_BYTES, PageKind::Data, bytes);
    }

    /// Looks the row up in the lower tier, as [`RowCache::get`]. The caller may fill the row that was found,
    /// as of the hit's seqno, under the same conditions as one that it read from tables.
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

    /// Inserts a row that was read after `vacancy` was taken, under the conditions in the module's header.
    ///
    /// # Errors
    /// Why the row is refused, which does no harm.
    pub fn fill(
        &self,
        owner: &RowOwner,
        hash: u64,
        vacancy: Vacancy,
        row: Row<'_>,
    ) -> std::result::Result<(), Refusal> {
        invariant!(
            row.seqno <= row.as_of,
            "a row's version is visible at the seqno it was read at"
        );
        self.check_size(&row)?;
        self.note_access(hash, row.words());
        if let Some(lower) = self.lower_tier().filter(|_| row.from == RowFrom::Device) {
            lower.row_missed(hash);
        }
        // A reader never waits for another fill: with more threads than cores the holder of the lock may not
        // run for milliseconds. A row that is used often will be filled later.
        let Some(mut log) = self.log.try_lock() else {
            self.busy.fetch_add(1, Relaxed);
            return Err(Refusal::Busy);
        };
        let filled = match owner.floor() == vacancy.floor {
            true => log.fill(self.shared(), owner.number, hash, vacancy.bucket, row),
            false => Err(Refusal::Written),
        };
        self.is_tight.store(log.is_tight(), Relaxed);
        self.filled_bytes.store(log.bytes(), Relaxed);
        filled.inspect_err(|refusal| log.counts.refused.count(*refusal))
    }

    /// Records that a reader found a key with this hash in a memtable, and that its row would have
    /// `row_bytes` bytes: the flush of the memtable then makes the row. Returns whether this is new.
    #[inline]
    pub fn note_miss(&self, hash: u64, row_bytes: usize) -> bool {
        row_bytes <= ROW_BYTES_MAX && self.index.note_miss(hash)
    }

    /// Ends the wait for a row with this hash, because the flush makes none: the key was deleted, for
    /// example.
    pub fn give_up(&self, hash: u64) {
        self.index.remove_stale(hash);
    }

    /// Whether any row waits for the flush of its key.
    #[inline]
    #[must_use]
    pub fn awaits_any(&self) -> bool {
        self.index.stale_len() > 0
    }

    /// The bucket of a hash that has a stale entry: an invalidated row or a miss note. The flush takes it
    /// before its read view.
    #[must_use]
    pub fn awaited(&self, hash: u64) -> Option<(Bucket, Awaited)> {
        self.index.awaited(hash)
    }

    /// Inserts a row that was awaited, read after `awaited` was taken, under the conditions in the module's
    /// header. Waits for the log's mutex.
    ///
    /// # Errors
    /// Why the row is refused, which does no harm.
    pub fn renew(
        &self,
        owner: &RowOwner,
        hash: u64,
        awaited: (Bucket, Awaited),
        row: Row<'_>,
    ) -> std::result::Result<(), Refusal> {
        invariant!(
            row.seqno <= row.as_of,
            "a row's version is visible at the seqno it was read at"
        );
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

    /// Whether memory for rows is short, as of the last fill: rows should then be stored compressed, since
    /// the smaller a row is, the fewer rows are evicted for it. False while most new rows are refused anyway.
    #[inline]
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    /// Makes the rows with this hash stale, because a key with this hash is written: they answer no more
    /// reads, and values read meanwhile are not filled. The caller has the new version in a memtable, and has
    /// not published it.
    #[inline]
    pub fn invalidate(&self, hash: u64) {
        self.index.invalidate(hash);
        // The lower tier after DRAM: a put there checks the bucket here under the lock there.
        if let Some(lower) = self.lower_tier() {
            lower.invalidate_row(hash);
        }
    }

    /// Changes the limit of the rows' memory; memory above it is given back now.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.log.lock().bytes_max = capacity_bytes;
        loop {
            let mut log = self.log.lock();
            if log.bytes() <= capacity_bytes || log.give_back(self.shared()) == 0 {
                return;
            }
        }
    }

    /// Sets the bytes of rows that the shadow ghost list covers.
    pub(crate) fn set_shadow_bytes(&self, bytes: u64) {
        self.log.lock().set_shadow_bytes(bytes);
    }

    /// Memory of rows, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log.lock().bytes()
    }

    /// As [`RowCache::set_capacity`]; also takes memory up to the limit now, as far as nobody else needs it.
    pub(crate) fn grow_to(&self, capacity_bytes: u64) {
        let mut log = self.log.lock();
        log.bytes_max = capacity_bytes;
        let missing = capacity_bytes.saturating_sub(log.bytes());
        log.grow(missing / CHUNK_BYTES);
    }

    /// The statistics since the cache was made.
    #[must_use]
    pub fn statistics(&self) -> RowStatistics {
        let log = self.log.lock();
        let mut statistics = log.counts;
        statistics.rows = self.index.len() as u64;
        statistics.bytes = log.bytes();
        statistics.free_bytes = log.free_bytes();
        statistics.index_bytes = self.index.bytes() + log.ghost_bytes() + self.contest.bytes();
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

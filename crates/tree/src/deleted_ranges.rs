//! The range deletes of a memtable: any number of writers add them, and readers search them without a lock.
//!
//! They are kept in segments that about double in size; each segment is cut into fragments
//! ([`table::RangeDeletes`]) and searched by one binary search. A delete begins as a segment of its own; the
//! next delete merges the segments before it that have similar sizes. So *n* deletes are in about log *n*
//! segments, and each is merged about log *n* times.
//!
//! A segment returns only the newest delete of a key. So no segment may span a reader: deletes before a
//! snapshot's seqno, or before the newest visible seqno, are not merged with later ones. The exception is
//! a reader whose seqno was taken while the segment was built: it checks the segment's deletes one by one.
//!
//! I1: a delete is added before its batch is published, so a reader finds every delete that it must see.
//! Cost: a lookup without range deletes is one relaxed load. Adding holds a mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base::{Account, Charge, Result, Seqno};
use bytes::Bytes;
use compact::Horizon;
use parking_lot::Mutex;
use table::{RangeDelete, RangeDeletes};

/// The range deletes of a memtable, by key and seqno.
#[derive(Debug)]
pub struct DeletedRanges {
    /// Whether there are any. Set before the delete is published, so a reader that must see a delete sees
    /// this: `Relaxed`.
    any: AtomicBool,
    /// Oldest first, except that concurrent writers may add out of order.
    segments: ArcSwap<Vec<Arc<Segment>>>,
    change: Mutex<()>,
    account: Account,
    charge: Mutex<Option<Charge>>,
    charged: AtomicU64,
    /// The part of `charged` that the deletes take, bytes.
    used: AtomicU64,
}

/// Deletes that are searched together.
#[derive(Debug)]
struct Segment {
    deletes: Vec<Arc<RangeDelete>>,
    /// The same deletes as fragments, each with its newest delete.
    newest: Arc<RangeDeletes>,
    first: Seqno,
    last: Seqno,
}

/// Memory of a delete besides its keys, bytes: itself, up to two fragments, and as much again while they are
/// cut anew.
const DELETE_BYTES: usize = 512;

/// A segment is merged with the next one if it is at most this many times as long.
const RATIO: usize = 2;

impl Segment {
    fn of(delete: RangeDelete) -> Arc<Self> {
        let (first, last) = (delete.seqno, delete.seqno);
        let newest = Arc::new(RangeDeletes::build_newest([delete.clone()]));
        Arc::new(Self { deletes: vec![Arc::new(delete)], newest, first, last })
    }

    /// The deletes of both segments.
    fn merged(&self, other: &Self) -> Arc<Self> {
        let newest = Arc::new(RangeDeletes::overlay(&self.newest, &other.newest));
        base::invariant!(
            !self.deletes.is_empty() && !other.deletes.is_empty(),
            "a segment has a range delete"
        );
        let deletes = self.deletes.iter().chain(&other.deletes).cloned().collect();
        let (first, last) = (self.first.min(other.first), self.last.max(other.last));
        Arc::new(Self { deletes, newest, first, last })
    }

    fn newest_covering(&self, key: &[u8], at: Seqno) -> Option<Seqno> {
        if self.last <= at {
            return self.newest.newest_covering(key, at);
        }
        let covers = |it: &&Arc<RangeDelete>| it.seqno <= at && *it.start <= *key && *key < *it.end;
        self.deletes.iter().filter(covers).map(|delete| delete.seqno).max()
    }
}

impl DeletedRanges {
    /// The memory of a memtable's range deletes is at most about this, plus those of one batch: a single
    /// table takes all of them.
    pub const BYTES_MAX: u64 = 16 << 20;

    /// No range deletes; their memory is charged to `account`.
    pub fn new(account: &Account) -> Self {
        Self {
            any: AtomicBool::new(false),
            segments: ArcSwap::default(),
            change: Mutex::new(()),
            account: account.clone(),
            charge: Mutex::new(None),
            charged: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// The memory that is charged for `count` deletes with bounds of `bytes` in all, bytes.
    pub const fn reserved_bytes(count: usize, bytes: usize) -> u64 {
        (count * DELETE_BYTES + bytes) as u64
    }

    /// Charges the memory for further deletes (I10).
    ///
    /// # Errors
    /// `Retry` if the memory limit does not allow it; nothing is charged.
    pub fn reserve(&self, count: usize, bytes: usize) -> Result<()> {
        let more = Self::reserved_bytes(count, bytes);
        if more == 0 {
            return Ok(());
        }
        self.charge_more(&mut self.charge.lock(), more)
    }

    /// Charges what is missing to `bytes` in all.
    fn reserve_up_to(&self, bytes: u64) -> Result<()> {
        let mut charge = self.charge.lock();
        match bytes.saturating_sub(self.bytes()) {
            0 => Ok(()),
            more => self.charge_more(&mut charge, more),
        }
    }

    fn charge_more(&self, charge: &mut Option<Charge>, more: u64) -> Result<()> {
        match charge {
            Some(charge) => charge.grow(more)?,
            none => *none = Some(self.account.charge(more)?),
        }
        self.charged.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Charged memory, bytes.
    pub fn bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Whether there are no range deletes.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Adds the delete of the keys from `start` on and before `end`; an empty `end` means no end. `readers`
    /// has the seqnos of all readers, and last the newest visible one.
    ///
    /// The memtable with the reservation may have been sealed before the delete got its seqno. The memory is
    /// charged now then, if the limit allows it.
    pub fn add(&self, start: &[u8], end: &[u8], seqno: Seqno, readers: &Horizon) {
        let bytes = Self::reserved_bytes(1, start.len() + end.len());
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.bytes() {
            let _ = self.reserve_up_to(used);
        }
        let delete = match end {
            [] => {
                let end = Bytes::from_static(&base::AFTER_EVERY_KEY);
                RangeDelete { start: Bytes::copy_from_slice(start), end, seqno }
            }
            _ => {
                let both = Bytes::from([start, end].concat());
                RangeDelete {
                    start: both.slice(..start.len()),
                    end: both.slice(start.len()..),
                    seqno,
                }
            }
        };
        let _change = self.change.lock();
        let mut segments = Vec::clone(&self.segments.load());
        let count: usize = segments.iter().map(|it| it.deletes.len()).sum();
        while let [.., older, newer] = segments.as_slice()
            && older.deletes.len() <= RATIO * newer.deletes.len()
            && !is_between(readers, older.first.min(newer.first), older.last.max(newer.last))
        {
            let merged = older.merged(newer);
            segments.truncate(segments.len() - 2);
            segments.push(merged);
        }
        segments.push(Segment::of(delete));
        base::invariant!(
            segments.iter().map(|it| it.deletes.len()).sum::<usize>() == count + 1,
            "merging segments loses no range delete"
        );
        self.segments.store(Arc::new(segments));
        self.any.store(true, Ordering::Relaxed);
    }

    /// The newest delete at or below `at` that covers `key`.
    pub fn newest_covering(&self, key: &[u8], at: Seqno) -> Option<Seqno> {
        if self.is_empty() {
            return None;
        }
        let mut newest = None;
        for segment in self.segments.load().iter().rev() {
            if segment.first <= at && newest.is_none_or(|newest| newest < segment.last) {
                newest = newest.max(segment.newest_covering(key, at));
            }
        }
        newest
    }

    /// A delete that overlaps the keys from `start` on and before `end`, and whose seqno `is_wanted`. Cost:
    /// linear in the number of deletes.
    pub fn find(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        is_wanted: impl Fn(Seqno) -> bool,
    ) -> Option<Seqno> {
        if self.is_empty() {
            return None;
        }
        let segments = self.segments.load();
        let mut deletes = segments.iter().flat_map(|segment| &segment.deletes);
        let overlaps = |it: &RangeDelete| {
            is_wanted(it.seqno) && start < &*it.end && end.is_none_or(|end| *it.start < *end)
        };
        deletes.find(|delete| overlaps(delete)).map(|delete| delete.seqno)
    }

    /// The deletes that a reader at `at` sees, for a walk: each is in one of the returned lists.
    pub fn visible_at(&self, at: Seqno) -> Vec<Arc<RangeDeletes>> {
        if self.is_empty() {
            return Vec::new();
        }
        let visible = |segment: &Arc<Segment>| {
            if segment.last <= at {
                return Arc::clone(&segment.newest);
            }
            let visible = segment.deletes.iter().filter(|delete| delete.seqno <= at);
            Arc::new(RangeDeletes::build_newest(visible.map(|delete| RangeDelete::clone(delete))))
        };
        let segments = self.segments.load();
        segments.iter().filter(|segment| segment.first <= at).map(visible).collect()
    }

    /// All deletes, with the seqnos that `readers` can tell apart. To be called after the last delete was
    /// added.
    pub fn all_for(&self, readers: &Horizon) -> RangeDeletes {
        let segments = self.segments.load();
        let deletes = segments.iter().flat_map(|segment| &segment.deletes);
        let deletes = deletes.map(|delete| RangeDelete::clone(delete));
        RangeDeletes::build_for(deletes, readers.seqnos())
    }
}

/// Whether a reader is at or after `first` and before `last`.
fn is_between(readers: &Horizon, first: Seqno, last: Seqno) -> bool {
    let from = readers.seqnos().partition_point(|reader| *reader < first);
    readers.seqnos().get(from).is_some_and(|reader| *reader < last)
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn key(number: u64) -> Vec<u8> {
        format!("{number:02}").into_bytes()
    }

    fn horizon(numbers: &[u64]) -> Horizon {
        Horizon::new(numbers.iter().map(|number| Seqno::new(*number)).collect())
    }

    /// Compared with a list, for readers at snapshots and at arbitrary seqnos.
    #[test] // I1
    fn a_reader_sees_the_newest_delete_that_it_may() {
        let (mut rng, seed) = Rng::from_env();
        for round in 0..20 {
            let ranges = DeletedRanges::new(&Account::unlimited("test"));
            assert!(ranges.is_empty() && ranges.visible_at(Seqno::MAX).is_empty());
            let mut list = Vec::new();
            let mut snapshots = Vec::new();
            let mut visible = 0;
            for number in 1..200 {
                // Writers overtake each other by one.
                let seqno = if number % 5 == 0 {
                    number + 1
                } else {
                    number - u64::from(number % 5 == 1 && number > 1)
                };
                let (start, end) = (rng.below(40), 1 + rng.below(60));
                let end = if end > start { key(end) } else { Vec::new() };
                let start = if rng.one_in(9) { Vec::new() } else { key(start) };
                let mut readers = snapshots.clone();
                readers.push(visible);
                ranges.add(&start, &end, Seqno::new(seqno), &horizon(&readers));
                list.push((start, end, seqno));
                if number % 5 != 0 {
                    visible = number;
                }
                if rng.one_in(20) {
                    snapshots.push(visible);
                }
                let at = match rng.below(3) {
                    0 => visible,
                    1 => rng.below(visible + 1),
                    _ => snapshots.last().copied().unwrap_or(0),
                };
                for probe in 0..60 {
                    let probe = key(probe);
                    let covers = |(start, end, seqno): &&(Vec<u8>, Vec<u8>, u64)| {
                        *seqno <= at && *start <= probe && (end.is_empty() || probe < *end)
                    };
                    let expected = list.iter().filter(covers).map(|(.., seqno)| *seqno).max();
                    let at = Seqno::new(at);
                    let found = ranges.newest_covering(&probe, at).map(Seqno::get);
                    assert_eq!(found, expected, "TERRACE_SEED={seed} round {round}");
                    let visible = ranges.visible_at(at);
                    let walked =
                        visible.iter().filter_map(|it| it.newest_covering(&probe, at)).max();
                    assert_eq!(walked.map(Seqno::get), expected, "TERRACE_SEED={seed}");
                }
            }
            let all = ranges.all_for(&horizon(&[visible]));
            assert_eq!(
                all.newest_covering(b"00", Seqno::MAX),
                ranges.newest_covering(b"00", Seqno::MAX)
            );
        }
    }

    /// Counts how many segments a lookup searches, and how often each delete is cut.
    #[test]
    fn segments_are_few_and_cut_seldom() {
        let ranges = DeletedRanges::new(&Account::unlimited("test"));
        let (mut most, mut cut) = (0, 0);
        for number in 1..5000 {
            let before = ranges.segments.load_full();
            let delete = (number * 7919 % 5000) * 10;
            let (start, end) = (format!("{delete:06}"), format!("{:06}", delete + 5));
            ranges.add(
                start.as_bytes(),
                end.as_bytes(),
                Seqno::new(number),
                &horizon(&[number - 1]),
            );
            let after = ranges.segments.load_full();
            let is_new = |it: &&Arc<Segment>| !before.iter().any(|old| Arc::ptr_eq(old, it));
            cut += after.iter().filter(is_new).map(|it| it.deletes.len()).sum::<usize>();
            most = most.max(after.len());
        }
        assert!(most <= 14, "{most} segments");
        assert!(cut <= 5000 * 30, "{cut} deletes cut");
    }

    #[test] // I10
    fn memory_is_charged_before_it_is_taken() {
        let budget = base::Budget::new(1 << 20);
        let account = budget.account("test");
        let ranges = DeletedRanges::new(&account);
        ranges.reserve(0, 0).unwrap();
        assert_eq!(ranges.bytes(), 0);
        ranges.reserve(1500, 20).unwrap();
        assert_eq!((ranges.bytes(), account.used()), (768_020, 768_020));
        assert!(ranges.reserve(1500, 0).unwrap_err().is_retryable());
        assert_eq!(ranges.bytes(), 768_020);
        drop(ranges);
        assert_eq!(account.used(), 0);
    }

    #[test] // I10
    fn a_delete_that_was_reserved_elsewhere_is_charged_when_it_is_added() {
        let budget = base::Budget::new(1 << 20);
        let account = budget.account("test");
        let ranges = DeletedRanges::new(&account);
        let add = |number| ranges.add(b"a", b"c", Seqno::new(number), &horizon(&[number]));
        add(1);
        assert_eq!((ranges.bytes(), account.used()), (514, 514));
        ranges.reserve(2, 4).unwrap();
        (2..=3).for_each(add);
        assert_eq!(ranges.bytes(), 3 * 514, "a reserved delete is charged once");
        // Without room it is added all the same: its batch is in the log.
        let _rest = account.charge((1 << 20) - account.used()).unwrap();
        add(4);
        assert_eq!(ranges.bytes(), 3 * 514);
        assert_eq!(ranges.newest_covering(b"b", Seqno::MAX), Some(Seqno::new(4)));
    }
}

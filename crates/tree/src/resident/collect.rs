//! The collector's part of a resident keyspace: which entries of a segment are live, and their move to a
//! newer record.
//!
//! An entry is live if the index has its place. Its copy is durable before the index gets the new place, and
//! only if it still has the old one: so a newer version wins. A reader holds the lock of its shard while it
//! reads a place, so no reader is at the old place afterwards, and the segment may be freed.
//!
//! Tombstones. A tombstone hides older versions of its key in a replay. It is given up once no other
//! segment can have one: if every record of every other segment is newer than the moment at which the
//! tombstone was in the index ([`LogSegment::tombstones_end`]).
//!
//! Lost entries. An entry that cannot be read any more does not keep its segment. In its place a lost entry
//! is written ([`base::LOST`]): it has what the index knows of the hash of the key, and the end of the
//! segment, above which no lost version is. A read of a key with that hash fails, unless it finds a version
//! from that end on ([`Resident::find`]). A repair drops it.
//!
//! Called by the task that flushes, between two flushes: nothing else changes an index.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{
    BatchOp, Charge, EntryKind, ErrorKind, KeyspaceId, Result, Seqno, decode_moved, decode_ops_at,
    is_moved, put_moved,
};

use super::place::Place;
use super::{LogSegment, LogSegments, Resident, ResidentEntry, hash_of};

/// Entries that are being moved from one segment, with the body of their new record.
#[derive(Debug)]
pub struct Moves {
    segments: Arc<LogSegments>,
    from: Arc<LogSegment>,
    number: u16,
    body: Vec<u8>,
    keyspaces: Vec<KeyspaceId>,
    moves: Vec<Move>,
    /// Whether tombstones are given up instead.
    gives_up_tombstones: bool,
    /// Tombstones that were given up.
    given_up: u64,
    charge: Charge,
}

#[derive(Debug)]
struct Move {
    resident: Arc<Resident>,
    hash: u64,
    place: Place,
    is_delete: bool,
    is_lost: bool,
    /// Offset in the body, and length.
    at: (usize, usize),
}

/// An entry of a segment that cannot be read.
#[derive(Debug)]
pub struct LeftOver {
    resident: Arc<Resident>,
    hash: u64,
    place: Place,
}

/// What a move did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Entries that the index now has at their new places.
    pub entries: u64,
    /// Entries that were written again before that.
    pub overtaken: u64,
}

impl Moves {
    /// No entry yet of the full segment `from`.
    pub fn new(
        segments: &Arc<LogSegments>,
        from: &Arc<LogSegment>,
        gives_up_tombstones: bool,
    ) -> Option<Self> {
        let (lane, segment) = from.id();
        Some(Self {
            number: segments.known(lane, segment)?,
            segments: Arc::clone(segments),
            from: Arc::clone(from),
            body: Vec::new(),
            keyspaces: Vec::new(),
            moves: Vec::new(),
            gives_up_tombstones,
            given_up: 0,
            charge: segments.account().empty_charge(),
        })
    }

    /// Adds the live entries of `batch`, a record of the segment. `resident_of` has the resident keyspaces.
    ///
    /// # Errors
    /// `Corrupt` if the record has no operations.
    pub fn add(
        &mut self,
        batch: &wal::SegmentBatch<'_>,
        resident_of: impl Fn(KeyspaceId) -> Option<Arc<Resident>>,
    ) -> Result<()> {
        let (start, head) = (batch.address.offset, batch.head_bytes);
        if is_moved(batch.body) {
            for moved in decode_moved(batch.body) {
                let (at, moved) = moved?;
                let place = Place::new(self.number, start + (head + at) as u64, false);
                self.add_op(&moved.op, moved.first, place, resident_of(moved.op.keyspace))?;
            }
            return Ok(());
        }
        for op in decode_ops_at(batch.body) {
            let (at, op) = op?;
            let place = match batch.ops {
                1 => Place::new(self.number, start, true),
                _ => Place::new(self.number, start + (head + at) as u64, false),
            };
            self.add_op(&op, batch.first, place, resident_of(op.keyspace))?;
        }
        Ok(())
    }

    fn add_op(
        &mut self,
        op: &BatchOp<'_>,
        first: Seqno,
        place: Option<Place>,
        resident: Option<Arc<Resident>>,
    ) -> Result<()> {
        let Some((resident, place)) = resident.zip(place) else { return Ok(()) };
        let hash = hash_of(op.key)?;
        if !resident.index.contains(hash, place)? {
            return Ok(());
        }
        if op.kind == EntryKind::Delete && self.gives_up_tombstones {
            if resident.index.remove(hash, place)? {
                resident.index.count_tombstone(true, false);
                self.from.drop_one();
                self.given_up += 1;
            }
            return Ok(());
        }
        self.move_op(resident, hash, place, first, op)
    }

    fn move_op(
        &mut self,
        resident: Arc<Resident>,
        hash: u64,
        place: Place,
        first: Seqno,
        op: &BatchOp<'_>,
    ) -> Result<()> {
        let most = 32 + op.key.len() + op.value.len();
        let room = self.body.capacity() - self.body.len();
        if room < most {
            let more = most.max(self.body.capacity()).max(64 << 10);
            // The account lends: the collector frees more memory than it takes.
            self.charge.grow(more as u64)?;
            self.body.reserve_exact(more);
        }
        let at = put_moved(&mut self.body, first, op);
        if !self.keyspaces.contains(&op.keyspace) {
            self.keyspaces.push(op.keyspace);
        }
        let at = (at, self.body.len() - at);
        let (is_delete, is_lost) = (op.kind == EntryKind::Delete, op.kind == base::LOST);
        self.moves.push(Move { resident, hash, place, is_delete, is_lost, at });
        Ok(())
    }

    /// The entries to which the indexes of `residents` still point in the segment.
    pub fn left_over(&self, residents: impl Iterator<Item = Arc<Resident>>) -> Vec<LeftOver> {
        let mut left = Vec::new();
        for resident in residents {
            let places = resident.index.slots_in(self.number).into_iter();
            left.extend(places.map(|(hash, place)| {
                let resident = Arc::clone(&resident);
                LeftOver { resident, hash, place }
            }));
        }
        left
    }

    /// Adds the entry of `left` if it can be read, and else a lost entry in its place, of which all versions
    /// are below `end`. Returns whether it is lost.
    ///
    /// # Errors
    /// The device's; `Retry` without memory.
    pub fn add_left(&mut self, left: LeftOver, end: Seqno) -> Result<bool> {
        let LeftOver { resident, hash, place } = left;
        let keyspace = resident.keyspace;
        match resident.entry(place) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let key = hash.to_be_bytes();
                let op = BatchOp { keyspace, kind: base::LOST, key: &key, value: &[] };
                self.move_op(resident, hash, place, end, &op)?;
                Ok(true)
            }
            entry => {
                let ResidentEntry { key, kind, value } = entry?;
                let first = self.from.first_at(place)?;
                let op = BatchOp { keyspace, kind, key: &key, value: &value };
                self.move_op(resident, hash, place, first, &op)?;
                Ok(false)
            }
        }
    }

    /// Whether there is no entry to move.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Length of the new record's body, bytes.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Tombstones that were given up.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The new record.
    pub fn batch(&self) -> wal::Batch<'_> {
        // A batch has at most as many operations as a segment.
        let ops = u32::try_from(self.moves.len()).unwrap_or(u32::MAX);
        wal::Batch { keyspaces: &self.keyspaces, ops, body: &self.body }
    }

    /// Brings the entries' places in the record that was `appended` into the indexes. The record is durable.
    /// Its tombstones were in the index while every record of the log was below `end`.
    ///
    /// # Errors
    /// Only if an invariant is broken.
    pub fn install(self, appended: wal::Appended, end: Seqno) -> Result<Moved> {
        let head = wal::head_bytes(&self.batch());
        let address = appended.address;
        let address =
            address.ok_or_else(|| base::broken_invariant!("moved operations are logged"))?;
        let mut done = Moved::default();
        for it in &self.moves {
            let place = self.segments.place_of_moved(address, head, it.at)?;
            let to = self.segments.get(place)?;
            if it.is_delete {
                to.raise_tombstones_end(end);
            }
            // First: a reader that finds the new place looks for lost entries.
            if it.is_lost {
                it.resident.has_lost.store(true, Ordering::Release);
            }
            // First: a segment without entries may be freed.
            to.add();
            if it.resident.index.replace(it.hash, it.place, place)? {
                self.from.drop_one();
                done.entries += 1;
            } else {
                to.drop_one();
                done.overtaken += 1;
            }
        }
        Ok(done)
    }
}

impl Resident {
    /// For a replay: the version of `key` that `memtables`, newest first, or the index have. Returns the
    /// first seqno of the record that had it first, or a seqno of that record.
    ///
    /// # Errors
    /// Those of a read of the log.
    pub fn origin(&self, memtables: &[&Arc<crate::Memtable>], key: &[u8]) -> Result<Option<Seqno>> {
        for memtable in memtables {
            let newest = memtable.map().get(key, base::Trailer::seek(Seqno::MAX));
            if let Some((trailer, _)) = newest {
                let place = memtable.places().of(trailer.seqno())?;
                let segment = self.segments.get(place)?;
                return Ok(Some(segment.moved_first(place)?.unwrap_or(trailer.seqno())));
            }
        }
        Ok(self.find(key)?.map(|newest| newest.seqno))
    }

    /// For a replay: brings the lost entry with `key`, an operation as in [`Resident::note_moved`], into the
    /// index.
    ///
    /// # Errors
    /// Those of a read of the log; `Retry` without memory.
    pub fn add_lost(
        &self,
        appended: wal::Appended,
        batch: &wal::Batch<'_>,
        at: (usize, usize),
        key: &[u8],
    ) -> Result<()> {
        let address = appended.address;
        let address =
            address.ok_or_else(|| base::broken_invariant!("moved operations are logged"))?;
        let place = self.segments.place_of_moved(address, wal::head_bytes(batch), at)?;
        self.has_lost.store(true, Ordering::Release);
        self.set(key, base::LOST, true, place, None)
    }

    /// The seqno below which versions of keys with this hash may be lost.
    pub(super) fn lost_below(&self, hash: u64) -> Result<Option<Seqno>> {
        if !self.has_lost() {
            return Ok(None);
        }
        let mut below = None;
        self.index.find(hash, |place| {
            let segment = self.segments.get(place)?;
            let (start, Some(at)) = segment.record_of(place)? else { return Ok(None::<()>) };
            let Some(end) = segment.first_of_moved(start, at)? else { return Ok(None) };
            let mut kind = [0];
            segment.stored().load(at, &mut kind)?;
            if kind == [base::LOST as u8] {
                below = below.max(Some(end));
            }
            Ok(None)
        })?;
        Ok(below)
    }

    /// For a replay: notes that the moved operation `at`, an offset in the body of the record that was
    /// `appended` and a length, is the write at `seqno` of `memtable`.
    ///
    /// # Errors
    /// Only if an invariant is broken.
    pub fn note_moved(
        &self,
        appended: wal::Appended,
        batch: &wal::Batch<'_>,
        at: (usize, usize),
        seqno: Seqno,
        memtable: &crate::Memtable,
    ) -> Result<()> {
        let address = appended.address;
        let address =
            address.ok_or_else(|| base::broken_invariant!("moved operations are logged"))?;
        let place = self.segments.place_of_moved(address, wal::head_bytes(batch), at)?;
        memtable.places().note(seqno, place);
        Ok(())
    }

    /// Every tombstone of a memtable that begins below `end` stays in the index, although the index has no
    /// older version: a replay has found it, and the log may have an older version that the replay passed
    /// over.
    pub fn keep_tombstones_below(&self, end: Seqno) {
        self.tombstones_below.store(end.get(), Ordering::Relaxed);
    }
}

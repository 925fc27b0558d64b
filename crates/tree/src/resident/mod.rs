//! A resident keyspace: its entries stay in the write-ahead log on storage-class memory, where reads find
//! them through an index in DRAM (TyrantKV).
//!
//! A write goes to the log and to a memtable, as in any keyspace. The memtable also notes the place of the
//! write in the log ([`Places`]). A flush writes no table: it brings the newest version of each key into the
//! [`Index`], and the memtable's memory is free again. So the index changes in seqno order, and holds for
//! each key the newest flushed version, or its tombstone. There are no older versions: snapshots are
//! refused.
//!
//! The log keeps the segments that the index points into (`wal::Log::keep_resident`). A replay of the log
//! builds the index again. The collector moves live entries out of old segments (`collect`).
//!
//! Memory: the index is charged before it grows. A write of a new key is refused when there is none
//! ([`Resident::admit`]); a write of a key that the index or a memtable has needs none.

pub mod checkpoint;
mod collect;
mod entries;
mod flush;
mod index;
mod loaded;
mod place;
mod places;
mod segments;
mod sizes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{
    Account, BatchOp, Cursor, EntryKind, Error, ErrorKind, KeyspaceId, Result, Seqno, decode_ops,
    decode_ops_at, put_varint,
};
use bytes::Bytes;

use self::index::Index;
use self::place::Place;
use crate::Memtable;

pub use collect::{LeftOver, Moved, Moves};
pub use entries::{ResidentEntries, ResidentEntry};
pub(crate) use flush::ResidentFlush;
pub use places::Places;
pub use segments::{LogSegment, LogSegments};
pub use sizes::ResidentSizes;

/// See the module.
#[derive(Debug)]
pub struct Resident {
    keyspace: KeyspaceId,
    index: Index,
    segments: Arc<LogSegments>,
    /// No write above this seqno is in the index. Stored before the first of them is.
    indexed_up_to: AtomicU64,
    /// As [`Resident::keep_tombstones_below`].
    tombstones_below: AtomicU64,
    /// See [`Resident::has_lost`].
    has_lost: AtomicBool,
}

/// The newest flushed version of a key.
#[derive(Debug)]
pub struct ResidentVersion {
    /// A seqno of its batch: of the first operation.
    pub seqno: Seqno,
    /// Put, expiring put or delete.
    pub kind: EntryKind,
    /// The value as stored.
    pub value: Bytes,
}

impl Resident {
    /// An empty resident keyspace, whose entries lie in `segments`. The index is charged to `account`.
    ///
    /// # Errors
    /// `Retry` if there is no memory for an empty index.
    pub fn new(
        keyspace: KeyspaceId,
        segments: &Arc<LogSegments>,
        account: &Account,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            keyspace,
            index: Index::new(account)?,
            segments: Arc::clone(segments),
            indexed_up_to: AtomicU64::new(0),
            tombstones_below: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
        }))
    }

    /// The segments of the log that hold the entries.
    pub fn segments(&self) -> &Arc<LogSegments> {
        &self.segments
    }

    /// Makes room in the index for a write to the stored key `key`, so that its flush cannot fail (I10). The
    /// room counts for the flush of `memtable`. A delete needs none: it takes the place of the version that
    /// it deletes. All indexes may have `index_bytes_max` of memory.
    ///
    /// # Errors
    /// `Retry` if the key is new and there is no memory for it; `NoSpace` if the log has too many segments;
    /// those of a read of the log.
    pub fn admit(
        &self,
        memtables: &[&Arc<Memtable>],
        (key, kind): (&[u8], EntryKind),
        index_bytes_max: u64,
    ) -> Result<()> {
        self.segments.check_room()?;
        let Some(memtable) = memtables.first() else { return Ok(()) };
        if kind == EntryKind::Delete {
            return Ok(());
        }
        // A key that a memtable has got its room when it was written first.
        let is_pending = |it: &&Arc<Memtable>| it.holds_newer(key, Seqno::ZERO);
        if memtables.iter().any(is_pending) || self.newest(key)?.is_some() {
            return Ok(());
        }
        let shard = self.index.promise(hash_of(key)?, index_bytes_max).map_err(|error| {
            error.at("index of a resident keyspace, which takes no new key now")
        })?;
        if !memtable.places().note_promise(shard) {
            self.index.redeem(usize::from(shard), 1);
        }
        Ok(())
    }

    /// The newest flushed version of the stored key `key`, which may be a tombstone.
    ///
    /// # Errors
    /// `Corrupt` if no intact record is the key's, and a damaged one may be; the device's.
    pub fn find(&self, key: &[u8]) -> Result<Option<ResidentVersion>> {
        let mut damage = None;
        let found = self.index.find(hash_of(key)?, |place| match self.version(place, key) {
            // If it is the key's too, it is an older one: a newer write would have replaced an intact one.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damage.get_or_insert(error);
                Ok(None)
            }
            version => version,
        })?;
        if let Some(below) = self.lost_below(hash_of(key)?)?
            && found.as_ref().is_none_or(|it| it.seqno < below)
        {
            return Err(Error::corrupt("entry of a resident keyspace")
                .expected("a record that could be read when its segment was collected"));
        }
        match (found, damage) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// The seqno of the newest flushed version of the stored key `key`: of the first operation of its batch.
    ///
    /// # Errors
    /// As [`Resident::find`].
    pub fn newest(&self, key: &[u8]) -> Result<Option<Seqno>> {
        self.index.find(hash_of(key)?, |place| Ok(self.head(place, key)?.map(|head| head.seqno)))
    }

    /// No write above this seqno is in the index.
    pub fn indexed_up_to(&self) -> Seqno {
        Seqno::new(self.indexed_up_to.load(Ordering::Acquire))
    }

    /// Notes where the log has the batch `body`, whose record is at `address`, and whose operations have the
    /// seqnos from `first` on. To be called before its writes are in memtables; `memtable_for` returns that
    /// of a seqno, or `None` for a write that is not applied.
    ///
    /// # Errors
    /// Only if an invariant is broken.
    pub fn note<'a>(
        &self,
        appended: wal::Appended,
        batch: &wal::Batch<'_>,
        memtable_for: impl Fn(Seqno) -> Option<&'a Memtable>,
    ) -> Result<()> {
        let address = appended
            .address
            .ok_or_else(|| base::broken_invariant!("a write to a resident keyspace is logged"))?;
        let head = wal::head_bytes(batch);
        let mut seqno = appended.first;
        for op in decode_ops_at(batch.body) {
            let (at, op) = op?;
            if op.keyspace == self.keyspace {
                let place = self.segments.place(
                    address,
                    batch.ops,
                    head,
                    (at, op.key.len() + op.value.len()),
                )?;
                if let Some(memtable) = memtable_for(seqno) {
                    memtable.places().note(seqno, place);
                }
            }
            seqno = seqno.plus(1);
        }
        Ok(())
    }

    /// The number of shards of an index.
    pub const SHARDS: usize = index::SHARDS;

    /// The sections of a checkpoint with the shard `shard` as it is now.
    pub fn checkpoint_shard(&self, shard: usize) -> Vec<checkpoint::Section> {
        /// Slots of a section.
        const SECTION_SLOTS: usize = 60_000;
        let (keyspace, number) = (self.keyspace, shard as u32);
        let slots = self.index.slots_of(shard);
        let section = |slots: &[u64]| checkpoint::Section::Slots {
            keyspace,
            shard: number,
            slots: slots.to_vec(),
        };
        slots.chunks(SECTION_SLOTS).map(section).collect()
    }

    /// Adds slots of a checkpoint.
    ///
    /// # Errors
    /// `Corrupt` if they cannot be of an index; `Retry` without memory.
    pub fn load(&self, shard: u32, slots: &[u64]) -> Result<()> {
        self.index.load(usize::try_from(shard).unwrap_or(usize::MAX), slots)
    }

    /// Ends the load of a checkpoint with so many tombstones: removes the slots that point into segments that
    /// are not known. Writes below `end`, and others, are in the index.
    ///
    /// # Errors
    /// Only if an invariant is broken.
    pub fn loaded(&self, tombstones: u64, end: Seqno) -> Result<()> {
        self.index.retain(|place| self.segments.knows(place));
        for place in self.index.places() {
            self.segments.get(place)?.add();
        }
        self.index.add_tombstones(tombstones.min(self.index.sizes().entries));
        self.indexed_up_to.fetch_max(end.get(), Ordering::AcqRel);
        Ok(())
    }

    /// Whether the index has lost entries. Its slots alone do not tell, so that it is in no checkpoint then.
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Gives up what was loaded of a damaged checkpoint.
    pub fn unload(&self) {
        self.index.retain(|_| false);
    }

    /// The sizes of the index.
    pub fn sizes(&self) -> ResidentSizes {
        self.index.sizes()
    }

    /// The entry at `place`.
    fn entry(&self, place: Place) -> Result<ResidentEntry> {
        let segment = self.segments.get(place)?;
        let (start, at) = segment.record_of(place)?;
        let (bytes, from) = match at {
            None => {
                let batch = segment.stored().batch(start)?;
                let head = batch.head_bytes();
                (Bytes::from(batch.into_bytes()), head)
            }
            Some(at) => {
                segment.verify(start)?;
                (part(segment.stored(), start, at)?, 0)
            }
        };
        let op = op_at(&bytes, from)?;
        let (key, value) = (bytes.slice_ref(op.key), slice(&bytes, op.value));
        Ok(ResidentEntry { key, kind: op.kind, value })
    }

    /// The version at `place`, if it is one of `key`.
    fn version(&self, place: Place, key: &[u8]) -> Result<Option<ResidentVersion>> {
        let segment = self.segments.get(place)?;
        let (start, at) = segment.record_of(place)?;
        if let Some(at) = at {
            segment.verify(start)?;
            let Some(head) = self.head_of_part(&segment, start, at, key)? else {
                return Ok(None);
            };
            let mut value = vec![0; head.value_bytes];
            segment.stored().load(head.value_at, &mut value)?;
            let Head { seqno, kind, .. } = head;
            return Ok(Some(ResidentVersion { seqno, kind, value: Bytes::from(value) }));
        }
        let batch = segment.stored().batch(start)?;
        let (seqno, head) = (batch.first, batch.head_bytes());
        let bytes = Bytes::from(batch.into_bytes());
        let op = op_at(&bytes, head)?;
        let is_of_key = op.keyspace == self.keyspace && op.key == key;
        Ok(is_of_key.then(|| {
            let value = slice(&bytes, op.value);
            ResidentVersion { seqno, kind: op.kind, value }
        }))
    }

    /// The head of the operation at `place`, if it is one of `key`. Not verified: a damaged one is of no
    /// key, so that it keeps no flush from its end. A read of its key finds the damage.
    fn head(&self, place: Place, key: &[u8]) -> Result<Option<Head>> {
        let segment = self.segments.get(place)?;
        let (start, at) = segment.record_of(place)?;
        let at = at.unwrap_or(start + self.single_head_bytes());
        match self.head_of_part(&segment, start, at, key) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            head => head,
        }
    }

    /// Length of the record of one operation, up to the operation.
    fn single_head_bytes(&self) -> u64 {
        wal::head_bytes(&wal::Batch { keyspaces: &[self.keyspace], ops: 1, body: &[] }) as u64
    }

    /// The head of the operation at offset `at` within the record at `start`, if it is one of `key`.
    fn head_of_part(
        &self,
        segment: &LogSegment,
        start: u64,
        at: u64,
        key: &[u8],
    ) -> Result<Option<Head>> {
        /// The longest length of a value, as stored.
        const LENGTH_BYTES: u64 = 5;
        let (seqno, end) = segment.stored().extent(start)?;
        let mut wanted = vec![0];
        put_varint(&mut wanted, u64::from(self.keyspace.0));
        put_varint(&mut wanted, key.len() as u64);
        wanted.extend_from_slice(key);
        let value_at = at + wanted.len() as u64;
        if value_at > end {
            return Ok(None);
        }
        let mut bytes = vec![0; wanted.len() + LENGTH_BYTES.min(end - value_at) as usize];
        segment.stored().load(at, &mut bytes)?;
        let mut cursor = Cursor::new("log record", &bytes);
        let kind = EntryKind::decode(cursor.u8()?)?;
        if cursor.take(wanted.len() - 1)? != wanted.get(1..).unwrap_or_default() {
            return Ok(None);
        }
        let before = cursor.position();
        let value_bytes = match kind {
            EntryKind::Delete | base::LOST => 0,
            _ => cursor.length(usize::try_from(end - value_at).unwrap_or(usize::MAX))?,
        };
        let value_at = value_at + (cursor.position() - before) as u64;
        let seqno = segment.first_of_moved(start, at)?.unwrap_or(seqno);
        Ok(Some(Head { seqno, kind, value_at, value_bytes }))
    }
}

impl Drop for Resident {
    /// The keyspace was dropped, or the store is closed: nothing points into the segments any more.
    fn drop(&mut self) {
        for place in self.index.places() {
            if let Ok(segment) = self.segments.get(place) {
                segment.drop_one();
            }
        }
    }
}

/// The head of an operation in the log.
#[derive(Debug)]
struct Head {
    /// The first seqno of its batch.
    seqno: Seqno,
    kind: EntryKind,
    /// Offset of the value, and its length, bytes.
    value_at: u64,
    value_bytes: usize,
}

/// The bytes from the operation at offset `at` on, of the verified record at `start`: at least that
/// operation.
fn part(segment: &wal::StoredSegment, start: u64, at: u64) -> Result<Bytes> {
    /// Most operations are shorter.
    const FIRST_BYTES: u64 = 4096;
    let (_, end) = segment.extent(start)?;
    let left = end.saturating_sub(at);
    let mut length = FIRST_BYTES.min(left);
    loop {
        let mut bytes = vec![0; length as usize];
        segment.load(at, &mut bytes)?;
        let bytes = Bytes::from(bytes);
        if length == left || op_at(&bytes, 0).is_ok() {
            return Ok(bytes);
        }
        length = (length * 8).min(left);
    }
}

/// The operation at `from` within the record `bytes`.
fn op_at(bytes: &Bytes, from: usize) -> Result<BatchOp<'_>> {
    let op = decode_ops(bytes.get(from..).unwrap_or_default()).next();
    op.ok_or_else(|| Error::corrupt("log record").expected("an operation"))?
}

/// The part `part` of `bytes`; empty for an operation without a value.
fn slice(bytes: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { bytes.slice_ref(part) }
}

/// The hash that begins a stored key.
fn hash_of(key: &[u8]) -> Result<u64> {
    Ok(Cursor::new("key of a hashed keyspace", key).u64()?.swap_bytes())
}

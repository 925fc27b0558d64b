//! Options of a log, write batches, and the observer of batches.

use std::fmt;

use base::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, KEYSPACES_MAX, PAGE_BYTES};
use base::{Error, KeyspaceId, LaneId, Result, Seqno, StoreId, format_bytes};

use crate::known::Known;
use crate::position::{LANE, Reached};
use crate::start::Start;
use crate::summary::SegmentSummary;

/// The smallest segment, bytes: a header page and a few groups.
pub const SEGMENT_BYTES_MIN: u64 = 32 << 10;

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store the log belongs to; segments of another store are refused.
    pub store: StoreId,
    /// Length of a segment, bytes: a multiple of a page. A record that is larger gets a larger segment
    /// of its own.
    pub segment_bytes: u64,
    /// Length of the first segment of each lane after the open, if that is less. Each later one is twice as
    /// long as the one before it, up to `segment_bytes`: so a store that is written little has a small log.
    pub first_segment_bytes: u64,
    /// Every assigned seqno is above this one, whatever the log holds. The engine passes the largest
    /// seqno that its tables have or that it counts as flushed, so that no seqno is used twice (I4) after a
    /// log, or an unlogged batch, was lost.
    pub floor: Seqno,
    /// How recovery treats damage to durable records.
    pub recover: Recover,
    /// Bytes that a new segment must leave free on the device, but at most an eighth of the device, or what
    /// the log then has if that is more. The engine needs this space to flush the log's records, so that the
    /// log can be freed.
    pub leave_bytes: u64,
    /// The start of the log, as it was last recorded ([`crate::Log::free`]).
    pub start: Start,
    /// Whether the store has or had keyspaces. Then the log exists, and must reach `logged`.
    pub has_keyspaces: bool,
    /// As [`Known::logged`].
    pub logged: Seqno,
    /// As [`Known::reached`].
    pub reached: Option<Reached>,
    /// Whether batches may go unlogged from the open on ([`crate::Log::allow_gaps`]).
    pub has_gaps: bool,
    /// The lanes that receive appends, in any order. Other lanes on the medium are replayed, and freed once
    /// their records are dead. A lane that is not fenced is alone.
    pub lanes: Vec<LaneId>,
    /// The lanes are on storage-class memory: a fence behind each group makes it durable, and an append
    /// returns once all earlier ones are durable too.
    pub is_fenced: bool,
    /// The oldest segments of each lane that need not be read ([`crate::skippable`]).
    pub summaries: Vec<SegmentSummary>,
}

/// The most lanes that receive appends.
pub const LANES_MAX: usize = 64;

impl Options {
    /// Segments of 64 MiB, strict recovery, no floor, no space left free, no start and no end recorded, no
    /// keyspaces, every batch logged.
    #[must_use]
    pub fn new(store: StoreId) -> Self {
        let (floor, recover) = (Seqno::ZERO, Recover::Strict);
        let start = Start::new();
        Self {
            store,
            segment_bytes: 64 << 20,
            first_segment_bytes: 64 << 20,
            floor,
            recover,
            leave_bytes: 0,
            start,
            has_keyspaces: false,
            logged: Seqno::ZERO,
            reached: None,
            has_gaps: false,
            lanes: vec![LANE],
            is_fenced: false,
            summaries: Vec::new(),
        }
    }

    /// The facts about the log that recovery gets.
    pub(crate) fn known(&self) -> Known {
        let Self { start, logged, has_keyspaces, reached, lanes, .. } = self;
        let (start, lanes) = (start.clone(), lanes.clone());
        let (logged, has_keyspaces, reached) = (*logged, *has_keyspaces, *reached);
        Known { start, logged, has_keyspaces, reached, lanes }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let most = if self.is_fenced { LANES_MAX } else { 1 };
        let distinct = self
            .lanes
            .iter()
            .enumerate()
            .all(|(at, lane)| !self.lanes.iter().skip(at + 1).any(|other| other == lane));
        if !(1..=most).contains(&self.lanes.len()) || !distinct {
            return Err(Error::invalid("lanes of the log")
                .expected(format_args!("from 1 to {most}, each once"))
                .got(self.lanes.len()));
        }
        for bytes in [self.segment_bytes, self.first_segment_bytes] {
            let whole = bytes.is_multiple_of(PAGE_BYTES as u64);
            if !whole || !(SEGMENT_BYTES_MIN..=1 << 40).contains(&bytes) {
                return Err(Error::invalid("log segment size")
                    .expected(format_args!(
                        "a multiple of {PAGE_BYTES}, from {} to 1 TiB",
                        format_bytes(SEGMENT_BYTES_MIN)
                    ))
                    .got(bytes));
            }
        }
        Ok(())
    }
}

/// How recovery treats damage to durable records.
///
/// A tail that never became durable is not damage: both settings cut it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recover {
    /// Refuse to open, because acknowledged writes would be lost.
    #[default]
    Strict,
    /// Replay the readable records before and after the damage, and report the losses.
    ///
    /// The log stays damaged: strict recovery refuses it until the replayed records are flushed and
    /// freed ([`crate::Log::flushed`], [`crate::Log::free`]).
    PastDamage,
}

/// One write batch: it becomes one record, whole or absent (I11).
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The keyspaces that the batch writes to, each once. The record lives until it is dead in all of
    /// them.
    pub keyspaces: &'a [KeyspaceId],
    /// Number of operations; the batch takes as many seqnos.
    pub ops: u32,
    /// The operations, in the engine's encoding.
    pub body: &'a [u8],
}

/// Sees every batch when it is assigned its seqnos, in seqno order.
///
/// The leader of a group calls it between two appends: it must be quick, and must not use the log.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A batch with these operations was appended. Its first seqno is `first`.
    fn appended(&self, first: Seqno, body: &[u8]);
}

impl Batch<'_> {
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what: &'static str, most: usize, got: usize| {
            Err(Error::invalid(what).expected(format_args!("from 1 to {most}")).got(got))
        };
        if self.ops == 0 || self.ops as usize > BATCH_OPS_MAX {
            return refused("operations in a batch", BATCH_OPS_MAX, self.ops as usize);
        }
        if self.keyspaces.is_empty() || self.keyspaces.len() > KEYSPACES_MAX {
            return refused("keyspaces in a batch", KEYSPACES_MAX, self.keyspaces.len());
        }
        if self.body.len() > BATCH_BYTES_MAX {
            return Err(Error::invalid("batch")
                .expected(format_args!("at most {}", format_bytes(BATCH_BYTES_MAX as u64)))
                .got(format_bytes(self.body.len() as u64)));
        }
        Ok(())
    }
}

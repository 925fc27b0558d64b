//! Which versions survive a flush or a merge. This module alone decides it.
//!
//! Versions arrive in table order: keys ascend, and within a key the newest version is first. Survivors leave
//! in the same order, either at once or when older versions of the key have decided their case. Every rule
//! gives each read of the [`Horizon`] and every later read the same answer as before:
//!
//! - A version survives if some read sees it and does not see the next newer put, delete or range delete of
//!   its key (a merge operand does not hide older versions).
//! - An expired value becomes a tombstone.
//! - A tombstone is dropped if no older version of its key survives and no older table may hold the key (I5).
//!   So it is held back until the older versions of its key have passed.
//! - Merge operands that the same reads see are merged into one value with the put, the tombstone or the
//!   absence of a value below them. If the version below is unknown, they become one operand if the operator
//!   can combine them, or a few short ones if one would be too long. Operands that the operator refuses, or
//!   that find no memory, are kept as they are. An expiring value is never merged with operands: the result
//!   would differ before and after its expiry.
//!
//! Pure except for the calls of the user's operator. Memory: the current key, and pending operands up to a
//! bound. Cost: one comparison per version and a copy per key, about 10 ns per version.

use std::sync::Arc;

use base::{
    Account, EntryKind, Error, Result, Seqno, Trailer, broken_invariant, expiry, invariant,
};
use table::Pointer;

use crate::operands::Operands;
use crate::{EntrySums, Horizon, MergeOperator, OlderRanges, RetainedVersion, VersionCounts};

#[cfg(test)]
mod tests;

/// The inputs of every decision of [`Retention`].
#[derive(Clone, Debug)]
pub struct RetentionRules {
    /// The sequence numbers of open reads.
    pub horizon: Horizon,
    /// The current time, Unix milliseconds. No later read uses an earlier time.
    pub now_ms: u64,
    /// Key ranges that older tables may hold.
    pub older: OlderRanges,
    /// Operands are not merged to a longer value: it could not be read with this memory limit.
    pub value_bytes_max: usize,
    /// The keyspace's merge operator, if it has one and this process knows it.
    pub operator: Option<Arc<dyn MergeOperator>>,
}

/// Decides for each version of a sorted stream whether it survives.
#[derive(Debug)]
pub struct Retention {
    rules: RetentionRules,
    key: Vec<u8>,
    /// Whether more versions of `key` may arrive.
    has_key: bool,
    /// Range deletes over `key` that are older than every version so far, newest last.
    covering: Vec<Seqno>,
    /// Sequence number of the last version of `key`; the next one is not newer.
    last: Seqno,
    /// Sequence number of the oldest put, delete or range delete of `key` so far: it hides older versions.
    superseder: Option<Seqno>,
    /// Whether `superseder` is a range delete.
    superseder_is_range: bool,
    /// Tombstones of `key` that are kept only if an older version survives.
    tombstones: Vec<PendingTombstone>,
    operands: Operands,
    counts: VersionCounts,
    /// The sums of entries so far, if they are counted. Complete only between keys.
    sums: Option<EntrySums>,
}

#[derive(Debug)]
struct PendingTombstone {
    trailer: Trailer,
    superseded_by: Option<Seqno>,
    /// Whether the tombstone was an expired value.
    expired: bool,
}

/// The version directly below the pending operands, as all reads that see the operands see it.
#[derive(Clone, Copy)]
enum OperandBase<'a> {
    Value(&'a [u8]),
    Nothing,
    Unknown,
}

impl Retention {
    /// A `Retention` by `rules`. Pending operands are charged to `account`.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub fn new(rules: RetentionRules, account: &Account) -> Result<Self> {
        let value_bytes_max = rules.value_bytes_max;
        Ok(Self {
            rules,
            key: Vec::new(),
            has_key: false,
            covering: Vec::new(),
            last: Seqno::MAX,
            superseder: None,
            superseder_is_range: false,
            tombstones: Vec::new(),
            operands: Operands::new(account, value_bytes_max)?,
            counts: VersionCounts::default(),
            sums: None,
        })
    }

    /// Counts the sums of entries from now on.
    pub(crate) fn sum_entries(&mut self) {
        invariant!(self.counts.read == 0, "the sums of entries are counted from the first one on");
        self.sums = Some(EntrySums::default());
    }

    /// The sums of entries so far, to be complete between keys; `None` if they are not counted.
    pub(crate) const fn sums(&mut self) -> Option<&mut EntrySums> {
        self.sums.as_mut()
    }

    /// Versions so far, by result. Balanced only between keys, because held versions are not counted yet.
    #[must_use]
    pub const fn counts(&self) -> &VersionCounts {
        &self.counts
    }

    /// Takes the next version and passes survivors to `emit`. `covering` are the sequence numbers of the
    /// range deletes over the key, newest first; they are read only with the key's newest version.
    ///
    /// # Errors
    /// `Corrupt` if a table cannot hold such a version; otherwise the error of `emit`.
    #[inline]
    pub fn version<F>(
        &mut self,
        key: &[u8],
        covering: &[Seqno],
        trailer: Trailer,
        value: &[u8],
        emit: &mut F,
    ) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        if !self.has_key || *key != *self.key {
            self.end_key(emit)?;
            self.begin_key(key, covering);
        }
        self.counts.read += 1;
        self.sums.iter_mut().for_each(|sums| sums.read(key, trailer, value));
        let seqno = trailer.seqno();
        if seqno > self.last {
            return Err(Error::corrupt("order of versions")
                .expected(format_args!("at most {}", self.last))
                .got(seqno));
        }
        self.last = seqno;
        if !self.covering.is_empty() {
            self.pass_range_deletes(Some(seqno), emit)?;
        }
        if let Some(superseder) = self.superseder
            && !self.rules.horizon.needs(seqno, superseder)
        {
            let reason = match self.superseder_is_range {
                true => &mut self.counts.range_deleted,
                false => &mut self.counts.superseded,
            };
            *reason += 1;
            self.sums.iter_mut().for_each(|sums| sums.dropped(key, trailer, value));
            return Ok(());
        }
        match trailer.kind()? {
            EntryKind::Merge => return self.operand(trailer, value, emit),
            EntryKind::Put => self.put(trailer, value, OperandBase::Value(value), emit)?,
            EntryKind::PutExpiring => {
                self.expiring(trailer, value, expiry::split(value)?.0, emit)?
            }
            EntryKind::PutPointer => match Pointer::decode(value)?.expiry {
                // The value is in another file and is not read here.
                0 => self.put(trailer, value, OperandBase::Unknown, emit)?,
                expiry => self.expiring(trailer, value, expiry, emit)?,
            },
            EntryKind::Delete => self.delete(trailer, false, emit)?,
            EntryKind::DeleteRange => {
                return Err(Error::corrupt("kind of a version")
                    .expected("an entry of one key")
                    .got("a range delete"));
            }
        }
        (self.superseder, self.superseder_is_range) = (Some(seqno), false);
        Ok(())
    }

    fn begin_key(&mut self, key: &[u8], covering: &[Seqno]) {
        invariant!(
            self.operands.is_empty() && self.tombstones.is_empty(),
            "nothing of the previous key is pending"
        );
        debug_assert!(covering.is_sorted_by(|a, b| a >= b), "range deletes come newest first");
        self.has_key = true;
        self.last = Seqno::MAX;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.superseder = None;
        self.covering.clear();
        self.covering.extend(covering.iter().rev());
    }

    /// Ends the current key: decides about its pending operands and tombstones.
    ///
    /// # Errors
    /// The error of `emit`.
    pub fn end_key<F>(&mut self, emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        if !self.has_key {
            return Ok(());
        }
        self.pass_range_deletes(None, emit)?;
        self.has_key = false;
        if self.operands.is_empty() && self.tombstones.is_empty() {
            return Ok(());
        }
        if self.rules.older.may_hold(&self.key) {
            self.emit_operands(OperandBase::Unknown, emit)?;
            return self.emit_tombstones(emit);
        }
        self.emit_operands(OperandBase::Nothing, emit)?;
        let oldest_reader = self.rules.horizon.oldest();
        for (number, delete) in self.tombstones.drain(..).enumerate() {
            // Transactions compare sequence numbers: the newest tombstone shows a read older than it that the
            // key was written since.
            if number == 0 && delete.trailer.seqno() > oldest_reader {
                let PendingTombstone { trailer, superseded_by, .. } = delete;
                self.counts.kept += 1;
                emit(RetainedVersion { key: &self.key, trailer, value: &[], superseded_by })?;
                continue;
            }
            if let Some(sums) = &mut self.sums {
                sums.dropped(&self.key, delete.trailer, &[]);
            }
            let reason = match delete.expired {
                true => &mut self.counts.expired,
                false => &mut self.counts.deleted,
            };
            *reason += 1;
        }
        debug_assert!(self.counts.is_balanced(), "{:?}", self.counts);
        Ok(())
    }

    /// Whether `key` differs from the key of the last version.
    pub(crate) fn is_new_key(&self, key: &[u8]) -> bool {
        !self.has_key || *key != *self.key
    }

    /// Whether operands of `key` are waiting for the version below them.
    pub(crate) fn has_pending_operands(&self, key: &[u8]) -> bool {
        !self.operands.is_empty() && self.has_key && *key == *self.key
    }

    /// Counts `versions` versions that block passthrough kept without showing them here. The key before them
    /// must be ended. Each is a put and the newest version of its key; the last one is `key` at `seqno`.
    pub(crate) fn note_passed_block(
        &mut self,
        (versions, entry_sum): (u64, u64),
        key: &[u8],
        seqno: Seqno,
    ) {
        invariant!(versions > 0 && !self.has_key, "the key before a passed block is ended");
        self.counts.read += versions;
        self.counts.kept += versions;
        if let Some(sums) = &mut self.sums {
            sums.passed(entry_sum);
        }
        self.begin_key(key, &[]);
        self.last = seqno;
        (self.superseder, self.superseder_is_range) = (Some(seqno), false);
    }

    /// Applies the range deletes that are newer than the version at `seqno`; all of them if it is `None`.
    fn pass_range_deletes<F>(&mut self, seqno: Option<Seqno>, emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        let newer = |range: &mut Seqno| seqno.is_none_or(|seqno| *range > seqno);
        while let Some(range) = self.covering.pop_if(newer) {
            self.emit_operands(self.base_if_shared(range, OperandBase::Nothing), emit)?;
            (self.superseder, self.superseder_is_range) = (Some(range), true);
        }
        Ok(())
    }

    /// `base` if the pending operands can be merged with the version at `seqno`: every read that sees that
    /// version sees the operands too. Otherwise `Unknown`.
    fn base_if_shared<'a>(&self, seqno: Seqno, base: OperandBase<'a>) -> OperandBase<'a> {
        match self.operands.newest() {
            Some(newest) if self.rules.horizon.needs(seqno, newest.seqno()) => OperandBase::Unknown,
            _ => base,
        }
    }

    fn put<F>(
        &mut self,
        trailer: Trailer,
        stored: &[u8],
        base: OperandBase<'_>,
        emit: &mut F,
    ) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        if !self.operands.is_empty()
            && self.emit_operands(self.base_if_shared(trailer.seqno(), base), emit)?
        {
            self.counts.merged += 1;
            if let Some(sums) = &mut self.sums {
                sums.dropped(&self.key, trailer, stored);
            }
            return Ok(());
        }
        self.emit_tombstones(emit)?;
        self.emit_version(trailer, stored, emit)
    }

    /// A put with an expiry: a tombstone if `expiry` has passed, else a put that operands are never merged
    /// with.
    fn expiring<F>(
        &mut self,
        trailer: Trailer,
        stored: &[u8],
        expiry: u64,
        emit: &mut F,
    ) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        match expiry <= self.rules.now_ms {
            true => {
                if let Some(sums) = &mut self.sums {
                    sums.dropped(&self.key, trailer, stored);
                    let tombstone = Trailer::new(trailer.seqno(), EntryKind::Delete);
                    sums.made(&self.key, tombstone, &[]);
                }
                self.delete(trailer, true, emit)
            }
            false => self.put(trailer, stored, OperandBase::Unknown, emit),
        }
    }

    fn delete<F>(&mut self, trailer: Trailer, expired: bool, emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        if !self.operands.is_empty()
            && self
                .emit_operands(self.base_if_shared(trailer.seqno(), OperandBase::Nothing), emit)?
        {
            self.counts.merged += 1;
            if let Some(sums) = &mut self.sums {
                let tombstone = Trailer::new(trailer.seqno(), EntryKind::Delete);
                sums.dropped(&self.key, tombstone, &[]);
            }
            return Ok(());
        }
        let trailer = Trailer::new(trailer.seqno(), EntryKind::Delete);
        self.tombstones.push(PendingTombstone { trailer, superseded_by: self.superseder, expired });
        Ok(())
    }

    fn operand<F>(&mut self, trailer: Trailer, operand: &[u8], emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        if let Some(newest) = self.operands.newest()
            && self.rules.horizon.needs(trailer.seqno(), newest.seqno())
        {
            self.emit_operands(OperandBase::Unknown, emit)?;
        }
        if self.rules.operator.is_some() {
            if self.operands.push(trailer, operand) {
                return Ok(());
            }
            // The pending operands are newer than this one, so they leave first anyway and make room for it.
            self.emit_operands(OperandBase::Unknown, emit)?;
            if self.operands.push(trailer, operand) {
                return Ok(());
            }
        }
        self.emit_tombstones(emit)?;
        self.emit_version(trailer, operand, emit)
    }

    /// Emits the pending operands: merged with `base`, else combined, else unchanged. Returns whether `base`
    /// was merged into the result.
    fn emit_operands<F>(&mut self, base: OperandBase<'_>, emit: &mut F) -> Result<bool>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        let Some(newest) = self.operands.newest() else { return Ok(false) };
        // The tombstones are newer than the operands, and entries leave newest first.
        self.emit_tombstones(emit)?;
        let Some(operator) = self.rules.operator.as_deref() else {
            return Err(broken_invariant!("operands are held only if there is an operator"));
        };
        let merged = match base {
            OperandBase::Value(value) => self.operands.merge(operator, &self.key, Some(value)),
            OperandBase::Nothing => self.operands.merge(operator, &self.key, None),
            OperandBase::Unknown => None,
        };
        let takes_base = merged.is_some();
        let made = match merged {
            Some(value) => Some((EntryKind::Put, value)),
            None => {
                let combined = self.operands.combine(operator, &self.key);
                combined.map(|operand| (EntryKind::Merge, operand))
            }
        };
        let (key, superseded_by) = (&*self.key, self.superseder);
        if let Some(sums) = &mut self.sums {
            self.operands.iter().for_each(|(trailer, operand)| sums.dropped(key, trailer, operand));
        }
        match made {
            Some((kind, value)) => {
                self.counts.merged += self.operands.count() as u64 - 1;
                self.counts.kept += 1;
                let trailer = Trailer::new(newest.seqno(), kind);
                if let Some(sums) = &mut self.sums {
                    sums.made(key, trailer, &value);
                }
                self.operands.clear(value.len());
                emit(RetainedVersion { key, trailer, value: &value, superseded_by })?;
            }
            None => {
                for (trailer, value, count) in self.operands.combined_parts(operator, key) {
                    self.counts.merged += count as u64 - 1;
                    self.counts.kept += 1;
                    if let Some(sums) = &mut self.sums {
                        sums.made(key, trailer, &value);
                    }
                    emit(RetainedVersion { key, trailer, value: &value, superseded_by })?;
                }
            }
        }
        self.operands.clear(0);
        Ok(takes_base)
    }

    /// Emits the pending tombstones: an older version of the key survives.
    #[inline]
    fn emit_tombstones<F>(&mut self, emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        for PendingTombstone { trailer, superseded_by, .. } in self.tombstones.drain(..) {
            self.counts.kept += 1;
            emit(RetainedVersion { key: &self.key, trailer, value: &[], superseded_by })?;
        }
        Ok(())
    }

    /// Emits the current version unchanged.
    #[inline]
    fn emit_version<F>(&mut self, trailer: Trailer, value: &[u8], emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        self.counts.kept += 1;
        emit(RetainedVersion { key: &self.key, trailer, value, superseded_by: self.superseder })
    }

    /// Appends the sequence numbers of the range deletes from `start` to `end` that survive to `kept`.
    /// `seqnos` are all range deletes of that fragment, newest first.
    ///
    /// A range delete is dropped if a newer one hides the same versions from the same reads, or if it can
    /// hide nothing: no older table holds keys of the range, and no read is older than the range delete.
    pub fn range_deletes(
        &mut self,
        start: &[u8],
        end: Option<&[u8]>,
        seqnos: &[Seqno],
        kept: &mut Vec<Seqno>,
    ) {
        let older = self.rules.older.overlaps(start, end);
        debug_assert!(seqnos.is_sorted_by(|a, b| a > b), "range deletes come newest first");
        let horizon = &self.rules.horizon;
        let oldest_reader = horizon.seqnos().first();
        let mut newer = None;
        for seqno in seqnos {
            let hidden = newer.is_some_and(|newer| !horizon.needs(*seqno, newer));
            let bare = !older && oldest_reader.is_some_and(|reader| seqno <= reader);
            if !hidden && !bare {
                kept.push(*seqno);
            }
            newer = Some(*seqno);
        }
    }
}

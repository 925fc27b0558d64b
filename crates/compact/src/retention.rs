//! Which versions survive a flush or a merge: decided here and nowhere else.
//!
//! Versions come in the order tables store them, keys ascending and newest first within a key, and
//! what survives goes out in the same order, at once or when the key's older versions have decided
//! it. The rules, each exact for every reader of the [`Horizon`] and all readers to come:
//!
//! - A version stays where some reader sees it and not the next newer version (or covering range
//!   delete) that says all by itself.
//! - A value that has expired is a delete, and is stored as one.
//! - A delete goes where no older version of its key survives and no older source can hold the key
//!   (I5); so it waits for the key's older versions.
//! - Merge operands that the same readers see become a value with the put, delete or nothing under
//!   them, or else one operand where the operator can combine them. What does not fit, or finds no
//!   memory, stays as it is. A value that will expire is no base: before its expiry the operands
//!   stand over it, afterwards over nothing.
//!
//! Pure but for the operator's code. Memory: the present key, and waiting operands up to a bound.
//! Costs a comparison and a copy of each new key, some 10 ns a version.

use std::sync::Arc;

use base::{Account, EntryKind, Error, Result, Seqno, Trailer, expiry};
use table::Pointer;

use crate::operands::Operands;
use crate::{Horizon, MergeOperator, OlderRanges, RetainedVersion, VersionCounts};

#[cfg(test)]
mod tests;

/// What a flush or a merge is to go by.
#[derive(Clone, Debug)]
pub struct RetentionRules {
    /// Who reads.
    pub horizon: Horizon,
    /// The time, Unix milliseconds. No reader to come has an earlier one.
    pub now_ms: u64,
    /// What older sources may hold.
    pub older: OlderRanges,
    /// The keyspace's operator, where it has one that this process knows.
    pub operator: Option<Arc<dyn MergeOperator>>,
}

/// Decides for each version of a sorted stream whether it survives.
#[derive(Debug)]
pub struct Retention {
    rules: RetentionRules,
    key: Vec<u8>,
    /// Whether `key` is a key whose versions may still come.
    has_key: bool,
    /// The range deletes over the key that no version has passed yet, newest last.
    covering: Vec<Seqno>,
    /// The oldest so far of the key's versions and range deletes that say all by themselves.
    superseder: Option<Seqno>,
    /// Whether `superseder` is a range delete.
    superseder_is_range: bool,
    /// Deletes that wait for an older version.
    tombstones: Vec<PendingTombstone>,
    operands: Operands,
    counts: VersionCounts,
}

#[derive(Debug)]
struct PendingTombstone {
    trailer: Trailer,
    superseded_by: Option<Seqno>,
    /// Whether it was a value that expired.
    expired: bool,
}

/// What lies right under the waiting operands, for the readers that see them.
#[derive(Clone, Copy)]
enum OperandBase<'a> {
    Value(&'a [u8]),
    Nothing,
    Unknown,
}

impl Retention {
    /// Decides by `rules`; operands that wait are charged to `account`.
    ///
    /// # Errors
    /// `Retry` where memory is short.
    pub fn new(rules: RetentionRules, account: &Account) -> Result<Self> {
        Ok(Self {
            rules,
            key: Vec::new(),
            has_key: false,
            covering: Vec::new(),
            superseder: None,
            superseder_is_range: false,
            tombstones: Vec::new(),
            operands: Operands::new(account)?,
            counts: VersionCounts::default(),
        })
    }

    /// What became of the versions so far. Balanced between keys.
    #[must_use]
    pub const fn counts(&self) -> &VersionCounts {
        &self.counts
    }

    /// Takes the next version. `covering` are the sequence numbers of the range deletes over the
    /// key, newest first; only those handed with a key's newest version count.
    ///
    /// # Errors
    /// `Corrupt` where the version is none that tables hold; otherwise as `keep`.
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
        let seqno = trailer.seqno();
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
            return Ok(());
        }
        match trailer.kind()? {
            EntryKind::Merge => return self.operand(trailer, value, emit),
            EntryKind::Put => self.put(trailer, value, OperandBase::Value(value), emit)?,
            EntryKind::PutExpiring => {
                self.expiring(trailer, value, expiry::split(value)?.0, emit)?
            }
            EntryKind::PutPointer => match Pointer::decode(value)?.expiry {
                // Where it leads is not read here.
                0 => self.put(trailer, value, OperandBase::Unknown, emit)?,
                expiry => self.expiring(trailer, value, expiry, emit)?,
            },
            EntryKind::Delete => self.delete(trailer, false, emit)?,
            EntryKind::DeleteRange => {
                return Err(Error::corrupt("kind of a version").got("a range delete"));
            }
        }
        (self.superseder, self.superseder_is_range) = (Some(seqno), false);
        Ok(())
    }

    fn begin_key(&mut self, key: &[u8], covering: &[Seqno]) {
        self.has_key = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.superseder = None;
        self.covering.clear();
        self.covering.extend(covering.iter().rev());
    }

    /// Ends the present key: the last that waits is decided.
    ///
    /// # Errors
    /// As `keep`.
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
            // The newest tells a reader from before it that the key was written to since.
            if number == 0 && delete.trailer.seqno() > oldest_reader {
                let PendingTombstone { trailer, superseded_by, .. } = delete;
                self.counts.kept += 1;
                emit(RetainedVersion { key: &self.key, trailer, value: &[], superseded_by })?;
                continue;
            }
            let reason = match delete.expired {
                true => &mut self.counts.expired,
                false => &mut self.counts.deleted,
            };
            *reason += 1;
        }
        Ok(())
    }

    /// Whether `key` is another than that of the version taken last.
    pub(crate) fn is_new_key(&self, key: &[u8]) -> bool {
        !self.has_key || *key != *self.key
    }

    /// Whether operands of `key` wait for the value under them.
    pub(crate) fn has_pending_operands(&self, key: &[u8]) -> bool {
        !self.operands.is_empty() && self.has_key && *key == *self.key
    }

    /// Takes note of `versions` versions that were kept elsewhere, once the key before them was ended:
    /// each the newest of its key, and saying all by itself. The last of them was `key` at `seqno`.
    pub(crate) fn note_passed_block(&mut self, versions: u64, key: &[u8], seqno: Seqno) {
        self.counts.read += versions;
        self.counts.kept += versions;
        self.begin_key(key, &[]);
        (self.superseder, self.superseder_is_range) = (Some(seqno), false);
    }

    /// Passes the range deletes that are newer than the version at `seqno`, or all.
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

    /// `base` where every reader of the waiting operands that sees them sees what is at `seqno`
    /// right under them, and no other reader sees that alone.
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
            return Ok(());
        }
        self.emit_tombstones(emit)?;
        self.emit_version(trailer, stored, emit)
    }

    /// A value that says nothing any more from `expiry` on, and is no base for operands before.
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
            true => self.delete(trailer, true, emit),
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
            // Those that wait make room; they are newer, so they go first in any case.
            self.emit_operands(OperandBase::Unknown, emit)?;
            if self.operands.push(trailer, operand) {
                return Ok(());
            }
        }
        self.emit_tombstones(emit)?;
        self.emit_version(trailer, operand, emit)
    }

    /// Lets the waiting operands go: merged into `base`, combined, or as they are. Whether they
    /// took in `base`.
    fn emit_operands<F>(&mut self, base: OperandBase<'_>, emit: &mut F) -> Result<bool>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        let (Some(newest), Some(operator)) =
            (self.operands.newest(), self.rules.operator.as_deref())
        else {
            return Ok(false);
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
        self.emit_tombstones(emit)?;
        let (key, superseded_by) = (&*self.key, self.superseder);
        match made {
            Some((kind, value)) => {
                self.counts.merged += self.operands.count() as u64 - 1;
                self.counts.kept += 1;
                let trailer = Trailer::new(newest.seqno(), kind);
                self.operands.clear(value.len());
                emit(RetainedVersion { key, trailer, value: &value, superseded_by })?;
            }
            None => {
                self.counts.kept += self.operands.count() as u64;
                for (trailer, value) in self.operands.iter() {
                    emit(RetainedVersion { key, trailer, value, superseded_by })?;
                }
            }
        }
        self.operands.clear(0);
        Ok(takes_base)
    }

    /// An older version survives, so the deletes over it do.
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

    /// The version at hand survives as it is.
    #[inline]
    fn emit_version<F>(&mut self, trailer: Trailer, value: &[u8], emit: &mut F) -> Result<()>
    where
        F: FnMut(RetainedVersion<'_>) -> Result<()>,
    {
        self.counts.kept += 1;
        emit(RetainedVersion { key: &self.key, trailer, value, superseded_by: self.superseder })
    }

    /// Appends to `kept` the sequence numbers of those range deletes over the keys from `start` up
    /// to `end` that survive; `seqnos` are all that there are, newest first.
    ///
    /// One goes where a newer one hides the same from the same readers, and where nothing can be
    /// under it: no older source holds keys of the range, and no reader needs older versions here.
    pub fn range_deletes(
        &mut self,
        start: &[u8],
        end: Option<&[u8]>,
        seqnos: &[Seqno],
        kept: &mut Vec<Seqno>,
    ) {
        let older = self.rules.older.overlaps(start, end);
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

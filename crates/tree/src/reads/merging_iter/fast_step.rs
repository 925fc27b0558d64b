//! The fast path of a forward step: most steps of a walk need only the current block.
//!
//! If the current source remains the first in order after its next entry, and that entry is its key's whole
//! value, then it is the next result. The heap does not change, nothing is resolved, and nothing is copied,
//! except the previous key if its source may have more versions of it. Every other case is left to
//! [`MergingIter::start`].

use base::Result;

use super::{Current, MergingIter, Phase, Source, is_put};

/// The result of a fast step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastStep {
    /// The iterator is at the next key.
    Done,
    /// The source moved, but the step is not complete: run the operation to its end.
    Unsettled,
    /// Nothing moved.
    NotApplicable,
}

impl MergingIter {
    /// Goes to the next key if that needs neither a page nor another source.
    ///
    /// # Errors
    /// `Corrupt` if the block is damaged; then there is no current entry.
    #[inline]
    pub fn fast_next(&mut self) -> Result<FastStep> {
        let Current::Entry { number, unique: true } = self.current else {
            return Ok(FastStep::NotApplicable);
        };
        if !self.forward || !self.range_deletes.is_empty() {
            return Ok(FastStep::NotApplicable);
        }
        let Some(source) = self.sources.get_mut(number) else { return Ok(FastStep::NotApplicable) };
        // Further versions of the previous key can follow only in this source.
        let repeats = source.repeats_keys();
        if let Some((key, _)) = source.entry().filter(|_| repeats) {
            let left = self.skip.get_or_insert_default();
            left.clear();
            left.extend_from_slice(key);
        }
        match source.fast_next() {
            Ok(true) => {}
            Ok(false) => return Ok(FastStep::NotApplicable),
            Err(error) => {
                self.current = Current::Invalid;
                return Err(error);
            }
        }
        if let Some((key, trailer)) = self.sources.get(number).and_then(Source::entry)
            && is_put(trailer)
            && trailer.seqno() <= self.at
            && self.second_key().is_none_or(|second| key < second)
            && !(repeats && self.skip.as_deref() == Some(key))
        {
            return Ok(FastStep::Done);
        }
        self.current = Current::Invalid;
        self.dead.begin();
        self.phase = Phase::Settle;
        self.pending = None;
        self.after_first_moved();
        Ok(FastStep::Unsettled)
    }
}

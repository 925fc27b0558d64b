//! Steps forward that need nothing but the block at hand: most steps of a walk.
//!
//! Where the source that the cursor stands on stays the first when it goes on, and its next entry says
//! its key's value, that is the next key: neither the order of the sources changes nor is anything
//! resolved, and nothing is copied but the key that is left, where its source may have more versions
//! of it. Everything else is for [`MergingIter::start`].

use base::Result;

use super::{Current, MergingIter, Phase, Source, is_put};

/// What a step at hand came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastStep {
    /// It stands on the next key.
    Done,
    /// The source moved; the operation is to be run to its end.
    Unsettled,
    /// Nothing moved.
    NotApplicable,
}

impl MergingIter {
    /// Goes to the next key, where that needs no page and nothing else to be looked at.
    ///
    /// # Errors
    /// `Corrupt` where the block is damaged; it then stands nowhere.
    #[inline]
    pub fn fast_next(&mut self) -> Result<FastStep> {
        let Current::Entry { number, unique: true } = self.current else {
            return Ok(FastStep::NotApplicable);
        };
        if !self.forward || !self.range_deletes.is_empty() {
            return Ok(FastStep::NotApplicable);
        }
        let Some(source) = self.sources.get_mut(number) else { return Ok(FastStep::NotApplicable) };
        // Versions of the key that is left follow in this source only, if anywhere.
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
        self.phase = Phase::Settle;
        self.pending = None;
        self.after_first_moved();
        Ok(FastStep::Unsettled)
    }
}

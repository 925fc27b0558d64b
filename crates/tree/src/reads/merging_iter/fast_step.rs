//! Steps forward that need nothing but the block at hand: most steps of a walk.
//!
//! Where the source that the cursor stands on stays the first when it goes on, and its next entry says
//! its key's value, that is the next key: neither the order of the sources changes nor is anything
//! resolved, and nothing is copied but the key that is left, where its source may have more versions
//! of it. Everything else is for [`MergingIter::start`].

use base::Result;

use super::{MergingIter, Phase, Source, Standing, is_put};

/// What a step at hand came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastStep {
    /// It stands on the next key.
    Stands,
    /// The source moved; the operation is to be run to its end.
    Moved,
    /// Nothing moved.
    No,
}

impl MergingIter {
    /// Goes to the next key, where that needs no page and nothing else to be looked at.
    ///
    /// # Errors
    /// `Corrupt` where the block is damaged; it then stands nowhere.
    #[inline]
    pub fn next_at_hand(&mut self) -> Result<FastStep> {
        let Standing::Entry { number, alone: true } = self.standing else {
            return Ok(FastStep::No);
        };
        if !self.forward || !self.covers.is_empty() {
            return Ok(FastStep::No);
        }
        let Some(source) = self.sources.get_mut(number) else { return Ok(FastStep::No) };
        // Versions of the key that is left follow in this source only, if anywhere.
        let repeats = source.repeats_keys();
        if let Some((key, _)) = source.entry().filter(|_| repeats) {
            let left = self.skip.get_or_insert_default();
            left.clear();
            left.extend_from_slice(key);
        }
        match source.next_at_hand() {
            Ok(true) => {}
            Ok(false) => return Ok(FastStep::No),
            Err(error) => {
                self.standing = Standing::Nowhere;
                return Err(error);
            }
        }
        if let Some((key, trailer)) = self.sources.get(number).and_then(Source::entry)
            && is_put(trailer)
            && trailer.seqno() <= self.at
            && self.second_key().is_none_or(|second| key < second)
            && !(repeats && self.skip.as_deref() == Some(key))
        {
            return Ok(FastStep::Stands);
        }
        self.standing = Standing::Nowhere;
        self.phase = Phase::Settle;
        self.pending = None;
        self.first_moved();
        Ok(FastStep::Moved)
    }
}

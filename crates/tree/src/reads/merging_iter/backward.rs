//! Settling backward: the versions of a key come oldest first, so the key is decided once all were seen.

use base::Result;

use super::MergingIter;
use crate::reads::range_delete_filter::Visibility;
use crate::reads::source::Source;

impl MergingIter {
    /// Handles the first source's entry, backward. `Some` once the move is complete.
    pub(super) fn settle_backward(&mut self) -> Result<Option<bool>> {
        let first = self.first();
        let source = first.and_then(|number| self.sources.get(number));
        let entry = source.and_then(Source::entry);
        if let Some(resolving) = &self.resolving
            && entry.is_none_or(|(key, _)| key != resolving.as_slice())
        {
            return self.finish_resolving();
        }
        let (Some(number), Some(source), Some((key, trailer))) = (first, source, entry) else {
            return Ok(Some(false));
        };
        if self.bounds.is_passed(key, false) {
            return Ok(Some(false));
        }
        if trailer.seqno() <= self.at {
            if !self.range_deletes.is_empty() {
                match self.range_deletes.visibility(number, key, trailer.seqno(), false) {
                    Visibility::Visible => self.hidden = 0,
                    visibility => return self.skip_hidden(number, visibility).map(|()| None),
                }
            }
            if self.resolving.is_none() {
                self.resolving = Some(Self::key_of(&mut self.spare, key));
            }
            let stored = source.stored(trailer);
            let added =
                self.resolver.newer(&self.view.read_context, trailer, stored, source.file());
            added.map_err(|error| self.key_failed(error))?;
            self.dead.resolves(trailer);
        } else {
            self.dead.meet_invisible(key, trailer);
        }
        self.advance(number)?;
        Ok(None)
    }
}

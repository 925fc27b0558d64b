//! The held filters of a table: when one is probed, and when one is copied.

use base::Trailer;

use super::held_filters::FilterProbe;
use super::step::{Pages, Span};
use super::table::Table;

impl Table {
    /// A probe of the held filter that rules out versions of `key`, which has the [`base::key_hash`]
    /// `hash`, at or before `at`; `None` if that filter is not held. Range deletes do not count.
    #[inline]
    #[must_use]
    pub fn filter_probe(&self, key: &[u8], hash: u64, at: Trailer) -> Option<FilterProbe> {
        let held = self.filters.held()?;
        let at = self.stored_trailer(at).filter(|_| self.covers(key))?;
        held.probe(self.top().ok()?.search(key, at).ok()?, hash)
    }

    /// Holds the filter of the metadata page on `pages` of `span`, which ruled a key out.
    #[cold]
    pub(super) fn hold_filter(&self, span: Span, pages: &Pages) {
        let (Some(all), Ok(top)) = (&self.accounts.filters, self.top()) else { return };
        // A page in place may be lost while it is copied.
        if let (Pages::Frame(_) | Pages::Run(_), Ok(meta)) = (pages, self.meta(span, pages)) {
            self.filters.hold(all, top.partitions(), top.holding(span.first), &meta);
        }
    }
}

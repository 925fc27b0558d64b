//! The spans that an iteration will need, for read-ahead.

use base::Result;

use super::TableCursor;
use crate::sorted::separator::Separator;
use crate::sorted::step::Span;

impl TableCursor {
    /// The span that a forward iteration needs after the current block, if it is known.
    #[must_use]
    pub fn next_block_span(&self) -> Option<Span> {
        let loaded = self.block.as_ref().filter(|loaded| loaded.partition == self.partition)?;
        let (first, pages) = self.meta()?.block_pages(loaded.index + 1).ok()?;
        Some(self.table.data_span(first, pages))
    }

    /// Appends to `out` at most `count` spans that an iteration in the direction of the last operation
    /// needs next, in that order.
    ///
    /// After the current partition, the blocks are known only in tables without runs; in a table with
    /// runs the next partition's metadata page is the last span. Spans known to lie outside the bounds
    /// are left out. If the bounds end within a partition that is not loaded, its spans past the bounds
    /// are included.
    pub fn upcoming(&self, count: usize, out: &mut Vec<Span>) {
        let (Some(loaded), Ok(top), end) = (&self.block, self.table.top(), out.len() + count)
        else {
            return;
        };
        let Some(meta) = self.meta() else { return };
        let block_span = |index: usize| {
            let (first, pages) = meta.block_pages(index).ok()?;
            Some(self.table.data_span(first, pages))
        };
        let room = |out: &Vec<Span>| end.saturating_sub(out.len());
        let is_bounded = !self.bounds.is_all();
        let ends_at = |separator: Result<Option<Separator>>| {
            is_bounded && separator.is_ok_and(|it| it.is_some_and(|it| self.ends_at(&it)))
        };
        let mut index = loaded.index;
        while room(out) > 0 {
            let next = if self.forward { index.checked_add(1) } else { index.checked_sub(1) };
            let Some(next) = next.filter(|next| *next < meta.blocks()) else { break };
            if ends_at(meta.separator(index.max(next))) {
                return;
            }
            out.extend(block_span(next));
            index = next;
        }
        let mut number = self.partition;
        while room(out) > 0 {
            let next = if self.forward { number.checked_add(1) } else { number.checked_sub(1) };
            let Some(partition) = next
                .filter(|next| *next < top.partitions())
                .and_then(|next| top.partition(next).ok())
            else {
                return;
            };
            let next = next.unwrap_or_default();
            let between = number.max(next).saturating_sub(1);
            if is_bounded && ends_at(top.separators().get(between).map(Some)) {
                return;
            }
            number = next;
            out.push(self.table.meta_span(partition));
            if self.table.properties().runs > 0 {
                return;
            }
            let pages = partition.first_page..partition.meta_page;
            let room = room(out);
            let span = |page| self.table.data_span(page, 1);
            if self.forward {
                out.extend(pages.take(room).map(span));
            } else {
                out.extend(pages.rev().take(room).map(span));
            }
        }
    }
}

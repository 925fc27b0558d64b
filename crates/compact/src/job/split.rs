//! Splitting a job in parts that can run at the same time.

use std::sync::Arc;

use base::TableId;
use bytes::Bytes;
use table::Table;

use super::{InputRun, Job};
use crate::KeyRange;

impl Job {
    /// Parts of about the same amount of work, at most `parts`, whose key ranges are disjoint and
    /// together the job's; their outcomes together are the job's. `tables` are the inputs, in any
    /// order; others are passed over. The ids reserved for outputs are shared out.
    ///
    /// Cuts are taken from the tables' top levels, so there is no read; where there is nothing to
    /// cut at, there are fewer parts.
    #[must_use]
    pub fn split(&self, tables: &[Arc<Table>], parts: usize) -> Vec<Self> {
        let ids = self.output.ids.end.0.saturating_sub(self.output.ids.start.0);
        let values = &self.values.ids;
        let value_ids = values.end.0.saturating_sub(values.start.0);
        // Each part needs an id for its values, where they are written at all.
        let most = if value_ids > 0 { ids.min(value_ids) } else { ids };
        let parts = parts.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
        let cuts = self.cuts(tables, parts);
        let share = ids / (cuts.len() as u64 + 1);
        let mut first = self.bounds.first.clone();
        let mut split = Vec::with_capacity(cuts.len() + 1);
        for (number, end) in cuts.into_iter().map(Some).chain([self.bounds.end.clone()]).enumerate()
        {
            let bounds = KeyRange { first: std::mem::take(&mut first), end };
            first = bounds.end.clone().unwrap_or_default();
            let start = self.output.ids.start.0 + number as u64 * share;
            let mut part = self.within(bounds, tables);
            part.part = number as u32;
            part.output.ids = TableId(start)..TableId(start + share);
            if value_ids > 0 {
                let id = values.start.0 + number as u64;
                part.values.ids = TableId(id)..TableId(id + 1);
            }
            split.push(part);
        }
        split.retain(|part| !part.inputs.is_empty());
        split
    }

    /// Where to cut, ascending: fewer than `parts` keys within the bounds.
    fn cuts(&self, tables: &[Arc<Table>], parts: usize) -> Vec<Bytes> {
        // Keys, and the bytes of some table before each.
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        for piece in self.pieces() {
            let Some(table) = tables.iter().find(|table| table.id() == piece.id) else { continue };
            let mut before = 0;
            for (key, bytes) in table.splits() {
                if piece.bounds.holds(&key) && self.bounds.holds(&key) {
                    samples.push((key, bytes - before));
                }
                before = bytes;
            }
        }
        samples.sort_unstable();
        let total: u64 = samples.iter().map(|(_, bytes)| bytes).sum();
        let (mut cuts, mut seen) = (Vec::<Bytes>::new(), 0);
        for (key, bytes) in samples {
            seen += bytes;
            let due = total * (cuts.len() as u64 + 1) / parts as u64;
            let is_new = *key > *self.bounds.first && cuts.last().is_none_or(|last| **last < *key);
            if cuts.len() + 1 < parts && seen >= due && is_new {
                cuts.push(key.into());
            }
        }
        cuts
    }

    /// The job within `bounds`: only what may concern keys there.
    fn within(&self, bounds: KeyRange, tables: &[Arc<Table>]) -> Self {
        let concerns = |range: &KeyRange| range.overlaps(&bounds);
        let holds = |id: TableId| {
            let table = tables.iter().find(|table| table.id() == id);
            // An input that is not known here may hold anything.
            table.is_none_or(|table| {
                let (first, end) = (&table.properties().first_key, table.properties().end_key());
                concerns(&KeyRange::new(first, Some(&end)))
            })
        };
        let mut part = self.clone();
        for run in &mut part.inputs {
            run.tables.retain(|piece| concerns(&piece.bounds) && holds(piece.id));
        }
        part.inputs.retain(|run: &InputRun| !run.tables.is_empty());
        part.below.retain(concerns);
        part.hot.retain(concerns);
        part.bounds = bounds;
        part
    }
}

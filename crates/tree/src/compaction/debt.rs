//! How far the keyspaces are behind, for the pace of writers: known from every look, and from weighing a
//! tree after a flush.
//!
//! Looks alone would not do: the jobs under way may leave no thread or no memory for another, and for these
//! seconds writers would go on at the pace of the last look.

use compact::plan;

use super::Compactor;
use super::compactor_state::CompactorState;
use crate::Tree;

impl Compactor {
    /// A flush ended: finds out how far `tree` is behind now, and tells the pace.
    pub fn weigh(&self, tree: &Tree) {
        let now = self.now();
        let quiet = {
            let mut state = self.state.lock();
            if state.books.entry(tree.id()).or_default().is_weighed_enough(now) {
                return;
            }
            state.is_quiet(self.env.ring.visible(), now)
        };
        let shape = tree.version_edit();
        if tree.is_dropped() {
            return;
        }
        // What the weighing takes is known from here: the wait for the shape is a flush's, not its own.
        let start = self.now();
        let horizon = self.env.snapshots.horizon(&self.env.ring);
        let summary = self.described(tree, &shape, horizon, quiet, None);
        let debt = plan::debt(&summary, &self.job_options());
        let took = self.now().saturating_sub(start);
        let mut state = self.state.lock();
        let book = state.books.entry(tree.id()).or_default();
        let manual_bytes = book.debt.manual_bytes;
        book.see_debt(plan::Debt { manual_bytes, ..debt }, start, took);
        self.tell_pace(&state);
    }

    /// Writers go at the pace that the tree which is furthest behind allows.
    pub(super) fn tell_pace(&self, state: &CompactorState) {
        let alive = state.books.iter().filter(|(id, _)| self.trees.get(**id).is_some());
        let worst = alive.fold((0f64, 0f64), |(runs, space), (_, book)| {
            (runs.max(book.debt.fullness), space.max(book.debt.space_fullness))
        });
        self.host.debt_changed(worst.0, worst.1);
    }
}

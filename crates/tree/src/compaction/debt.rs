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
    pub fn measure_debt(&self, tree: &Tree) {
        let now = self.now();
        let quiet = {
            let mut state = self.state.lock();
            if state.keyspaces.entry(tree.id()).or_default().is_debt_recent(now) {
                return;
            }
            state.is_quiet(self.env.ring.visible(), now)
        };
        let guard = tree.version_edit();
        if tree.is_dropped() {
            return;
        }
        // What the weighing takes is known from here: the wait for the shape is a flush's, not its own.
        let start = self.now();
        let horizon = self.env.snapshots.horizon(&self.env.ring);
        let summary = self.planner_input(tree, &guard, horizon, quiet, None);
        let debt = plan::debt(&summary, &self.job_options());
        let took = self.now().saturating_sub(start);
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        let manual_bytes = keyspace.debt.manual_bytes;
        keyspace.set_debt(plan::Debt { manual_bytes, ..debt }, start, took);
        self.report_debt(&state);
    }

    /// Writers go at the pace that the tree which is furthest behind allows.
    pub(super) fn report_debt(&self, state: &CompactorState) {
        let alive = state.keyspaces.iter().filter(|(id, _)| self.trees.get(**id).is_some());
        let worst = alive.fold((0f64, 0f64), |(runs, space), (_, keyspace)| {
            (runs.max(keyspace.debt.fullness), space.max(keyspace.debt.space_fullness))
        });
        self.host.debt_changed(worst.0, worst.1);
    }
}

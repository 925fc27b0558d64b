//! Measures the compaction debt of keyspaces, by which the engine delays writers. It is measured by every
//! planning, and after flushes.
//!
//! Planning alone would not do: while jobs occupy all threads or all memory, nothing is planned for seconds,
//! and writers would be delayed by an old debt.

use compact::plan;
use compact::plan::hashed::window;

use super::Compactor;
use super::compactor_state::CompactorState;
use crate::Tree;
use crate::tree::window_options;

impl Compactor {
    /// Measures the debt of `tree` after a flush and reports the worst debt to the engine, unless the debt
    /// was measured recently.
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
        // From here on, so that the wait for the guard does not count as the cost of measuring.
        let start = self.now();
        let horizon = self.env.snapshots.horizon(&self.env.ring);
        let summary = self.planner_input(tree, &guard, horizon, quiet, None);
        let options = self.job_options(tree);
        let debt = match tree.kind().policy() {
            None => plan::debt(&summary, &options),
            Some(policy) => match window_options(policy) {
                Some(window) => window::debt(&summary, &window),
                None => plan::hashed::debt_keep(&summary, &options),
            },
        };
        let took = self.now().saturating_sub(start);
        let mut state = self.state.lock();
        let keyspace = state.keyspaces.entry(tree.id()).or_default();
        let manual_bytes = keyspace.debt.manual_bytes;
        keyspace.set_debt(plan::Debt { manual_bytes, ..debt }, start, took);
        self.report_debt(&state);
    }

    /// Reports the debt of the fullest trees: it decides how much writers are delayed.
    pub(super) fn report_debt(&self, state: &CompactorState) {
        let alive = state.keyspaces.iter().filter(|(id, _)| self.trees.get(**id).is_some());
        let worst = alive.fold((0f64, 0f64), |(runs, space), (_, keyspace)| {
            (runs.max(keyspace.debt.fullness), space.max(keyspace.debt.space_fullness))
        });
        self.host.debt_changed(worst.0, worst.1);
    }
}

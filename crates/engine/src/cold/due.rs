//! Which table becomes cold next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::TableId;
use manifest::ManifestState;
use tree::{TableFile, Tree, Trees};

/// Since when each table lies at the bottom: nothing older is below any of its keys.
///
/// The tables of windows are evicted, oldest first, and never become cold.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Bounded by the number of tables.
    since: BTreeMap<TableId, Duration>,
}

impl Due {
    /// The local table that has been at the bottom for longest, if that is at least `after`.
    pub(crate) fn next(
        &mut self,
        trees: &Trees,
        state: &ManifestState,
        now: Duration,
        after: Duration,
    ) -> Option<(Arc<Tree>, Arc<TableFile>)> {
        let before = std::mem::take(&mut self.since);
        let mut next: Option<(Duration, Arc<Tree>, Arc<TableFile>)> = None;
        for tree in trees.all() {
            if tree.is_dropped() || tree.kind().is_window() || tree.kind().is_resident() {
                continue;
            }
            for file in at_bottom(&tree) {
                let id = file.entry().id;
                let keyspace = state.keyspaces.get(&tree.id());
                let live = keyspace.and_then(|keyspace| keyspace.tables.get(&id));
                let is_local = live.is_some_and(|live| live.cold.is_none());
                if !is_local || file.is_damaged() || file.is_obsolete() {
                    continue;
                }
                let since = before.get(&id).copied().unwrap_or(now);
                self.since.insert(id, since);
                let is_due = now.saturating_sub(since) >= after;
                if is_due && next.as_ref().is_none_or(|(oldest, ..)| since < *oldest) {
                    next = Some((since, Arc::clone(&tree), file));
                }
            }
        }
        next.map(|(_, tree, file)| (tree, file))
    }
}

/// The tables of `tree` that have no table of an older run below any of their pieces.
fn at_bottom(tree: &Tree) -> Vec<Arc<TableFile>> {
    let version = Arc::clone(&tree.view().version);
    let (mut found, mut above) = (BTreeMap::new(), Vec::new());
    let runs = version.runs();
    for (number, run) in runs.iter().enumerate() {
        // Newest first.
        let older = runs.get(number + 1..).unwrap_or_default();
        for piece in run.pieces() {
            let id = piece.entry().id;
            match older.iter().any(|older| !older.overlapping(piece.range()).is_empty()) {
                true => above.push(id),
                false => drop(found.insert(id, Arc::clone(piece.file()))),
            }
        }
    }
    above.iter().for_each(|id| drop(found.remove(id)));
    found.into_values().collect()
}

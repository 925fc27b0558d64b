//! Range deletes that wait in memtables. The space of the keys that they cover comes back only after a flush,
//! which nothing else asks for if the store is not written to. Used by the flush task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{KeyspaceId, Seqno};
use tree::Tree;

/// A memtable is flushed once it has range deletes for this time.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The active memtables with range deletes, by their first seqno, and since when they were seen.
#[derive(Debug, Default)]
pub(crate) struct WaitingDeletes(BTreeMap<KeyspaceId, (Seqno, Duration)>);

impl WaitingDeletes {
    /// Of `trees`, those with a memtable to be flushed for its range deletes at `now`.
    pub(super) fn due(&mut self, trees: &[Arc<Tree>], now: Duration) -> Vec<Arc<Tree>> {
        let known = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for tree in trees.iter().filter(|tree| tree.has_waiting_range_deletes()) {
            let first = tree.view().active.first();
            let seen = known.get(&tree.id()).filter(|(known, _)| *known == first);
            let since = seen.map_or(now, |(_, since)| *since);
            if now.saturating_sub(since) >= WAIT_MAX {
                due.push(Arc::clone(tree));
            }
            self.0.insert(tree.id(), (first, since));
        }
        due
    }
}

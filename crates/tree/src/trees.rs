//! The keyspaces of an open store, by id and by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::{KeyspaceId, invariant};
use parking_lot::Mutex;

use crate::Tree;

/// The trees of the open keyspaces. Reads take no lock. Changes are rare; they copy the map under `change`.
#[derive(Debug, Default)]
pub struct Trees {
    by_id: ArcSwap<BTreeMap<KeyspaceId, Arc<Tree>>>,
    change: Mutex<()>,
}

impl Trees {
    /// The tree of the keyspace `id`.
    pub fn get(&self, id: KeyspaceId) -> Option<Arc<Tree>> {
        self.by_id.load().get(&id).cloned()
    }

    /// The tree of the keyspace called `name`. Cost: linear in the number of keyspaces.
    pub fn by_name(&self, name: &str) -> Option<Arc<Tree>> {
        self.by_id.load().values().find(|tree| tree.name() == name).cloned()
    }

    /// All trees, in order of ids.
    pub fn all(&self) -> Vec<Arc<Tree>> {
        self.by_id.load().values().cloned().collect()
    }

    /// Adds the tree of a new keyspace.
    pub fn insert(&self, tree: Arc<Tree>) {
        self.edit(|map| {
            let before = map.insert(tree.id(), tree);
            invariant!(before.is_none(), "each keyspace has one tree");
        });
    }

    /// Removes the tree of a dropped keyspace.
    pub fn remove(&self, id: KeyspaceId) {
        self.edit(|map| {
            let before = map.remove(&id);
            invariant!(before.is_some(), "a keyspace that is removed has a tree");
        });
    }

    fn edit(&self, change: impl FnOnce(&mut BTreeMap<KeyspaceId, Arc<Tree>>)) {
        let _change = self.change.lock();
        let mut map = BTreeMap::clone(&self.by_id.load());
        change(&mut map);
        self.by_id.store(Arc::new(map));
    }
}

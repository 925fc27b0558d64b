//! The keyspaces of an open store, by id and by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::KeyspaceId;
use parking_lot::Mutex;

use crate::Tree;

/// The open keyspaces. Reading takes no lock; changes are rare and take `change`.
#[derive(Debug, Default)]
pub struct Trees {
    by_id: ArcSwap<BTreeMap<KeyspaceId, Arc<Tree>>>,
    change: Mutex<()>,
}

impl Trees {
    pub fn get(&self, id: KeyspaceId) -> Option<Arc<Tree>> {
        self.by_id.load().get(&id).cloned()
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Tree>> {
        self.by_id.load().values().find(|tree| tree.name() == name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Tree>> {
        self.by_id.load().values().cloned().collect()
    }

    pub fn insert(&self, tree: Arc<Tree>) {
        self.edit(|map| {
            map.insert(tree.id(), tree);
        });
    }

    pub fn remove(&self, id: KeyspaceId) {
        self.edit(|map| {
            map.remove(&id);
        });
    }

    fn edit(&self, change: impl FnOnce(&mut BTreeMap<KeyspaceId, Arc<Tree>>)) {
        let _change = self.change.lock();
        let mut map = BTreeMap::clone(&self.by_id.load());
        change(&mut map);
        self.by_id.store(Arc::new(map));
    }
}

//! Hot rows over a restart: which rows of a store are in the row cache, and reading those of an earlier run
//! ahead.
//!
//! As for hot pages ([`HotPageReader`](crate::HotPageReader)), the engine stores the list and runs the steps
//! in the background. A step reads some neighbouring keys of one keyspace, their device reads in flight
//! together, and fills their rows while that evicts no other row. Keys that are gone are left out. No read
//! counts as a lookup.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{Key, KeyspaceId, Result, Seqno};
use cache::{HotPages, HotRows, RowCache};

use crate::Trees;
use crate::reads::{ReadQueue, Reader, start_row_ahead};

/// Keys of a step.
const STEP_KEYS: usize = 64;

/// Adds the rows of `trees` in `rows` to `list`, the hot ones first, at most `memory_max` bytes of keys.
pub fn add_hot_rows(list: &mut HotPages, trees: &Trees, rows: &RowCache, memory_max: usize) {
    let trees = trees.all();
    let owners: BTreeMap<u32, KeyspaceId> =
        trees.iter().map(|tree| (tree.rows().number(), tree.id())).collect();
    let (mut found, mut memory) = (BTreeMap::<KeyspaceId, Vec<Box<[u8]>>>::new(), 0);
    let mut row_bytes = 0;
    rows.visit_hot_rows(&mut |owner, key, bytes| {
        // Another store shares the cache, or the keyspace was dropped.
        let Some(keyspace) = owners.get(&owner) else { return true };
        memory += HotPages::key_bytes(key);
        if memory > memory_max {
            return false;
        }
        row_bytes += bytes as u64;
        found.entry(*keyspace).or_default().push(key.into());
        true
    });
    list.row_bytes = row_bytes;
    for (keyspace, keys) in found {
        list.add_rows(keyspace, keys);
    }
}

/// Reads a list of hot rows ahead, step by step.
pub struct HotRowReader {
    reader: Arc<Reader>,
    trees: Arc<Trees>,
    queue: ReadQueue,
    rows: VecDeque<HotRows>,
    /// Keys of the first keyspace that were read.
    read: usize,
}

impl HotRowReader {
    /// Reads `rows` of `trees` through `queue`, which reads the store of `reader`.
    #[must_use]
    pub fn new(
        rows: Vec<HotRows>,
        trees: &Arc<Trees>,
        reader: &Arc<Reader>,
        queue: ReadQueue,
    ) -> Self {
        let (reader, trees) = (Arc::clone(reader), Arc::clone(trees));
        Self { reader, trees, queue, rows: rows.into(), read: 0 }
    }

    /// Reads the next rows, visible at `visible`. Returns whether there are more to read.
    pub fn step(&mut self, visible: impl Fn() -> Seqno) -> bool {
        if !self.reader.rows.cache().has_room() || self.read_some(visible).is_err() {
            self.rows.clear();
        }
        !self.rows.is_empty()
    }

    /// # Errors
    /// The queue's.
    fn read_some(&mut self, visible: impl Fn() -> Seqno) -> Result<()> {
        let Some(HotRows { keyspace, keys }) = self.rows.front() else { return Ok(()) };
        let end = keys.len().min(self.read + STEP_KEYS);
        let some = keys.get(self.read..end).unwrap_or_default();
        if let Some(tree) = self.trees.get(*keyspace).filter(|tree| !tree.is_dropped()) {
            let some = || some.iter().filter_map(|key| Key::new(key).ok());
            // The bucket of each key is taken before the view, and the view before the seqno: see `RowCache`.
            let probes = self.reader.rows.probes(tree.rows(), some());
            let (view, at) = tree.batch_read_view(visible);
            let mut done = Vec::new();
            for (key, probe) in some().zip(probes) {
                while self.queue.room() == 0 {
                    self.queue.wait(1, &mut done)?;
                    done.clear();
                }
                start_row_ahead(&mut self.queue, &view, key, probe, at)?;
            }
            while self.queue.in_flight() > 0 {
                self.queue.wait(1, &mut done)?;
                done.clear();
            }
        }
        self.read = end;
        if end == keys.len() {
            self.rows.pop_front();
            self.read = 0;
        }
        Ok(())
    }
}

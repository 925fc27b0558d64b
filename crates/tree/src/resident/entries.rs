//! A walk over the entries of a resident keyspace, in the order of its index.
//!
//! Keys with the same tag are read together, under the lock of their shard: so an entry that is overwritten
//! during the walk is returned once. The memory is that of one shard's tags, and of the entries of one tag.

use std::sync::Arc;

use base::{EntryKind, Result};
use bytes::Bytes;

use super::{Resident, index};

/// An entry as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentEntry {
    /// The stored key.
    pub key: Bytes,
    /// Put, expiring put or delete.
    pub kind: EntryKind,
    /// The value as stored.
    pub value: Bytes,
}

/// See the module.
#[derive(Debug)]
pub struct ResidentEntries {
    resident: Arc<Resident>,
    /// The number of the next shard.
    shard: usize,
    /// The tags of the shard before it that are not read yet.
    tags: Vec<u64>,
    ready: Vec<ResidentEntry>,
}

impl ResidentEntries {
    /// The flushed entries of `resident`. One that is written meanwhile is returned in its old or new
    /// version.
    pub fn new(resident: &Arc<Resident>) -> Self {
        let (tags, ready) = (Vec::new(), Vec::new());
        Self { resident: Arc::clone(resident), shard: 0, tags, ready }
    }
}

impl Iterator for ResidentEntries {
    type Item = Result<ResidentEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop() {
                return Some(Ok(entry));
            }
            let Self { resident, shard, tags, ready } = self;
            match tags.pop() {
                Some(tag) => {
                    let read = resident.index.visit(shard.saturating_sub(1), tag, |place| {
                        ready.push(resident.entry(place)?);
                        Ok(())
                    });
                    if let Err(error) = read {
                        return Some(Err(error));
                    }
                    ready.retain(|entry| entry.kind != EntryKind::Delete);
                }
                None if *shard < index::SHARDS => {
                    *tags = resident.index.tags_of(*shard);
                    *shard += 1;
                }
                None => return None,
            }
        }
    }
}

//! Reclaim: how the page cache gives memory back, one chunk of frames at a time.
//!
//! Called by any thread that charges memory (I10); it waits for the result. Attached blocks are freed first,
//! then chunks are vacated ([`crate::shard`]). Locks one shard at a time.

use base::{Reclaim, invariant};

use super::PageCache;
use crate::shard::slot_of_tag;

/// Chunks that are never given back: without any metadata page in DRAM every read costs two device reads.
const CHUNKS_MIN: usize = 1;

/// Chunks tried for each chunk to give back: a page may be pinned while its chunk is emptied.
const CHUNK_TRIES: usize = 4;

impl PageCache {
    /// Gives one chunk back; returns its bytes, 0 if every chunk has a pinned page.
    fn give_back_chunk(&self) -> usize {
        let lower = self.lower_tier().map(|tier| &**tier);
        for _ in 0..CHUNK_TRIES {
            let Some(mut evacuation) = self.pool.evacuate(CHUNKS_MIN) else { return 0 };
            let tags: Vec<u32> = evacuation.in_use().collect();
            for tag in tags {
                let (shard, slot) = slot_of_tag(tag);
                let shard = self.shards.get(shard);
                invariant!(shard.is_some(), "the tag of a frame in use names a shard");
                if let Some(shard) = shard {
                    shard.0.lock().vacate(slot, &mut evacuation, self.shared(), lower);
                }
            }
            match evacuation.finish() {
                0 => {}
                bytes => return bytes,
            }
        }
        0
    }

    /// Detaches blocks until `bytes` are free; returns the bytes freed.
    pub(crate) fn detach_blocks(&self, bytes: u64) -> u64 {
        let mut given = 0;
        for shard in &self.shards {
            if given >= bytes {
                break;
            }
            given += shard.0.lock().clear_blocks(self.shared());
        }
        given
    }
}

impl Reclaim for PageCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = self.detach_blocks(bytes);
        while given < bytes {
            match self.give_back_chunk() {
                0 => break,
                chunk => given += chunk as u64,
            }
        }
        given
    }
}

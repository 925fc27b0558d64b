//! fjall with its defaults, memory for its block cache, and LZ4.

use std::ops::{Bound, ControlFlow};
use std::thread;
use std::time::Duration;

use base::{Error, Result};
use fjall::{AbstractTree, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};
use workload::cases::Compression;
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{Foreign, Opened, Setup, option};

const MIB: u64 = 1 << 20;

/// Memory besides the block cache, bytes: two memtables of 64 MiB, the buffers of their flushes, and the
/// pinned filters and indexes of the upper levels.
const BESIDE_CACHE: u64 = 256 * MIB;

/// Below this memory, a memtable is a part of it: two of the default size would take more than all of it.
const SMALL_MEMORY: u64 = 512 * MIB;
const SMALL_MEMTABLE_PART: u64 = 16;

/// The polling interval, and the number of idle polls in a row after which the store counts as settled. fjall
/// reports the running compactions but not the pending ones.
const QUIET_EVERY: Duration = Duration::from_millis(20);
const QUIET_TIMES: usize = 10;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
}

pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    if setup.compression == Compression::Zstd {
        return Err(Error::invalid("codec of fjall").expected("lz4").got("zstd"));
    }
    let mut options = Vec::new();
    let cache = setup.memory_bytes.saturating_sub(BESIDE_CACHE).max(setup.memory_bytes / 2);
    option(&mut options, "cache_size", cache);
    option(&mut options, "everything else", "its default: levels 2 and below in LZ4");
    let mut keyspace = KeyspaceCreateOptions::default();
    if setup.memory_bytes < SMALL_MEMORY {
        let bytes = setup.memory_bytes / SMALL_MEMTABLE_PART;
        option(&mut options, "max_memtable_size", bytes);
        keyspace = keyspace.max_memtable_size(bytes);
    }
    let db = Database::builder(setup.dir).cache_size(cache).open().of("fjall")?;
    let keyspace = db.keyspace("default", || keyspace).of("fjall keyspace")?;
    Ok(Opened { store: Box::new(Fjall { db, keyspace }), options })
}

impl Fjall {
    fn sync(&self, sync: bool) -> Result<()> {
        if sync { self.db.persist(PersistMode::SyncData).of("fjall persist") } else { Ok(()) }
    }

    fn show(
        entries: impl Iterator<Item = Guard>,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let mut shown = 0;
        for entry in entries.take(limit) {
            let (key, value) = entry.into_inner().of("fjall iterator")?;
            shown += 1;
            if visit(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(shown)
    }
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.keyspace.insert(key, value).of("fjall insert")?;
        self.sync(sync)
    }

    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in entries {
            batch.insert(&self.keyspace, *key, *value);
        }
        batch.commit().of("fjall batch")?;
        self.sync(sync)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).of("fjall get")?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.keyspace.remove(key).of("fjall remove")?;
        self.sync(sync)
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        match direction {
            Direction::Forward => {
                let range = self.keyspace.range::<&[u8], _>((bound, Bound::Unbounded));
                Self::show(range, limit, visit)
            }
            Direction::Reverse => {
                let range = self.keyspace.range::<&[u8], _>((Bound::Unbounded, bound));
                Self::show(range.rev(), limit, visit)
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().of("fjall flush")
    }

    fn settle(&self) -> Result<()> {
        let mut quiet = 0;
        while quiet < QUIET_TIMES {
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            thread::sleep(QUIET_EVERY);
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.flush()?;
        self.keyspace.major_compact().of("fjall major_compact")?;
        self.settle()
    }

    /// Filters, which may lie in the cache, and the index that is pinned.
    fn index_bytes(&self) -> Option<u64> {
        let tree = &self.keyspace.tree;
        Some(tree.filter_size() + tree.pinned_block_index_size() as u64)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

//! RocksDB through the crate `rocksdb`: pinned reads, and `MultiGet` in batches of the given depth.

use std::ops::ControlFlow;

use base::Result;
use rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteOptions, properties,
};
use workload::{Counters, Direction, ScanVisitor, Store};

use super::rocks_options::options;
use super::{Foreign, Opened, Profile, Setup};

const COLUMN_FAMILY: &str = "default";

struct Rocks {
    db: DB,
    /// Scans prefetch asynchronously.
    is_async: bool,
    /// Index and filter blocks lie in the block cache.
    is_cached: bool,
    reads: ReadOptions,
    unsynced: WriteOptions,
    synced: WriteOptions,
}

pub(super) fn open(profile: Profile, setup: &Setup<'_>) -> Result<Opened> {
    let (options, mut notes) = options(profile, setup);
    let db = DB::open_cf_with_opts(&options, setup.dir, [(COLUMN_FAMILY, options.clone())]);
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    let (reads, unsynced) = (ReadOptions::default(), WriteOptions::default());
    let is_async = profile == Profile::Read;
    let (db, is_cached) = (db.of("rocksdb")?, profile != Profile::Point);
    let store = Box::new(Rocks { db, is_async, is_cached, reads, unsynced, synced });
    let on = if is_async { "all" } else { "of everything" };
    notes.push(format!("io_uring for MultiGet and read-ahead, async_io for scans: {on}"));
    Ok(Opened { store, options: notes })
}

impl Rocks {
    fn how(&self, sync: bool) -> &WriteOptions {
        if sync { &self.synced } else { &self.unsynced }
    }
}

/// The number of the property `name` in `all`, a list of `name=number;`; the name may go on after that.
fn property(all: &str, name: &str) -> u64 {
    let found = all.split(';').find(|item| item.trim_start().starts_with(name));
    found.and_then(|item| item.rsplit('=').next()?.trim().parse().ok()).unwrap_or(0)
}

impl Store for Rocks {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.db.put_opt(key, value, self.how(sync)).of("rocksdb put")
    }

    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        self.db.write_opt(batch, self.how(sync)).of("rocksdb write")
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.reads).of("rocksdb get")?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let Some(family) = self.db.cf_handle(COLUMN_FAMILY) else { return Ok(()) };
        for (call, keys) in keys.chunks(depth).enumerate() {
            let keys = keys.iter().copied();
            let values = self.db.batched_multi_get_cf_opt(family, keys, false, &self.reads);
            for (at, value) in values.into_iter().enumerate() {
                visit(call * depth + at, value.of("rocksdb multi_get")?.as_deref());
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.db.delete_opt(key, self.how(sync)).of("rocksdb delete")
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let mut reads = ReadOptions::default();
        reads.set_async_io(self.is_async || limit == usize::MAX);
        if limit == usize::MAX {
            // From the wiki on iterators: a long scan should not fill the cache, and should not grow its
            // read-ahead.
            reads.fill_cache(false);
            reads.set_readahead_size(1 << 20);
        }
        let mut iterator = self.db.raw_iterator_opt(reads);
        match (direction, from) {
            (Direction::Forward, None) => iterator.seek_to_first(),
            (Direction::Forward, Some(key)) => iterator.seek(key),
            (Direction::Reverse, None) => iterator.seek_to_last(),
            (Direction::Reverse, Some(key)) => iterator.seek_for_prev(key),
        }
        let mut shown = 0;
        while shown < limit {
            let Some((key, value)) = iterator.item() else { break };
            shown += 1;
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
            match direction {
                Direction::Forward => iterator.next(),
                Direction::Reverse => iterator.prev(),
            }
        }
        iterator.status().of("rocksdb iterator")?;
        Ok(shown)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().of("rocksdb flush")
    }

    fn settle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).of("rocksdb wait_for_compact")
    }

    fn compact(&self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(true);
        // Without this option, data that is already in the last level is not compacted.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db.flush().of("rocksdb flush")?;
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        self.settle()
    }

    /// Memory of table readers, and the index and filter blocks in the cache if these are not part of it.
    fn index_bytes(&self) -> Option<u64> {
        let readers = self.db.property_int_value(properties::ESTIMATE_TABLE_READERS_MEM).ok()??;
        if !self.is_cached {
            return Some(readers);
        }
        let all = self.db.property_value(properties::AGGREGATED_TABLE_PROPERTIES).ok()??;
        Some(readers + property(&all, "index block size") + property(&all, "filter block size"))
    }

    /// Device traffic comes from the operating system: RocksDB's own counters cost some of its speed.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

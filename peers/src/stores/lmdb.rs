//! LMDB through heed: a writable map without syncs unless asked for, so that an unsynced write survives the
//! process, as in the other stores.

#![allow(
    unsafe_code,
    reason = "heed's calls that open a map are unsafe: nothing else may change the file meanwhile"
)]

use std::ops::{Bound, ControlFlow};

use base::Result;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{Foreign, Opened, Setup, option};

/// The most concurrent readers.
const READERS_MAX: u32 = 256;

/// Address space per byte of data, for half-full pages and old versions of pages.
const MAP_FACTOR: u64 = 4;

struct Lmdb {
    env: Env,
    db: Database<'static, Bytes, Bytes>,
}

pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    let page = 4096;
    let map = (setup.data_bytes * MAP_FACTOR).max(1 << 30).next_multiple_of(page);
    let mut flags = EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC | EnvFlags::NO_MEM_INIT;
    if setup.data_bytes > setup.memory_bytes {
        // From its documentation: read-ahead hurts random reads if the data is larger than memory.
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    option(&mut options, "map_size", map);
    option(&mut options, "flags", flags);
    option(&mut options, "synced writes", "mdb_env_sync after the commit");
    let mut builder = EnvOpenOptions::new();
    builder.map_size(map as usize).max_readers(READERS_MAX);
    // SAFETY: only this process uses the directory, which lies on a local file system, and a write that asks
    // for it is synced after its commit.
    let env = unsafe { builder.flags(flags).open(setup.dir) }.of("lmdb")?;
    let txn = env.write_txn().of("lmdb write_txn")?;
    let made = env.create_databases_and_commit(txn, |opener, txn| {
        let db = opener.create_database::<Bytes, Bytes>(txn, None)?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(db))
    });
    let db = made.of("lmdb create_database")?.unwrap_commit();
    Ok(Opened { store: Box::new(Lmdb { env, db }), options })
}

impl Lmdb {
    fn show<'txn>(
        entries: impl Iterator<Item = heed::Result<(&'txn [u8], &'txn [u8])>>,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let mut shown = 0;
        for entry in entries.take(limit) {
            let (key, value) = entry.of("lmdb cursor")?;
            shown += 1;
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(shown)
    }

    fn sync(&self, sync: bool) -> Result<()> {
        if sync { self.env.force_sync().of("lmdb sync") } else { Ok(()) }
    }
}

impl Store for Lmdb {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.put_batch(&[(key, value)], sync)
    }

    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        let mut txn = self.env.write_txn().of("lmdb write_txn")?;
        for (key, value) in entries {
            self.db.put(&mut txn, key, value).of("lmdb put")?;
        }
        txn.commit().of("lmdb commit")?;
        self.sync(sync)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.env.read_txn().of("lmdb read_txn")?;
        let value = self.db.get(&txn, key).of("lmdb get")?;
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    /// LMDB has no batched lookups, but one transaction serves all lookups of a batch.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (call, keys) in keys.chunks(depth).enumerate() {
            let txn = self.env.read_txn().of("lmdb read_txn")?;
            for (at, key) in keys.iter().enumerate() {
                visit(call * depth + at, self.db.get(&txn, key).of("lmdb get")?);
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        let mut txn = self.env.write_txn().of("lmdb write_txn")?;
        self.db.delete(&mut txn, key).of("lmdb delete")?;
        txn.commit().of("lmdb commit")?;
        self.sync(sync)
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let txn = self.env.read_txn().of("lmdb read_txn")?;
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        match direction {
            Direction::Forward => {
                let range = (bound, Bound::Unbounded);
                Self::show(self.db.range(&txn, &range).of("lmdb range")?, limit, visit)
            }
            Direction::Reverse => {
                let range = (Bound::Unbounded, bound);
                Self::show(self.db.rev_range(&txn, &range).of("lmdb range")?, limit, visit)
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.sync(true)
    }

    /// There is no background work.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Pages are updated in a B-tree, so there is nothing to merge.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

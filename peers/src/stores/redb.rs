//! redb: memory for its cache; commits without durability, except one in a fixed number.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{Foreign, Opened, Setup, option};

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("default");

/// From its documentation: pages freed by commits without durability are reused only after a durable commit,
/// so one is needed from time to time.
const COMMITS_BETWEEN_SYNCS: u64 = 4096;

/// Memory besides the cache, bytes.
const BESIDE_CACHE: u64 = 64 << 20;

struct Redb {
    db: Database,
    commits: AtomicU64,
}

pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    // Besides its own cache, redb reads and writes through the page cache of the operating system, which the
    // memory bound includes.
    let cache = setup.memory_bytes.saturating_sub(BESIDE_CACHE).max(setup.memory_bytes / 2);
    option(&mut options, "cache_size", cache);
    option(&mut options, "durability", format!("None, Immediate every {COMMITS_BETWEEN_SYNCS}"));
    let path = setup.dir.join("data.redb");
    let db = Database::builder().set_cache_size(cache as usize).create(path).of("redb")?;
    let txn = db.begin_write().of("redb begin_write")?;
    drop(txn.open_table(TABLE).of("redb open_table")?);
    txn.commit().of("redb commit")?;
    Ok(Opened { store: Box::new(Redb { db, commits: AtomicU64::new(0) }), options })
}

impl Redb {
    fn write<T>(
        &self,
        sync: bool,
        work: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<T>,
    ) -> Result<T> {
        let mut txn = self.db.begin_write().of("redb begin_write")?;
        let sync = sync || self.commits.fetch_add(1, Relaxed).is_multiple_of(COMMITS_BETWEEN_SYNCS);
        if !sync {
            txn.set_durability(Durability::None).of("redb set_durability")?;
        }
        let outcome = {
            let mut table = txn.open_table(TABLE).of("redb open_table")?;
            work(&mut table)?
        };
        txn.commit().of("redb commit")?;
        Ok(outcome)
    }

    fn table(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.db.begin_read().of("redb begin_read")?.open_table(TABLE).of("redb open_table")
    }
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |table| table.insert(key, value).map(drop).of("redb insert"))
    }

    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        self.write(sync, |table| {
            let mut entries = entries.iter();
            entries
                .try_for_each(|(key, value)| table.insert(key, value).map(drop).of("redb insert"))
        })
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table()?.get(key).of("redb get")?;
        if let Some(value) = &value {
            visit(value.value());
        }
        Ok(value.is_some())
    }

    /// redb has no batched lookups, but one transaction serves all lookups of a batch.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (call, keys) in keys.chunks(depth).enumerate() {
            let table = self.table()?;
            for (at, key) in keys.iter().enumerate() {
                let value = table.get(*key).of("redb get")?;
                visit(call * depth + at, value.as_ref().map(|value| value.value()));
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write(sync, |table| table.remove(key).map(drop).of("redb remove"))
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let table = self.table()?;
        let mut entries = match (direction, from) {
            (Direction::Forward, Some(key)) => table.range(key..),
            (Direction::Reverse, Some(key)) => table.range(..=key),
            (_, None) => table.range::<&[u8]>(..),
        }
        .of("redb range")?;
        let mut shown = 0;
        while shown < limit {
            let entry = match direction {
                Direction::Forward => entries.next(),
                Direction::Reverse => entries.next_back(),
            };
            let Some(entry) = entry else { break };
            let (key, value) = entry.of("redb range")?;
            shown += 1;
            if visit(key.value(), value.value()) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(shown)
    }

    fn flush(&self) -> Result<()> {
        self.write(true, |_| Ok(()))
    }

    /// There is no background work.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// redb has nothing to merge, and its compaction needs exclusive access to the store.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

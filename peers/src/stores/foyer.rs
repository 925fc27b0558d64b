//! foyer's hybrid cache: entries in memory, over blocks of entries on disk.
//!
//! A cache may evict entries, so a miss does not count as wrong. Its answers are verified like those of every
//! store, and its hit ratio is reported beside its figures.

use base::{Error, Result};
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy,
};
use tokio::runtime::{Builder, Runtime};
use workload::cases::Compression;
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{Foreign, Opened, Setup, option};

const MIB: u64 = 1 << 20;

/// Memory besides the entries, bytes: write buffers, and regions that are being written.
const BESIDE_ENTRIES: u64 = 128 * MIB;

/// Disk space per byte of data, because each entry is rounded up to whole pages.
const DISK_FACTOR: u64 = 12;

struct Foyer {
    cache: HybridCache<Vec<u8>, Vec<u8>>,
    runtime: Runtime,
}

pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    let memory = setup.memory_bytes.saturating_sub(BESIDE_ENTRIES).max(setup.memory_bytes / 2);
    let disk = (setup.data_bytes * DISK_FACTOR).max(256 * MIB);
    option(&mut options, "memory", memory);
    option(&mut options, "disk", disk);
    option(&mut options, "policy", HybridCachePolicy::WriteOnEviction);
    let compression = match setup.compression {
        Compression::Lz4 => foyer::Compression::Lz4,
        Compression::Zstd => foyer::Compression::Zstd,
    };
    option(&mut options, "compression", compression);
    option(&mut options, "flush_on_close", true);
    let runtime = Builder::new_multi_thread().enable_all().build().of("tokio")?;
    let device = FsDeviceBuilder::new(setup.dir).with_capacity(disk as usize).build();
    let device = device.of("foyer device")?;
    let cache = runtime.block_on(async {
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnEviction)
            .with_flush_on_close(true)
            .memory(memory as usize)
            .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len())
            .storage()
            .with_engine_config(BlockEngineConfig::new(device))
            .with_compression(compression)
            .with_spawner(runtime.handle().clone().into())
            .build()
            .await
    });
    Ok(Opened { store: Box::new(Foyer { cache: cache.of("foyer")?, runtime }), options })
}

impl Store for Foyer {
    fn put(&self, key: &[u8], value: &[u8], _sync: bool) -> Result<()> {
        drop(self.cache.insert(key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let entry = self.runtime.block_on(async { self.cache.get(&key.to_vec()).await });
        let entry = entry.of("foyer get")?;
        if let Some(entry) = &entry {
            visit(entry.value());
        }
        Ok(entry.is_some())
    }

    fn delete(&self, key: &[u8], _sync: bool) -> Result<()> {
        self.cache.remove(key);
        Ok(())
    }

    fn scan(
        &self,
        _from: Option<&[u8]>,
        _direction: Direction,
        _limit: usize,
        _visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        Err(Error::invalid("scan").expected("an ordered store").got("a cache"))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn may_drop(&self) -> bool {
        true
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Drop for Foyer {
    /// Writes the entries that are only in memory to disk, for the next process.
    fn drop(&mut self) {
        let closed = self.runtime.block_on(self.cache.close());
        if let Err(error) = closed {
            eprintln!("foyer: close: {error}");
        }
    }
}

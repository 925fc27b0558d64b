//! foyer: entries in memory, over blocks of entries in a file.

use base::Result;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, PsyncIoEngineConfig, RecoverMode, S3FifoConfig,
};
use media::Buf;
use tokio::runtime::{Builder, Runtime};

use super::backing::{self, Backing};
use super::{Found, Hybrid, PageObjects, below_bytes};
use crate::stores::{Foreign, Opened, Setup, option};

const MIB: u64 = 1 << 20;

/// Memory besides the entries, bytes: write buffers, the index of the file, allocator slack. With 160 MiB,
/// foyer exceeds its memory bound and is killed.
const BESIDE_ENTRIES: u64 = 200 * MIB;

/// Overhead of an entry besides its value, bytes: the key, handles, and the record that holds them.
const BESIDE_VALUE: usize = 200;

struct Foyer {
    cache: HybridCache<u32, Vec<u8>>,
    runtime: Runtime,
}

pub(in crate::stores) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    let (memory, below) = (setup.memory_bytes - BESIDE_ENTRIES, below_bytes(setup));
    option(&mut options, "memory", memory);
    option(&mut options, "file", below);
    option(&mut options, "policy", HybridCachePolicy::WriteOnEviction);
    option(&mut options, "eviction", S3FifoConfig::default());
    option(&mut options, "direct", true);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().of("tokio")?;
    let device = FsDeviceBuilder::new(setup.dir.join("tier"))
        .with_capacity(below as usize)
        .with_direct(true)
        .build();
    let device = device.of("foyer device")?;
    // With io_uring, a get took 1.3 times the processor time, and throughput was 0.8 times as high.
    option(&mut options, "io", "psync");
    let cache = runtime.block_on(async {
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnEviction)
            .memory(memory as usize)
            .with_eviction_config(S3FifoConfig::default())
            .with_weighter(|_: &u32, value: &Vec<u8>| BESIDE_VALUE + value.len())
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(BlockEngineConfig::new(device))
            .with_recover_mode(RecoverMode::None)
            .with_spawner(runtime.handle().clone().into())
            .build()
            .await
    });
    let cache = Foyer { cache: cache.of("foyer")?, runtime };
    let store = Hybrid::new(cache, Backing::open(setup.dir, setup.data_bytes)?)?;
    Ok(Opened { store: Box::new(store), options })
}

impl PageObjects for Foyer {
    fn get(
        &self,
        number: u32,
        read: &dyn Fn() -> Result<Buf>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Found> {
        // A hit in memory needs no task and does not wait.
        if let Some(entry) = self.cache.memory().get(&number) {
            visit(entry.value());
            return Ok(Found::Dram);
        }
        let entry = self.runtime.block_on(async { self.cache.get(&number).await });
        if let Some(entry) = entry.of("foyer get")? {
            visit(entry.value());
            return Ok(Found::Below);
        }
        let page = read()?;
        let entry = self.cache.insert(number, backing::object(&page).to_vec());
        visit(entry.value());
        Ok(Found::Backing)
    }
}

//! RocksDB's options by profile. Every option is recorded when it is set.
//!
//! Sources: the comments of `options.h`, `table.h` and `cache.h` of RocksDB 11.8, and the pages of
//! its wiki on basic tuning, memory use, partitioned index and filters, write-ahead log performance
//! and direct I/O.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Options,
};
use workload::cases::Compression;

use super::{Profile, Setup, option};

const MIB: u64 = 1 << 20;

/// Memory besides the block cache, bytes: write buffers, table readers, allocator slack. With 341 MiB of
/// block cache the process takes 550 MiB, with 2 GiB 2.4 GiB: a sixth of the whole memory if that is more
/// than this.
const BESIDE_CACHE: u64 = 209 * MIB;
const BESIDE_CACHE_PART: u64 = 6;
/// Memory of direct reads beyond that: a buffer for each, and gaps between them that the allocator cannot
/// use. With 32 reads in flight, a process with 341 MiB of block cache took 631 MiB.
const BESIDE_DIRECT: u64 = 96 * MIB;

/// Below this memory, write buffers are a part of it: those of the defaults would take more than all of it.
const SMALL_MEMORY: u64 = 512 * MIB;
const SMALL_BUFFER_PART: u64 = 16;

/// The share of the cache for single rows, in the profile that has them.
const ROW_PART: f64 = 0.5;

/// The options of `profile`, and a record of their values.
pub(super) fn options(profile: Profile, setup: &Setup<'_>) -> (Options, Vec<String>) {
    let mut notes = Vec::new();
    let (mut options, mut table) = (Options::default(), BlockBasedOptions::default());
    macro_rules! set {
        ($on:ident.$call:ident($value:expr)) => {{
            $on.$call($value);
            option(&mut notes, stringify!($call).trim_start_matches("set_"), $value);
        }};
        // For values whose type does not print.
        ($on:ident.$call:ident($value:path) named) => {{
            $on.$call($value);
            let name = stringify!($call).trim_start_matches("set_");
            notes.push(format!("{name} = {}", stringify!($value)));
        }};
    }
    set!(options.create_if_missing(true));
    // Tables stay open: the block cache bounds the memory of reads, not the table cache.
    let direct = if profile == Profile::Read { BESIDE_DIRECT } else { 0 };
    let beside = BESIDE_CACHE.max(setup.memory_bytes / BESIDE_CACHE_PART) + direct;
    let cache_bytes = setup.memory_bytes.saturating_sub(beside).max(setup.memory_bytes / 2);
    let row_bytes =
        if profile == Profile::Row { (cache_bytes as f64 * ROW_PART) as u64 } else { 0 };
    let block_bytes = cache_bytes - row_bytes;
    let cache = if profile == Profile::Read {
        option(&mut notes, "block_cache: HyperClockCache, bytes", block_bytes);
        Cache::new_hyper_clock_cache(block_bytes as usize, 0)
    } else {
        option(&mut notes, "block_cache: LRUCache, bytes", block_bytes);
        Cache::new_lru_cache(block_bytes as usize)
    };
    table.set_block_cache(&cache);
    if row_bytes > 0 {
        option(&mut notes, "row_cache: LRUCache, bytes", row_bytes);
        options.set_row_cache(&Cache::new_lru_cache(row_bytes as usize));
    }
    table.set_bloom_filter(10.0, false);
    option(&mut notes, "bloom_filter, bits a key", 10.0);
    if setup.memory_bytes < SMALL_MEMORY && profile != Profile::Write {
        set!(options.set_write_buffer_size((setup.memory_bytes / SMALL_BUFFER_PART) as usize));
    }
    // Index and filter blocks count against the block cache.
    set!(table.set_cache_index_and_filter_blocks(profile != Profile::Point));
    set!(table.set_pin_l0_filter_and_index_blocks_in_cache(profile != Profile::Point));
    compress(&mut options, &mut notes, setup.compression, profile);
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as i32;
    // From the wiki: at least as many background jobs as cores.
    set!(options.set_max_background_jobs(threads.max(2)));
    set!(options.set_bytes_per_sync(MIB));
    match profile {
        Profile::Default | Profile::Row => {}
        Profile::Point => {
            // `OptimizeForPointLookup` sets these and a table of its own, which would replace this one.
            set!(table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash) named);
            set!(table.set_data_block_hash_ratio(0.75));
            set!(options.set_memtable_prefix_bloom_ratio(0.02));
            set!(options.set_memtable_whole_key_filtering(true));
        }
        Profile::Read => {
            set!(table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch) named);
            set!(table.set_partition_filters(true));
            set!(table.set_metadata_block_size(4096));
            set!(table.set_pin_top_level_index_and_filter(true));
            set!(table.set_cache_index_and_filter_blocks_with_high_priority(true));
            set!(table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash) named);
            set!(table.set_data_block_hash_ratio(0.75));
            set!(table.set_optimize_filters_for_memory(true));
            // Data that fits in memory is served from the block cache in either case. Larger data is not
            // cached twice, and each read is a read of the device.
            set!(options.set_use_direct_reads(true));
            set!(options.set_use_direct_io_for_flush_and_compaction(true));
        }
        Profile::Write => {
            let buffer = (setup.memory_bytes / 8).clamp(16 * MIB, 128 * MIB) as usize;
            set!(options.set_write_buffer_size(buffer));
            set!(options.set_max_write_buffer_number(4));
            set!(options.set_min_write_buffer_number_to_merge(1));
            set!(options.set_level_zero_file_num_compaction_trigger(4));
            set!(options.set_max_bytes_for_level_base(4 * buffer as u64));
            set!(options.set_target_file_size_base(buffer as u64 / 2));
            set!(options.set_max_subcompactions(threads.max(1) as u32));
            set!(options.set_enable_pipelined_write(true));
            set!(options.set_compaction_readahead_size(2 << 20));
            // Upper levels are soon rewritten.
            if setup.compression == Compression::Lz4 {
                let (none, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
                let levels = [none, none, lz4, lz4, lz4, lz4, lz4];
                options.set_compression_per_level(&levels);
                option(&mut notes, "compression_per_level", "none, none, lz4 ..");
            }
        }
    }
    options.set_block_based_table_factory(&table);
    // The report of all counters every ten minutes is not part of the store's work.
    set!(options.set_stats_dump_period_sec(0));
    set!(options.set_stats_persist_period_sec(0));
    (options, notes)
}

fn compress(
    options: &mut Options,
    notes: &mut Vec<String>,
    compression: Compression,
    profile: Profile,
) {
    match compression {
        Compression::Lz4 => {
            options.set_compression_type(DBCompressionType::Lz4);
            option(notes, "compression", "lz4");
        }
        Compression::Zstd => {
            options.set_compression_type(DBCompressionType::Zstd);
            // Training and using a dictionary costs a compaction more than anything else here.
            if profile == Profile::Write {
                options.set_compression_options(-14, 1, 0, 0);
                option(notes, "compression", "zstd level 1");
                return;
            }
            // Window bits chosen by the library, level 1, a dictionary of 16 KiB trained on 100 times as much
            // data, as the wiki recommends.
            options.set_compression_options(-14, 1, 0, 16 << 10);
            options.set_zstd_max_train_bytes(100 * (16 << 10));
            option(notes, "compression", "zstd level 1, dictionary 16 KiB, trained on 1600 KiB");
        }
    }
}

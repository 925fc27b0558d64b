//! The space of structured values: small pages with a dictionary, against large blocks without one.
//!
//! `cargo run --release -p terrace-workload --example structured [-- FILE]`. The values are a million JSON
//! records, or the lines of a text file, under 16-byte keys in order of their numbers. The example prints the
//! size of all tables of a store with zstd, and the size of the same entries in blocks of 4, 16 and 32 KiB,
//! each compressed separately at the same level. Blocks share key prefixes with a restart at every sixteenth
//! key; each has 5 B of checksum and codec, and a filter of ten bits per key. They have no index and no
//! footer, which favours the blocks.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::fs;

use base::{Codec, Error, Result, Rng};
use terracedb::Db;

/// Records if no file is named.
const RECORDS: u64 = 1_000_000;
/// The default level of a store.
const LEVEL: i32 = 3;
/// Entries between restarts, the keys of a block that are stored whole.
const RESTART: usize = 16;

fn main() -> Result<()> {
    let values: Vec<String> = match std::env::args().nth(1) {
        Some(path) => {
            let text = fs::read_to_string(&path).map_err(|error| Error::io("read", path, error))?;
            text.lines().map(str::to_owned).collect()
        }
        None => {
            let mut rng = Rng::new(1);
            (0..RECORDS).map(|number| record(number, &mut rng)).collect()
        }
    };
    let raw: usize = values.iter().map(|value| 16 + value.len()).sum();
    let directory = std::env::temp_dir().join(format!("terrace-structured-{}", std::process::id()));
    let stored = store(&directory, &values);
    // Best effort: the operating system cleans its temporary directory too.
    drop(fs::remove_dir_all(&directory));
    let (stored, dictionaries) = stored?;
    println!("{} entries, {:.1} MB raw, zstd level {LEVEL}", values.len(), mb(raw as f64));
    println!(
        "store: pages of 4 KiB, dictionaries of {dictionaries} B in all: {:.2} MB, all of its tables",
        mb(stored)
    );
    for kib in [4, 16, 32] {
        let blocks = blocks(&values, kib << 10)?;
        println!(
            "blocks of {kib} KiB without: {:.2} MB; the store {:.3}x",
            mb(blocks),
            stored / blocks
        );
    }
    Ok(())
}

fn mb(bytes: f64) -> f64 {
    bytes / 1e6
}

fn key(number: usize) -> String {
    format!("{number:016}")
}

/// An order in JSON: words that repeat, numbers and names that do not.
fn record(number: u64, rng: &mut Rng) -> String {
    const STATES: [&str; 5] = ["created", "paid", "packed", "shipped", "delivered"];
    const CITIES: [&str; 8] =
        ["Lyon", "Osaka", "Porto", "Quito", "Turku", "Accra", "Perth", "Tampa"];
    let mut of = |names: &[&'static str]| {
        names.get(rng.below(names.len() as u64) as usize).copied().unwrap_or_default()
    };
    let (state, city, gift) = (of(&STATES), of(&CITIES), of(&["true", "false"]));
    format!(
        "{{\"order\":{number},\"customer\":\"{:08x}\",\"state\":\"{state}\",\"city\":\"{city}\",\
         \"placed_at\":{},\"total_cents\":{},\"currency\":\"EUR\",\
         \"items\":[{{\"sku\":\"{:06x}\",\"count\":{}}},{{\"sku\":\"{:06x}\",\"count\":{}}}],\
         \"gift\":{gift}}}",
        rng.below(1 << 32),
        1_700_000_000 + number * 7 + rng.below(7),
        rng.below(50_000),
        rng.below(1 << 16),
        1 + rng.below(4),
        rng.below(1 << 16),
        1 + rng.below(9),
    )
}

/// The size of the tables and dictionaries of a settled store, and of its dictionaries alone, bytes.
fn store(directory: &std::path::Path, values: &[String]) -> Result<(f64, u64)> {
    let db =
        Db::builder(directory).memory(256 << 20).codec(Codec::Zstd).zstd_level(LEVEL).open()?;
    let keyspace = db.open_or_create_keyspace("records")?;
    for (number, value) in values.iter().enumerate() {
        keyspace.put(key(number), value)?;
    }
    db.flush()?;
    db.compact()?;
    for (number, value) in values.iter().enumerate().step_by(997) {
        let found = keyspace.get(key(number))?;
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{number}");
    }
    let statistics = db.statistics();
    let tables = statistics.keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum::<u64>();
    let held =
        fs::read_dir(directory).map_err(|error| Error::io("list", directory.display(), error))?;
    let dictionaries = held
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().extension().is_some_and(|it| it == "dictionary"))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum::<u64>();
    Ok(((tables + dictionaries) as f64, dictionaries))
}

/// The size of the same entries in blocks of `block_bytes`, bytes.
fn blocks(values: &[String], block_bytes: usize) -> Result<f64> {
    let mut sum = values.len() as f64 * 10.0 / 8.0;
    let (mut block, mut before, mut entries) = (Vec::new(), String::new(), 0);
    let mut close = |block: &mut Vec<u8>, entries: usize| -> Result<()> {
        block.resize(block.len() + 4 * (entries.div_ceil(RESTART) + 1), 0);
        let packed =
            zstd::bulk::compress(block, LEVEL).map_err(|e| Error::io("compress", "block", e))?;
        sum += packed.len().min(block.len()) as f64 + 5.0;
        block.clear();
        Ok(())
    };
    for (number, value) in values.iter().enumerate() {
        let key = key(number);
        let shared = match entries % RESTART {
            0 => 0,
            _ => key.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count(),
        };
        // Lengths, the key without the shared prefix, eight bytes of version and kind, the value.
        block.extend([
            shared as u8,
            (16 - shared) as u8,
            value.len() as u8,
            (value.len() >> 8) as u8,
        ]);
        block.extend(key.as_bytes().iter().skip(shared));
        block.extend(((number as u64) << 8 | 1).to_le_bytes());
        block.extend(value.as_bytes());
        (before, entries) = (key, entries + 1);
        if block.len() >= block_bytes {
            close(&mut block, entries)?;
            entries = 0;
        }
    }
    if !block.is_empty() {
        close(&mut block, entries)?;
    }
    Ok(sum)
}

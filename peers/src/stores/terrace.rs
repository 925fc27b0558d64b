//! This engine. Only the memory limit, the codec and, if the case asks for one, a second tier are set.

use std::path::Path;

use base::Result;
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::scm::Scm;
use terracedb::{Builder, Codec, Db, Durability, KeyspaceOptions};
use workload::Engine;
use workload::cases::Compression;

use super::below::Below;
use super::{Opened, Setup, option};

/// The memory limit as a share of the memory of the process, which uses up to a tenth more than its limit.
const PART_OF_MEMORY: f64 = 1.0 / 1.075;

/// The size of a window, by that of its keys and values: room for all of them, and as much again.
const WINDOW_FACTOR: u64 = 4;

pub(super) fn open(setup: &Setup<'_>, below: Option<Below>) -> Result<Opened> {
    let (db, options) = open_db(setup, below)?;
    Ok(Opened { store: Box::new(Engine::new(db)?), options })
}

/// As [`open`], with a hashed keyspace that keeps every entry, and filters of `base_filter_bits` bits over
/// its base; 0: none.
pub(super) fn open_keep(setup: &Setup<'_>, base_filter_bits: u8) -> Result<Opened> {
    let (db, mut options) = open_db(setup, None)?;
    option(&mut options, "keyspace", HashedPolicy::Keep);
    let mut keyspace = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    if base_filter_bits > 0 {
        option(&mut options, "base_filter_bits", base_filter_bits);
        keyspace = keyspace.base_filter_bits(base_filter_bits);
    }
    Ok(Opened { store: Box::new(Engine::with_options(db, &keyspace)?), options })
}

/// A keyspace whose log lies on storage-class memory: a directory beside that of the store, in memory. With
/// `policy` it is a hashed one.
pub(super) fn open_on_scm(setup: &Setup<'_>, policy: Option<HashedPolicy>) -> Result<Opened> {
    let log = setup.dir.join("scm").display().to_string();
    let (builder, mut options) = builder(&setup.dir.join("store"), setup);
    option(&mut options, "log.path", "a directory in memory");
    let db = builder.log_path([log]).open()?;
    let store = match policy {
        Some(policy) => {
            option(&mut options, "keyspace", &policy);
            Engine::hashed(db, policy)?
        }
        None => Engine::new(db)?,
    };
    Ok(Opened { store: Box::new(store), options })
}

/// As [`open`], with a hashed keyspace that is a window, and writes without a log.
pub(super) fn open_window(setup: &Setup<'_>) -> Result<Opened> {
    let (db, mut options) = open_db(setup, None)?;
    let bytes = WINDOW_FACTOR * setup.data_bytes.max(1 << 20);
    let window = HashedPolicy::Window { bytes, discard: Discard::Fifo };
    option(&mut options, "keyspace", &window);
    option(&mut options, "durability", Durability::Unlogged);
    let store = Engine::hashed(db, window)?.durability(Durability::Unlogged);
    Ok(Opened { store: Box::new(store), options })
}

fn open_db(setup: &Setup<'_>, below: Option<Below>) -> Result<(Db, Vec<String>)> {
    let (mut builder, mut options) = builder(setup.dir, setup);
    if let Some(below) = below {
        let place = format!("emulated:{}", below.profile());
        let size = Below::bytes(setup.data_bytes);
        option(&mut options, "scm.path", &place);
        option(&mut options, "scm.size", size);
        builder = builder.scm(Scm::new(&place, size)?);
    }
    Ok((builder.open()?, options))
}

fn builder(dir: &Path, setup: &Setup<'_>) -> (Builder, Vec<String>) {
    let memory = (setup.memory_bytes as f64 * PART_OF_MEMORY) as u64;
    let codec = match setup.compression {
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    let mut options = Vec::new();
    option(&mut options, "memory", memory);
    option(&mut options, "codec", codec);
    let mut builder = Db::builder(dir).memory(memory).codec(codec);
    if codec == Codec::Zstd {
        option(&mut options, "zstd_level", 1);
        builder = builder.zstd_level(1);
    }
    (builder, options)
}

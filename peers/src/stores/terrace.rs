//! This engine: one number for memory, the codec, a second tier where the case gives it one, and nothing
//! else.

use base::Result;
use terracedb::{Codec, Db, Scm};
use workload::Engine;
use workload::cases::Compression;

use super::below::Below;
use super::{Opened, Setup, option};

/// The process takes up to a tenth more than the number it is given.
const PART_OF_MEMORY: f64 = 1.0 / 1.075;

pub(super) fn open(setup: &Setup<'_>, below: Option<Below>) -> Result<Opened> {
    let memory = (setup.memory_bytes as f64 * PART_OF_MEMORY) as u64;
    let codec = match setup.compression {
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    let mut options = Vec::new();
    option(&mut options, "memory", memory);
    option(&mut options, "codec", codec);
    let mut builder = Db::builder(setup.dir).memory(memory).codec(codec);
    if codec == Codec::Zstd {
        option(&mut options, "zstd_level", 1);
        builder = builder.zstd_level(1);
    }
    if let Some(below) = below {
        let place = format!("emulated:{}", below.profile());
        let size = Below::bytes(setup.data_bytes);
        option(&mut options, "scm.path", &place);
        option(&mut options, "scm.size", size);
        builder = builder.scm(Scm::new(&place, size)?);
    }
    let store = Box::new(Engine::new(builder.open()?)?);
    Ok(Opened { store, options })
}

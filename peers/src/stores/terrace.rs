//! This engine. Only the memory limit, the codec and, if the case asks for one, a second tier are set.

use base::Result;
use terracedb::scm::Scm;
use terracedb::{Codec, Db};
use workload::Engine;
use workload::cases::Compression;

use super::below::Below;
use super::{Opened, Setup, option};

/// The memory limit as a share of the memory of the process, which uses up to a tenth more than its limit.
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

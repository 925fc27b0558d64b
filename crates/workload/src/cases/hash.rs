//! The cases of hashed keyspaces: beside ordered stores, and beside the hash of Berkeley DB.

use super::list::{LARGE, MIB, SMALL};
use super::{Case, Step, Wan};
use crate::bench::Name;
use crate::hashed::WAN_POINTER_BYTES;

/// The entries of SILT's evaluation: keys of 20 B with values of 236 B, scattered.
pub(super) const HASHED: Case = Case {
    name: "hashed",
    summary: "20 M x 256 B with 128 MiB: memory of index and filters, reads of hits and misses, writes. \
              A miss of `keep` reads its base once, by design: it has no filter unless it is `keep-filtered`",
    value_bytes: Some(236),
    memory_bytes: 128 * MIB,
    load: None,
    steps: &[
        Step::new("load", Name::SiltLoad).settled(),
        Step::new("overwrite, one write a key", Name::Overwrite).threads(2).settled(),
        Step::new("90 % gets, 10 % writes, 8 threads", Name::SiltMix).threads(8).seconds(20),
        // Ends the merges that the mix left.
        Step::prepare(Name::Overwrite).seconds(1).settled(),
        Step::new("get that hits, 8 threads", Name::ReadRandom).threads(8).seconds(20),
        Step::new("get that misses, 8 threads", Name::ReadMissing).threads(8).seconds(20),
    ],
    ..LARGE
};

/// Entries of a log on storage-class memory, for which this machine's memory stands.
pub(super) const RESIDENT: Case = Case {
    name: "resident",
    summary: "1 M x 256 B, all files in memory as if it were storage-class memory: gets and puts",
    keys: 1_000_000,
    value_bytes: Some(256),
    memory_bytes: 1024 * MIB,
    is_in_memory: true,
    steps: &[
        Step::prepare(Name::FillRandom).batch(100),
        Step::prepare(Name::Overwrite).settled(),
        Step::prepare(Name::ReadRandom).threads(2),
        Step::new("get, 1 thread", Name::ReadRandom).seconds(5),
        Step::new("get, 2 threads", Name::ReadRandom).threads(2).seconds(5),
        Step::new("get missing, 1 thread", Name::ReadMissing).seconds(5),
        Step::new("put, 1 thread", Name::Overwrite).seconds(5),
        Step::new("put, 2 threads", Name::Overwrite).threads(2).seconds(5),
        Step::new("put synced, 1 thread", Name::Overwrite).synced().seconds(5),
        Step::new("put synced, 2 threads", Name::Overwrite).threads(2).synced().seconds(5),
    ],
    ..SMALL
};

/// Data four times as large as memory. A window keeps all of it; writes are not logged, as in the other
/// store.
pub(super) const WAN: Case = Case {
    name: "wan",
    summary: "the WAN optimizer: 16 M fingerprints of 20 B with pointers of 12 B, 128 MiB, 40 % hits",
    keys: 16_000_000,
    value_bytes: Some(WAN_POINTER_BYTES),
    memory_bytes: 128 * MIB,
    load: None,
    steps: &[],
    wan: Some(Wan { label: "chunks, 1 thread", hit_share: 0.4, chunk_bytes: 8192, seconds: 60 }),
    ..LARGE
};

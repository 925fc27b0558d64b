//! Estimates of the memory of the writers of a merge.

use base::{Codec, KeyForm};
use compact::plan::Merge;

/// Estimate of the memory of a table writer and of everything else in a job besides its inputs, bytes. More
/// with Zstandard and DEFLATE.
pub(crate) const fn writer_bytes(codec: Codec, form: &KeyForm) -> usize {
    let codec = match codec {
        Codec::Zstd | Codec::Deflate => 4 << 20,
        Codec::None | Codec::Lz4 => 3 << 20,
    };
    // A table with bins collects the hashes of more keys before it writes their filter.
    let bins = match form {
        KeyForm::Plain => 0,
        KeyForm::Hashed(_) => 1 << 20,
    };
    codec + bins
}

/// Estimate of the memory of a value file's writer, bytes. It works without Zstandard or DEFLATE if
/// memory is short.
const fn values_writer_bytes(codec: Codec) -> usize {
    match codec {
        Codec::Zstd => 9 << 18,
        Codec::Deflate => 3 << 18,
        Codec::None | Codec::Lz4 => 1 << 18,
    }
}

/// Estimate of the memory of a job for `merge`, bytes.
pub(crate) fn memory_for(merge: &Merge, env: &compact::Env, codec: Codec, form: &KeyForm) -> u64 {
    let values = if merge.collect.is_empty() { 0 } else { values_writer_bytes(codec) };
    let inputs = merge.inputs.len() * compact::Env::RUN_BYTES_MIN + env.read_bytes;
    (inputs + writer_bytes(codec, form) + values) as u64
}

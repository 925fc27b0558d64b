//! Estimates of the memory of the writers of a merge.

use base::{Codec, KeyForm};

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
pub(crate) const fn values_writer_bytes(codec: Codec) -> usize {
    match codec {
        Codec::Zstd => 9 << 18,
        Codec::Deflate => 3 << 18,
        Codec::None | Codec::Lz4 => 1 << 18,
    }
}

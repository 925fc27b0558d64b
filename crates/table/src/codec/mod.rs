//! Codecs: compress blocks to payloads, and decompress them.
//!
//! Decompression does not trust its input: the raw length comes from a page header, is bounded before
//! memory is allocated, and must match exactly.

pub(crate) mod lz4;
mod short;
#[cfg(feature = "zstd")]
pub(crate) mod zstd;
#[cfg(not(feature = "zstd"))]
#[path = "zstd_absent.rs"]
pub(crate) mod zstd;

use base::{Codec, Error, Result};
pub use short::{pack_value, unpack_value};

use crate::dictionary::Dictionary;

/// Decompresses `payload` into exactly `raw_bytes` bytes. The caller bounded `raw_bytes`.
///
/// # Errors
/// `Corrupt` if the payload is damaged or has another raw length, `Invalid` if this build lacks the
/// codec.
pub(crate) fn decompress(
    codec: Codec,
    dictionary: Option<&Dictionary>,
    payload: &[u8],
    raw_bytes: usize,
) -> Result<Vec<u8>> {
    let raw = match codec {
        Codec::None => payload.to_vec(),
        Codec::Lz4 => lz4::decompress(payload, raw_bytes)?,
        Codec::Zstd => zstd::decompress(dictionary, payload, raw_bytes)?,
    };
    if raw.len() != raw_bytes {
        return Err(Error::corrupt("decompressed length, bytes")
            .expected(raw_bytes)
            .got(raw.len()));
    }
    Ok(raw)
}

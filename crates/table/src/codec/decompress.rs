//! Decompresses payloads.
//!
//! Decompression does not trust its input: the raw length comes from a page header, is bounded before
//! memory is allocated, and must match exactly.

use base::{Codec, Error, Result};

use super::{deflate, lz4, zstd};
use crate::dictionary::Dictionary;

/// Refuses a codec that this build does not have.
///
/// # Errors
/// `Invalid`, naming the feature.
pub fn check_codec(codec: Codec) -> Result<()> {
    match codec {
        Codec::Zstd if !cfg!(feature = "zstd") => zstd_is_absent(),
        _ => Ok(()),
    }
}

pub(super) fn zstd_is_absent<T>() -> Result<T> {
    Err(Error::invalid("zstd").expected("a build with the feature `zstd`").got("one without"))
}

/// Decompresses a block's `payload`, of `raw_bytes` bytes, without a dictionary: for engines.
///
/// # Errors
/// `Corrupt` if the payload is damaged or has another raw length, `Invalid` if this build lacks the codec.
pub fn decompress_block(codec: Codec, payload: &[u8], raw_bytes: usize) -> Result<Vec<u8>> {
    decompress(codec, None, payload, raw_bytes)
}

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
        Codec::Deflate => deflate::decompress(payload, raw_bytes)?,
    };
    if raw.len() != raw_bytes {
        return Err(Error::corrupt("decompressed length, bytes")
            .expected(raw_bytes)
            .got(raw.len()));
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_that_the_build_lacks_is_refused_by_the_name_of_its_feature() {
        assert!(
            [Codec::None, Codec::Lz4, Codec::Deflate].map(check_codec).iter().all(Result::is_ok)
        );
        let checked = check_codec(Codec::Zstd);
        assert_eq!(checked.is_ok(), cfg!(feature = "zstd"));
        if let Err(error) = checked {
            assert_eq!(error.kind(), base::ErrorKind::Invalid);
            assert!(error.to_string().contains("the feature `zstd`"), "{error}");
        }
    }
}

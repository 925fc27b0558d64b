//! A compressor of whole blocks: zstd or DEFLATE, chosen once for a writer.

use std::sync::Arc;

use base::{Account, Codec, DictionaryId, Error, Result};

use super::{deflate, zstd};
use crate::dictionary::Dictionary;

/// Compresses the blocks of one writer, each at once.
pub(crate) enum Compressor {
    Zstd(zstd::Compressor),
    Deflate(deflate::Compressor),
}

impl Compressor {
    /// A compressor of `codec` at `level`; only zstd has dictionaries.
    ///
    /// # Errors
    /// `Retry` if memory is short, `Invalid` if the level is out of range, this build lacks the codec, or
    /// the codec does not compress whole blocks.
    pub(crate) fn new(
        codec: Codec,
        level: i32,
        dictionary: Option<Arc<Dictionary>>,
        account: &Account,
    ) -> Result<Self> {
        match codec {
            Codec::Zstd => zstd::Compressor::new(level, dictionary, account).map(Self::Zstd),
            Codec::Deflate => deflate::Compressor::new(level, account).map(Self::Deflate),
            Codec::None | Codec::Lz4 => Err(Error::invalid("codec of whole blocks")
                .expected("zstd or deflate")
                .got(codec as u8)),
        }
    }

    pub(crate) const fn codec(&self) -> Codec {
        match self {
            Self::Zstd(_) => Codec::Zstd,
            Self::Deflate(_) => Codec::Deflate,
        }
    }

    /// The id of the dictionary; 0 for none.
    pub(crate) fn dictionary_id(&self) -> DictionaryId {
        match self {
            Self::Zstd(zstd) => zstd.dictionary_id(),
            Self::Deflate(_) => DictionaryId(0),
        }
    }

    /// Replaces `out` with the compressed form of `raw`. Returns false, with `out` empty, if memory is too
    /// short, or `raw` would grow.
    ///
    /// # Errors
    /// `Retry` if the codec fails.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Zstd(zstd) => zstd.compress(raw, out),
            Self::Deflate(deflate) => deflate.compress(raw, out),
        }
    }
}

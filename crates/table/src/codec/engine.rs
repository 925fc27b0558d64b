//! Engines: compress and decompress blocks apart from the thread that packs them, in batches.
//!
//! A writer of tables submits blocks to a [`BlockStream`] and takes their compressed forms some blocks later,
//! in order ([`crate::Writer::compressing_with`]). Between the two its thread merges. Engines are a pool of
//! threads ([`super::SoftPool`]), a worker process, or hardware; all of them give streams that any build of
//! this crate decompresses.

use std::fmt;
use std::sync::Arc;

use base::{Account, Codec, Result};

use super::Compressor;

/// Compresses blocks elsewhere. Any thread may call.
pub trait BlockEngine: Send + Sync + fmt::Debug {
    /// Begins a stream of blocks. `None` if the engine does not compress with `codec`, or cannot now: the
    /// caller then compresses itself.
    fn stream(&self, codec: Codec, level: i32, account: &Account) -> Option<Box<dyn BlockStream>>;

    /// The decompressed form of `payload`, which has `raw_bytes` bytes. `None` if the engine does not
    /// decompress it: the caller then does.
    fn decompress(&self, codec: Codec, payload: &[u8], raw_bytes: usize) -> Option<Vec<u8>>;
}

/// Blocks in flight to an engine, in order. One thread uses it.
pub trait BlockStream: Send {
    /// Submits a block. Does not wait for its compression.
    ///
    /// # Errors
    /// Those of the engine. The stream is then over: the caller compresses every block that it did not take.
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> Result<()>;

    /// Waits for the compressed form of the oldest submitted block that was not taken; empty if compression
    /// would make it longer.
    ///
    /// # Errors
    /// As [`BlockStream::submit`].
    fn take(&mut self) -> Result<Vec<u8>>;
}

/// Compresses single blocks: for engines.
pub struct BlockCompressor {
    compressor: Compressor,
    codec: Codec,
    level: i32,
}

impl BlockCompressor {
    /// A compressor of `codec`, zstd or DEFLATE, at `level`.
    ///
    /// # Errors
    /// `Retry` if memory is short, `Invalid` if there is none for this codec and level.
    pub fn new(codec: Codec, level: i32, account: &Account) -> Result<Self> {
        let compressor = Compressor::new(codec, level, None, account)?;
        Ok(Self { compressor, codec, level })
    }

    /// Whether it compresses with `codec` at `level`.
    #[must_use]
    pub fn is_of(&self, codec: Codec, level: i32) -> bool {
        (self.codec, self.level) == (codec, level)
    }

    /// The compressed form of `raw`; empty if that would be longer, or memory is short.
    ///
    /// # Errors
    /// `Retry` if the codec fails.
    pub fn compress(&mut self, raw: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.compressor.compress(raw, &mut out)?;
        Ok(out)
    }
}

impl fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCompressor({:?}, level {})", self.codec, self.level)
    }
}

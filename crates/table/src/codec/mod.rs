//! Codecs: compress blocks to payloads, and decompress them.

mod compressor;
mod decompress;
pub(crate) mod deflate;
mod engine;
pub(crate) mod lz4;
mod pool;
mod short;
#[cfg(feature = "zstd")]
pub(crate) mod zstd;
#[cfg(not(feature = "zstd"))]
#[path = "zstd_absent.rs"]
pub(crate) mod zstd;

pub(crate) use compressor::Compressor;
pub(crate) use decompress::decompress;
pub use decompress::{check_codec, decompress_block};
pub use engine::{BlockCompressor, BlockEngine, BlockStream};
pub use pool::SoftPool;
pub use short::{pack_value, unpack_value};

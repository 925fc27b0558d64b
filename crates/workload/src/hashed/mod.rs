//! Benches of hashed keyspaces: the evaluation of SILT, the WAN optimizer of BufferHash, and the figures that
//! hashed keyspaces are judged by, measured and as the formulas of their design predict them.

mod dedup;
mod figures;
mod predicted;
mod silt;
mod wan;

#[cfg(test)]
mod tests;

pub use dedup::{DedupReport, run_dedup};
pub use figures::HashedFigures;
pub use predicted::Predicted;
pub use silt::{Phase, Silt, SiltOptions, SiltReport};
pub use wan::{InsertsAlone, WanFigures, WanOptions, WanReport, load_wan, run_wan, run_wan_on};
pub(crate) use wan::{KEY_BYTES as WAN_KEY_BYTES, POINTER_BYTES as WAN_POINTER_BYTES};

//! The commit log: write batches become records in the segments of a lane, groups of them with
//! one store and one sync, and recovery replays them in seqno order.
//!
//! Level 2 (docs/ARCHITECTURE.md): knows devices, and nothing of what a batch's body means. The
//! formats are in docs/format/log.md.
//!
//! Writing: [`Log`] -> combiner (many callers, one writer) -> lane (room, Mark, one store) ->
//! supply (the next segment) and retention (what keeps a segment). Reading: reader (one segment)
//! -> chain (one lane) -> recovery (all lanes, in seqno order).

mod chain;
mod combiner;
mod extent;
mod found;
mod group;
mod header;
mod inspect;
mod lane;
mod log;
mod loss;
mod name;
mod options;
mod pins;
mod reader;
mod record;
mod recover;
mod retention;
mod shared;
mod slot;
mod start;
mod statistics;
mod supply;
mod sync;
mod syncer;

pub use chain::Cut;
pub use extent::{Extent, extents};
pub use header::{FORMAT_VERSION, SegmentHeader};
pub use inspect::{LogEntry, check, inspect};
pub use log::{Log, LogEnd};
pub use loss::Loss;
pub use name::{parse_segment_name, segment_name};
pub use options::{Batch, Observer, Options, Recover, SEGMENT_BYTES_MIN};
pub use record::{Begin, Content, FIXED_BYTES, Keyspaces, Record, parse_record, record_bytes};
pub use recover::Recovery;
pub use start::Start;
pub use statistics::Statistics;

#[cfg(test)]
mod shuttled;
#[cfg(test)]
mod tests;

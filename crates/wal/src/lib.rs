//! The write-ahead log (WAL). Write batches become records in the segments of a lane. One store writes a
//! group of records and one sync makes it durable (group commit). Recovery replays the records in seqno
//! order.
//!
//! Layer 2 of docs/ARCHITECTURE.md: the log knows devices, and treats the body of a batch as opaque
//! bytes. docs/format/log.md has the formats.
//!
//! Write path: [`Log`] -> combiner (many callers, one leader) -> lane (room, Mark, one store). The
//! supply makes segments ahead of need; retention decides when a segment may be removed. Read path:
//! reader (one segment) -> chain (one lane) -> recovery (all lanes, in seqno order).

mod address;
mod chain;
mod combiner;
mod damaged;
mod device;
mod extent;
mod group;
mod header;
mod inspect;
mod known;
mod lane;
mod log;
mod loss;
mod name;
mod numbers;
mod options;
mod pins;
mod place;
mod position;
mod reader;
mod record;
mod recover;
mod retention;
mod scan;
mod segment_records;
mod shared;
mod slot;
mod source;
mod start;
mod statistics;
mod stored;
mod summary;
mod supply;
mod sync;
mod syncer;

pub use address::{Appended, RecordAddress};
pub use damaged::damaged_batches;
pub use device::{DEVICE_FILE, DeviceHeader, OpenDevices};
pub use extent::{Extent, extents};
pub use group::{encode_group, head_bytes};
pub use header::SegmentHeader;
pub use inspect::{LogEntry, check, inspect, inspect_bodies, read};
pub use known::Known;
pub use log::Log;
pub use loss::Loss;
pub use name::{parse_segment_name, segment_name};
pub use options::{Batch, LANES_MAX, Observer, Options, Recover, SEGMENT_BYTES_MIN};
pub use place::{DEVICE_LANES_MAX, DEVICES_MAX, LogDevice, LogPlace, PLACE_BYTES_MAX, device_of};
pub use position::{Cut, LogEnd, Reached};
pub use record::{Begin, Content, FIXED_BYTES, Keyspaces, Record, parse_record, record_bytes};
pub use recover::Recovery;
pub use retention::{FullSegment, SegmentUse};
pub use segment_records::{SegmentBatch, SegmentRecords};
pub use start::Start;
pub use statistics::{LaneStatistics, Statistics};
pub use stored::{StoredBatch, StoredSegment};
pub use summary::{SegmentSummary, skippable};

#[cfg(test)]
mod shuttled;
#[cfg(test)]
mod tests;

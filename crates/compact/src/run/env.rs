//! The environment of a run: media, operators, accounts, and memory for reads.

use std::sync::Arc;

use base::Account;
use base::limits::PAGE_BYTES;
use media::Medium;
use table::{BlockEngine, Dictionaries};

use crate::Operators;

/// Media, operators and accounts of a run.
#[derive(Clone, Debug)]
pub struct Env {
    /// The medium of inputs and outputs.
    pub medium: Arc<dyn Medium>,
    /// The dictionaries that pages and the job name.
    pub dictionaries: Arc<dyn Dictionaries>,
    /// The merge operators that this process knows.
    pub operators: Arc<Operators>,
    /// Charged with the memory of a run, except for `tables`.
    pub account: Account,
    /// Charged with the metadata and range deletes of input tables that the run opens.
    pub tables: Account,
    /// Bytes for read buffers, approximately. More memory makes reads longer, up to 256 KiB.
    pub read_bytes: usize,
    /// Operands are merged to values of at most this many bytes.
    pub value_bytes_max: usize,
    /// Compresses the blocks of outputs, and decompresses those of inputs; `None`: the run does.
    pub engine: Option<Arc<dyn BlockEngine>>,
    /// Whether outputs sum the hashes of their entries, and the outcome says which sums were read, dropped
    /// and made ([`EntrySums`](crate::EntrySums)).
    pub sums_entries: bool,
}

/// Most pages per read: every device reaches its full rate with reads of this length.
const CHUNK_PAGES_MAX: usize = 64;

/// Fewest pages per read, used when there are many runs.
const CHUNK_PAGES_MIN: usize = 8;

/// Read buffers per run: the chunk in use and the chunk in flight.
const CHUNKS: usize = 2;

/// Memory of a source besides its read buffers: a decoded block, a metadata page, keys.
const SOURCE_BYTES: usize = 128 << 10;

impl Env {
    /// Memory of a run with an engine beyond that of one without: blocks in flight, and a compressor for
    /// those that the engine does not compress, bytes.
    pub const ENGINE_BYTES: u64 = 2 << 20;

    /// Least memory that each input run needs, bytes.
    pub const RUN_BYTES_MIN: usize = CHUNKS * CHUNK_PAGES_MIN * PAGE_BYTES + SOURCE_BYTES;

    /// Pages per read of a job with `runs` input runs.
    pub(super) fn chunk_pages(&self, runs: usize) -> usize {
        (self.read_bytes / PAGE_BYTES / (CHUNKS * runs.max(1)))
            .clamp(CHUNK_PAGES_MIN, CHUNK_PAGES_MAX)
    }
}

/// Memory of a source that reads `chunk_pages` at a time, bytes.
pub(super) const fn source_bytes(chunk_pages: usize) -> usize {
    CHUNKS * chunk_pages * PAGE_BYTES + SOURCE_BYTES
}

//! One access of a workload, and the trait of the streams of accesses.

use base::Result;

/// The most distinct keys of a trace that is held in memory, which takes about 2 GiB.
pub(crate) const KEYS_MAX: usize = 1 << 24;

/// The operation of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// Read; write if the key does not exist, as the user of a cache does.
    #[default]
    GetOrPut,
    /// Read.
    Get,
    /// Write.
    Put,
    /// Read, then write: read-modify-write, append, increment.
    Update,
    /// Delete.
    Delete,
    /// Read this many entries from the key on.
    Scan(u32),
}

/// One access of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The operation.
    pub op: Op,
    /// The key. Numeric keys are their eight big-endian bytes.
    pub key: Vec<u8>,
    /// The size of the value, bytes, if the trace records it.
    pub value_bytes: Option<u64>,
}

impl Access {
    pub(super) fn set(&mut self, op: Op, key: &[u8], value_bytes: Option<u64>) {
        self.op = op;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value_bytes = value_bytes;
    }
}

/// The position of a stream, in a unit of its own: file bytes read, or operations generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Read or generated so far.
    pub done: u64,
    /// The total; 0 if it is unknown.
    pub total: u64,
}

/// A stream of accesses.
pub trait Trace: Send {
    /// Replaces `access` with the next one of the load phase, which fills the store before the measurement.
    /// Returns whether there was one. Only generated workloads have a load phase.
    ///
    /// # Errors
    /// Those of [`Trace::next`].
    fn load(&mut self, access: &mut Access) -> Result<bool> {
        let _ = access;
        Ok(false)
    }

    /// Replaces `access` with the next one. Returns whether there was one.
    ///
    /// # Errors
    /// `Corrupt` with its place if the input is damaged; the stream has then ended.
    fn next(&mut self, access: &mut Access) -> Result<bool>;

    /// The position of the stream.
    fn position(&self) -> Position;
}

/// Calls `each` with the accesses of `trace` after its load phase, at most `limit` of them.
pub(crate) fn for_each(
    trace: &mut dyn Trace,
    limit: Option<u64>,
    each: &mut dyn FnMut(&Access) -> Result<()>,
) -> Result<()> {
    let mut access = Access::default();
    while trace.load(&mut access)? {}
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 && trace.next(&mut access)? {
        each(&access)?;
        left -= 1;
    }
    Ok(())
}

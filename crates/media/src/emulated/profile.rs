//! The constants of a device. Each profile gives the source of its constants in its own file.

/// How a device is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores.
    Memory,
    /// Reads and writes of blocks.
    Block,
}

/// Constants of reads, or of one kind of write. Curves are lists of points sorted by x, linear in between.
#[derive(Clone, Copy, Debug)]
pub struct AccessProfile {
    /// Latency of a short access on an idle device, nanoseconds: of 64 B for memory, of one unit for blocks.
    pub latency_ns: f64,
    /// The same for an access that continues the thread's last one.
    pub sequential_ns: f64,
    /// Bandwidth by number of threads, GB/s, at the best access size.
    pub threads: &'static [(f64, f64)],
    /// Factor on that bandwidth by access size, bytes, on top of the effects of the unit and of the
    /// write-combining buffer. For memory: random accesses only.
    pub sizes: &'static [(f64, f64)],
    /// Latency of a write followed by a fence, by size, nanoseconds, on an idle device. Empty: computed from
    /// the latency and the bandwidth above.
    pub fenced_ns: &'static [(f64, f64)],
    /// Bandwidth of one thread by size if a fence follows each write, GB/s. Empty: as without fences.
    pub fenced: &'static [(f64, f64)],
}

/// How reads and writes slow each other down.
#[derive(Clone, Copy, Debug)]
pub struct Interference {
    /// Total bandwidth relative to running reads and writes one after the other, by the writes' share of
    /// bytes: for one thread.
    pub one: &'static [(f64, f64)],
    /// The same for [`Interference::many_threads`] threads.
    pub many: &'static [(f64, f64)],
    /// The threads of the second curve.
    pub many_threads: f64,
    /// Factor on a read's latency, by the share of the time that the device is busy writing.
    pub loaded: &'static [(f64, f64)],
}

/// Rare slow writes.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// One write in this many takes `slow_ns` longer.
    pub slow_one_in: u64,
    /// Added latency, nanoseconds.
    pub slow_ns: f64,
    /// One write in this many takes `rare_ns` longer.
    pub rare_one_in: u64,
    /// Added latency, nanoseconds.
    pub rare_ns: f64,
    /// Wear is evaluated for groups of this many writes.
    pub wear_writes: u64,
    /// Added latency of the first write after a group in which one region of `wear_bytes` got a large part of
    /// the writes: (least part, (least, most nanoseconds)), sorted by part; the last entry that is reached
    /// applies.
    pub wear: &'static [(f64, (f64, f64))],
    /// Size of a region for wear, bytes.
    pub wear_bytes: u64,
}

/// The constants of a device.
#[derive(Debug)]
pub struct Profile {
    /// The name in `emulated:NAME`.
    pub name: &'static str,
    /// The name for statistics.
    pub backend: &'static str,
    /// How it is accessed.
    pub kind: Kind,
    /// The least that the medium reads or writes, bytes: a shorter access costs as much.
    pub unit: u64,
    /// Reads.
    pub read: AccessProfile,
    /// Writes; for memory, writes that bypass the processor's caches.
    pub store: AccessProfile,
    /// Stores through the caches, with lines flushed one by one; for blocks as [`Profile::store`].
    pub flushed: AccessProfile,
    /// Capacity of the write-combining buffer, units; 0 for none.
    pub combining_units: usize,
    /// None if reads and writes do not slow each other down.
    pub mixed: Option<Interference>,
    /// None if writes have no tail.
    pub tail: Option<Tail>,
}

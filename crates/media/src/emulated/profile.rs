//! What is known of a device: constants, each with its source in the profile's own file.

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores.
    Memory,
    /// Reads and writes of blocks.
    Block,
}

/// Reads, or one way to write. Curves are points in order of x, straight between them.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// A short access at rest, nanoseconds: for memory 64 B, for blocks one unit, all included.
    pub latency_ns: f64,
    /// The same where it goes on behind the thread's last one.
    pub sequential_ns: f64,
    /// Bandwidth against the number of threads, GB/s, at the best access size.
    pub threads: &'static [(f64, f64)],
    /// What the unit and the write-combining buffer leave to explain: the part of that bandwidth
    /// against the access size, bytes. Of memory, for random accesses only.
    pub sizes: &'static [(f64, f64)],
    /// Latency against size of a write followed by a fence, nanoseconds, at rest. Empty: the latency
    /// above and the bandwidth.
    pub fenced_ns: &'static [(f64, f64)],
    /// Bandwidth of one thread against size where each write is followed by a fence, GB/s. Empty: no
    /// different.
    pub fenced: &'static [(f64, f64)],
}

/// Reads and writes in each other's way.
#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// Total bandwidth as a part of what each alone would give one after the other, against the
    /// writes' share of bytes; for one thread, and for as many as [`Mixed::many_threads`].
    pub one: &'static [(f64, f64)],
    /// As above.
    pub many: &'static [(f64, f64)],
    /// The threads of the second curve.
    pub many_threads: f64,
    /// A read's latency as a multiple, against the part of the time that writes keep the device busy.
    pub loaded: &'static [(f64, f64)],
}

/// Rare long writes.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Of this many writes one takes `slow_ns` more.
    pub slow_one_in: u64,
    /// See above.
    pub slow_ns: f64,
    /// Of this many writes one takes `rare_ns` more.
    pub rare_one_in: u64,
    /// See above.
    pub rare_ns: f64,
    /// Writes are looked at in groups of this many.
    pub wear_writes: u64,
    /// The next group's first write takes this much more, from the least to the most, where this part
    /// of the group, or a larger one, went to one place of `wear_bytes`: (part, nanoseconds), in order
    /// of parts.
    pub wear: &'static [(f64, (f64, f64))],
    /// See above.
    pub wear_bytes: u64,
}

/// A device's constants.
#[derive(Debug)]
pub struct Profile {
    /// The name in `emulated:NAME`.
    pub name: &'static str,
    /// The name for statistics.
    pub backend: &'static str,
    /// How it is reached.
    pub kind: Kind,
    /// What the medium reads and writes at once, bytes: less costs as much.
    pub unit: u64,
    /// Reads.
    pub read: Path,
    /// Writes; to memory, ones that bypass the processor's caches.
    pub store: Path,
    /// Stores through the caches, lines written back one by one; to blocks as [`Profile::store`].
    pub flushed: Path,
    /// Units of the write-combining buffer; 0 for none.
    pub combining_units: usize,
    /// None where reads and writes do not meet.
    pub mixed: Option<Mixed>,
    /// None where writes have no tail.
    pub tail: Option<Tail>,
}

impl Profile {
    /// The profile called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        super::PROFILES.iter().copied().find(|profile| profile.name == name)
    }
}

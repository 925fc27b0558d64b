//! Priorities of a window's entries: user code that decides which entries outlive their run.
//!
//! A keyspace stores the name of its priority, and a store with such a window opens only in a process that
//! knows the name: no other process could evict as the user wants.

use std::fmt::Debug;

/// Decides which entries of a window's oldest runs are retained when the others are evicted.
///
/// It must be pure: equal arguments give equal results in any process, at any time. Background jobs call it
/// once per entry, from several threads.
pub trait WindowPriority: Send + Sync + Debug {
    /// The priority's identity, including its version. It is stored with the keyspace: a changed name is
    /// another priority.
    fn name(&self) -> &str;

    /// The priority of an entry; 0: it is evicted. If the others take more than a quarter of the window, the
    /// lowest are evicted too. `value` is `None` for a value of 16 KiB or more, which is stored apart from
    /// its key and is not read for this.
    fn priority(&self, key: &[u8], value: Option<&[u8]>) -> u8;
}

/// The first byte of the value is its priority. An empty value has priority 0, a value of 16 KiB or more 255.
#[derive(Clone, Copy, Debug)]
pub struct FirstByte;

impl FirstByte {
    /// The priority's stored name.
    pub const NAME: &'static str = "terrace.first-byte.1";
}

impl WindowPriority for FirstByte {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn priority(&self, _key: &[u8], value: Option<&[u8]>) -> u8 {
        value.map_or(u8::MAX, |value| value.first().copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_of_a_value_is_its_priority() {
        assert_eq!(FirstByte.priority(b"k", Some(b"\x07abc")), 7);
        assert_eq!(FirstByte.priority(b"k", Some(b"")), 0);
        assert_eq!(FirstByte.priority(b"k", None), 255);
    }
}

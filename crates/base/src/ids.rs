//! Identifiers. Each is a distinct type so that one cannot be passed for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A keyspace of a store. Never reused within the store.
    KeyspaceId(u32)
);

impl KeyspaceId {
    /// No keyspace: what a log record is filed under that no keyspace needs.
    pub const NONE: Self = Self(0);
}

id!(
    /// A table file of a store. Never reused within the store: page checksums are seeded with it.
    TableId(u64)
);
id!(
    /// A sorted run of a keyspace's tree: tables that do not overlap. A larger one is newer: where
    /// two runs hold the same key, the larger one's version is newer (I4).
    RunId(u64)
);
id!(
    /// A compression dictionary of a store. 0 stands for "no dictionary".
    DictionaryId(u32)
);
id!(
    /// A lane of the commit log: one device's append log.
    LaneId(u16)
);
id!(
    /// A segment file within a lane. Grows by one with every segment.
    SegmentId(u64)
);

/// A store's identity: 128 random bits drawn when the store is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StoreId(pub u128);

impl StoreId {
    /// Draws a fresh identity from the operating system's randomness.
    ///
    /// # Errors
    /// `Retry` where the operating system has no randomness to give.
    pub fn random() -> crate::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|e| crate::Error::retry("operating system randomness").got(e))?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({:032x})", self.0)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

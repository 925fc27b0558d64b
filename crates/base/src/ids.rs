//! Identifiers. Each kind has its own type, so that the compiler rejects a mix-up.

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
    /// No keyspace: the id in a log record that belongs to no keyspace.
    pub const NONE: Self = Self(0);
}

id!(
    /// A table file of a store. Never reused within the store, because it seeds page checksums.
    TableId(u64)
);
id!(
    /// A sorted run of a keyspace's tree. A larger id is a newer run: if two runs hold the same key, the
    /// version in the run with the larger id is newer (I4).
    RunId(u64)
);
id!(
    /// A compression dictionary of a store. 0 means no dictionary.
    DictionaryId(u32)
);
id!(
    /// A lane of the write-ahead log: one append-only sequence of segments on one device.
    LaneId(u16)
);
id!(
    /// A segment file of a lane. Each new segment has the next number.
    SegmentId(u64)
);

/// A store's identity: 128 random bits drawn when the store is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StoreId(pub u128);

impl StoreId {
    /// A new random identity, from the operating system.
    ///
    /// # Errors
    /// `Retry` if the operating system returns no random bytes.
    pub fn random() -> crate::Result<Self> {
        random_u128().map(Self)
    }
}

/// A line of successive states of one store. A copy of a store (a restored backup, a checkpoint) keeps the
/// [`StoreId`], because it seeds the checksums of the copied pages, and goes its own way from there: it gets
/// a lineage of its own. A created store has the lineage with the number of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineageId(pub u128);

impl LineageId {
    /// The lineage of a copy that begins now: random, from the operating system.
    ///
    /// # Errors
    /// `Retry` if the operating system returns no random bytes.
    pub fn random() -> crate::Result<Self> {
        random_u128().map(Self)
    }

    /// The lineage of a store that is no copy.
    #[must_use]
    pub const fn of_origin(store: StoreId) -> Self {
        Self(store.0)
    }
}

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

fn random_u128() -> crate::Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| crate::Error::retry("operating system randomness").got(e))?;
    Ok(u128::from_le_bytes(bytes))
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

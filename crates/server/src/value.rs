//! [`Value`]: the stored value of a key, of any type.
//!
//! As stored: type (1 byte), flags (1 byte), expiry (8 bytes, Unix milliseconds, little-endian, if
//! flagged), body. The body of a string is its bytes; that of a small collection its elements, one behind
//! the other ([`crate::collection::inline`]); that of a large one its [`Head`], and its elements are rows
//! of their own in the keyspace `redis.parts`. A value with an unknown type or flag is refused, never
//! misread.

use bytes::Bytes;

use crate::reply::Fail;

/// The longest string, as proto-max-bulk-len of Redis would set it; the store's own limit is lower for a
/// small memory limit.
pub(crate) const STRING_BYTES_MAX: usize = 60 << 20;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    String,
    Hash,
    Set,
    SortedSet,
    List,
}

impl Kind {
    const ALL: [Self; 5] = [Self::String, Self::Hash, Self::Set, Self::SortedSet, Self::List];

    /// The type with the name `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn number(self) -> u8 {
        match self {
            Self::String => 0,
            Self::Hash => 1,
            Self::Set => 2,
            Self::SortedSet => 3,
            Self::List => 4,
        }
    }

    /// The rows of one element of a large collection.
    pub(crate) const fn rows(self) -> u64 {
        match self {
            // By member and by score.
            Self::SortedSet => 2,
            _ => 1,
        }
    }

    /// The name that TYPE replies with.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::List => "list",
        }
    }
}

const HAS_EXPIRY: u8 = 1;
const IS_LARGE: u8 = 2;
const IS_WIDE: u8 = 4;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    /// Unix milliseconds; 0: it does not expire.
    pub(crate) expiry: u64,
    /// The elements are rows of their own, and the body is a [`Head`].
    pub(crate) is_large: bool,
    /// Whether the collection was long once: OBJECT ENCODING names the encoding of long collections from then
    /// on.
    pub(crate) is_wide: bool,
    /// The body.
    pub(crate) bytes: Bytes,
}

impl Value {
    /// A string.
    pub(crate) fn string(expiry: u64, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { kind: Kind::String, expiry, is_large: false, is_wide: false, bytes }
    }

    /// A string that does not expire.
    pub(crate) fn lasting(bytes: impl Into<Bytes>) -> Self {
        Self::string(0, bytes)
    }

    /// As stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut stored = Vec::with_capacity(10 + self.bytes.len());
        stored.push(self.kind.number());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        stored.push(
            flag(self.expiry > 0, HAS_EXPIRY)
                | flag(self.is_large, IS_LARGE)
                | flag(self.is_wide, IS_WIDE),
        );
        if self.expiry > 0 {
            stored.extend_from_slice(&self.expiry.to_le_bytes());
        }
        stored.extend_from_slice(&self.bytes);
        stored
    }

    /// The value with the stored form `stored`.
    ///
    /// # Errors
    /// If a newer version wrote it.
    pub(crate) fn decode(stored: &Bytes) -> Result<Self, Fail> {
        let (head, rest) = stored.split_first_chunk::<2>().ok_or_else(unknown)?;
        let [kind, flags] = *head;
        let kind = Kind::ALL.into_iter().find(|known| known.number() == kind);
        let kind = kind.ok_or_else(unknown)?;
        let known = if kind == Kind::String { HAS_EXPIRY } else { HAS_EXPIRY | IS_LARGE | IS_WIDE };
        if flags & !known != 0 {
            return Err(unknown());
        }
        let (expiry, at) = match flags & HAS_EXPIRY {
            0 => (0, 2),
            _ => (u64::from_le_bytes(*rest.first_chunk::<8>().ok_or_else(unknown)?), 10),
        };
        let (is_large, is_wide) = (flags & IS_LARGE != 0, flags & IS_WIDE != 0);
        Ok(Self { kind, expiry, is_large, is_wide, bytes: stored.slice(at..) })
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        is_expired(self.expiry, now)
    }

    /// The head of a large collection.
    ///
    /// # Errors
    /// As [`Value::decode`].
    pub(crate) fn head(&self) -> Result<Option<Head>, Fail> {
        if !self.is_large {
            return Ok(None);
        }
        Head::decode(&self.bytes).map(Some)
    }
}

/// Whether a value with this expiry (0: none) has expired.
pub(crate) const fn is_expired(expiry: u64, now: u64) -> bool {
    expiry > 0 && expiry <= now
}

fn unknown() -> Fail {
    Fail::new("ERR the stored value was written by a newer version")
}

/// The most elements of a large collection, and the greatest number of one: sums with a few of them, and
/// their doubles, do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 60;

/// The head of a large collection: three numbers of 8 bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number that the rows of the elements begin with, unique in the store.
    pub(crate) id: u64,
    /// The number of elements.
    pub(crate) count: u64,
    /// The seed of the members' hash; of a list the place of its first element.
    pub(crate) start: u64,
}

impl Head {
    pub(crate) fn encode(self) -> Bytes {
        [self.id, self.count, self.start].map(u64::to_le_bytes).concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fail> {
        let bytes: &[u8; 24] = bytes.try_into().map_err(|_| unknown())?;
        let (parts, _) = bytes.as_chunks::<8>();
        let mut numbers = parts.iter().map(|part| u64::from_le_bytes(*part));
        let mut next = || numbers.next().ok_or_else(unknown);
        let head = Self { id: next()?, count: next()?, start: next()? };
        // The last element takes its collection with it.
        match head.id <= NUMBER_MAX && (1..=NUMBER_MAX).contains(&head.count) {
            true => Ok(head),
            false => Err(Fail::new("ERR the stored collection is damaged")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes on the device: a change of these is a change of the format.
    #[test]
    fn stored_values_have_these_bytes() {
        let string = Value::string(0x0102, "ab");
        assert_eq!(string.encode(), b"\x00\x01\x02\x01\0\0\0\0\0\0ab");
        let bytes = Head { id: 1, count: 2, start: 3 }.encode();
        let large = Value { kind: Kind::List, is_large: true, ..Value::lasting(bytes) };
        let stored = b"\x04\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(large.encode(), stored);
        let wide = Value { kind: Kind::Hash, is_wide: true, ..Value::lasting("x") };
        assert_eq!(wide.encode(), b"\x01\x04x");
        for value in [string, large, wide] {
            assert_eq!(Value::decode(&value.encode().into()).unwrap(), value);
        }
    }

    #[test]
    fn a_value_of_an_unknown_form_is_refused() {
        for stored in [&b""[..], b"\0", b"\x05\0", b"\0\x02a", b"\x01\x08", b"\0\x01short"] {
            assert!(Value::decode(&Bytes::copy_from_slice(stored)).is_err(), "{stored:?}");
        }
        let short = Value { kind: Kind::Set, is_large: true, ..Value::lasting("23 bytes") };
        assert!(short.head().is_err());
        for (id, count) in [(u64::MAX, 1), (NUMBER_MAX + 1, 1), (1, 0), (1, u64::MAX)] {
            let bytes = Head { id, count, start: u64::MAX }.encode();
            let damaged = Value { kind: Kind::Set, is_large: true, ..Value::lasting(bytes) };
            assert!(damaged.head().is_err(), "{id} {count}");
        }
        let bytes = Head { id: NUMBER_MAX, count: NUMBER_MAX, start: u64::MAX }.encode();
        let greatest = Value { kind: Kind::Set, is_large: true, ..Value::lasting(bytes) };
        assert!(greatest.head().is_ok());
    }
}

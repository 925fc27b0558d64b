//! Enums that files store as numbers. New variants get new numbers; the number of a removed variant is never
//! used again.

use crate::{Error, Result};

macro_rules! persisted {
    (
        $(#[$doc:meta])* $name:ident: $what:literal {
            $($(#[$vdoc:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $value,)+
        }

        impl $name {
            /// Decodes the stored byte.
            ///
            /// # Errors
            /// `Corrupt` if no variant has this number.
            #[inline]
            pub fn decode(byte: u8) -> Result<Self> {
                match byte {
                    $($value => Ok(Self::$variant),)+
                    other => Err(Error::corrupt($what).expected("a known number").got(other)),
                }
            }
        }
    };
}

persisted!(
    /// The kind of one version of a key.
    EntryKind: "entry kind" {
        /// A tombstone: the key has no value.
        Delete = 0,
        /// The value follows.
        Put = 1,
        /// The value is separated: a pointer into a value file follows.
        PutPointer = 2,
        /// A range delete: deletes every key from this one up to the exclusive bound that follows.
        DeleteRange = 3,
        /// An operand of the keyspace's merge operator follows.
        Merge = 4,
        /// As `Put`, with an expiry before the value ([`crate::expiry`]).
        PutExpiring = 5,
    }
);

persisted!(
    /// How a page's payload is compressed.
    Codec: "codec" {
        /// Not compressed.
        None = 0,
        /// LZ4 block format.
        Lz4 = 1,
        /// One Zstandard frame.
        Zstd = 2,
        /// One raw DEFLATE stream (RFC 1951).
        Deflate = 3,
    }
);

persisted!(
    /// When a write is acknowledged. No setting but `Unlogged` loses an acknowledged write if the *process*
    /// dies; they differ in the writes that a power cut may lose.
    Durability: "durability" {
        /// Acknowledged once the log record is in memory that outlives the process.
        None = 0,
        /// As `None`; a background task makes the log durable at least once per interval.
        Interval = 1,
        /// Acknowledged once the log record is durable on the device.
        Sync = 2,
        /// Not logged: the write costs no byte of the log, and is lost if the process dies before its
        /// memtable is flushed. A flush makes it durable, and so does a close of the store. For windows only
        /// (`HashedPolicy::Window`), which may lose entries anyway.
        Unlogged = 3,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every store ever written contains these numbers.
    #[test]
    fn stored_numbers_are_stable() {
        let kinds = [
            EntryKind::Delete,
            EntryKind::Put,
            EntryKind::PutPointer,
            EntryKind::DeleteRange,
            EntryKind::Merge,
            EntryKind::PutExpiring,
        ];
        for (number, kind) in (0u8..).zip(kinds) {
            assert_eq!(kind as u8, number);
            assert_eq!(EntryKind::decode(number).unwrap(), kind);
        }
        assert!(EntryKind::decode(6).is_err());
        for (number, codec) in (0u8..).zip([Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate]) {
            assert_eq!(Codec::decode(number).unwrap(), codec);
        }
        assert!(Codec::decode(4).is_err());
        assert_eq!(Durability::decode(2).unwrap(), Durability::Sync);
        assert_eq!(Durability::decode(3).unwrap(), Durability::Unlogged);
    }
}

//! Enums whose numbers are stored. Numbers are append-only; a retired number stays reserved.

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
            /// Reads the stored byte.
            ///
            /// # Errors
            /// `Corrupt` where no variant has this number.
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
    /// What one version of a key says.
    EntryKind: "entry kind" {
        /// The key has no value.
        Delete = 0,
        /// The key has the value that follows.
        Put = 1,
        /// Reserved: the value lies in a value file; a pointer follows.
        PutPointer = 2,
        /// Reserved: every key from this one to the bound that follows has no value.
        DeleteRange = 3,
        /// Reserved: an operand for the keyspace's merge operator follows.
        Merge = 4,
        /// Reserved: as `Put`, with an expiry in milliseconds before the value.
        PutExpiring = 5,
    }
);

persisted!(
    /// How a page's payload is compressed.
    Codec: "codec" {
        /// As is.
        None = 0,
        /// LZ4 block format.
        Lz4 = 1,
        /// One Zstandard frame.
        Zstd = 2,
    }
);

persisted!(
    /// When a write is acknowledged. No setting loses an acknowledged write when the *process*
    /// dies; they differ in what a power cut may take.
    Durability: "durability" {
        /// Acknowledged once the log holds it in memory that outlives the process.
        None = 0,
        /// As `None`; a background task makes the log durable at least once per interval.
        Interval = 1,
        /// Acknowledged once durable on the device.
        Sync = 2,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    /// The stored numbers are an interface with every store ever written.
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
        for (number, codec) in (0u8..).zip([Codec::None, Codec::Lz4, Codec::Zstd]) {
            assert_eq!(Codec::decode(number).unwrap(), codec);
        }
        assert_eq!(Durability::decode(2).unwrap(), Durability::Sync);
    }
}

//! What a table says about itself: recorded in the file, and by the manifest.
//!
//! Stored as (number, length, bytes) fields in ascending order of their numbers. Numbers are
//! append-only: a reader skips the ones it does not know, and a field it knows and does not find
//! keeps its default.

use base::{Codec, Cursor, DictionaryId, Error, Result, Seqno, put_bytes, put_varint};

/// The most dictionaries one table may name.
const DICTIONARIES_MAX: usize = 1 << 12;

macro_rules! fields {
    ($($(#[$doc:meta])* $number:literal $name:ident: $type:ty,)+) => {
        /// The facts of one table.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Properties {
            $($(#[$doc])* pub $name: $type,)+
        }

        impl Properties {
            /// The stored form.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let (mut out, mut field) = (Vec::new(), Vec::new());
                $(
                    field.clear();
                    Field::put(&self.$name, &mut field);
                    put_varint(&mut out, $number);
                    put_bytes(&mut out, &field);
                )+
                out
            }

            /// Reads the stored form.
            ///
            /// # Errors
            /// `Corrupt` where a field is damaged or out of order.
            pub fn decode(bytes: &[u8]) -> Result<Self> {
                let mut cursor = Cursor::new("table properties", bytes);
                let mut properties = Self::default();
                let mut last = 0;
                while !cursor.is_empty() {
                    let number = cursor.varint()?;
                    if number <= last {
                        return Err(Error::corrupt("table property number")
                            .expected(format_args!("over {last}"))
                            .got(number));
                    }
                    last = number;
                    let length = cursor.length(bytes.len())?;
                    let mut field = Cursor::new("table property", cursor.take(length)?);
                    match number {
                        $($number => {
                            properties.$name = <$type as Field>::get(&mut field)?;
                            field.finish()?;
                        })+
                        // A later version's field.
                        _ => {}
                    }
                }
                Ok(properties)
            }

            /// Every field's name and value, in the order stored; for reports.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), Field::show(&self.$name))),+]
            }
        }
    };
}

fields! {
    /// The smallest key.
    1 first_key: Vec<u8>,
    /// The largest key.
    2 last_key: Vec<u8>,
    /// The smallest sequence number.
    3 seqno_min: Seqno,
    /// The largest sequence number.
    4 seqno_max: Seqno,
    /// Versions of keys.
    5 entries: u64,
    /// Versions that delete.
    6 deletes: u64,
    /// Distinct keys.
    7 keys: u64,
    /// Key and value bytes as handed in, over all entries.
    8 raw_bytes: u64,
    /// Data blocks.
    9 blocks: u64,
    /// Blocks of more than one page.
    10 runs: u64,
    /// Data blocks before compression, bytes.
    11 block_bytes: u64,
    /// Pages of data blocks.
    12 data_pages: u64,
    /// Metadata pages, one for each partition.
    13 meta_pages: u64,
    /// Bytes of metadata pages in use.
    14 meta_bytes: u64,
    /// Bytes of filters within the metadata pages.
    15 filter_bytes: u64,
    /// Bytes of data pages that hold nothing.
    16 padding_bytes: u64,
    /// Blocks compressed, those compressed again after a wrong guess included.
    17 compressions: u64,
    /// Reserved for time to live: when the last entry expires, Unix milliseconds. 0: some entry
    /// never does.
    18 latest_expiry: u64,
    /// How blocks are compressed, those stored as they are apart.
    19 codec: CodecField,
    /// The codec's level.
    20 level: i32,
    /// The dictionaries its pages name.
    21 dictionaries: Vec<DictionaryId>,
    /// What the table was written for, as statistics name it.
    22 written_for: String,
}

/// [`Codec`] with a default, for [`Properties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecField(pub Codec);

impl Default for CodecField {
    fn default() -> Self {
        Self(Codec::None)
    }
}

trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(cursor: &mut Cursor<'_>) -> Result<Self>;
    fn show(&self) -> String;
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        cursor.varint()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Field for i32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(cursor.u32()?.cast_signed())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Field for Seqno {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.get());
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Self::try_from(cursor.varint()?)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Field for CodecField {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0 as u8);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Codec::decode(cursor.u8()?).map(Self)
    }

    fn show(&self) -> String {
        format!("{:?}", self.0).to_lowercase()
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let rest = cursor.rest();
        Ok(cursor.take(rest.len())?.to_vec())
    }

    fn show(&self) -> String {
        self.escape_ascii().to_string()
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Self::from_utf8(<Vec<u8> as Field>::get(cursor)?)
            .map_err(|error| Error::corrupt("table property").expected("UTF-8").caused_by(error))
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Field for Vec<DictionaryId> {
    fn put(&self, out: &mut Vec<u8>) {
        for id in self {
            out.extend_from_slice(&id.0.to_le_bytes());
        }
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let bytes = cursor.rest().len();
        if bytes > DICTIONARIES_MAX * size_of::<u32>() {
            return Err(Error::corrupt("dictionaries of a table")
                .expected(format_args!("at most {DICTIONARIES_MAX}"))
                .got(bytes / size_of::<u32>()));
        }
        let mut ids = Self::with_capacity(bytes / size_of::<u32>());
        while !cursor.is_empty() {
            ids.push(DictionaryId(cursor.u32()?));
        }
        Ok(ids)
    }

    fn show(&self) -> String {
        let ids: Vec<String> = self.iter().map(ToString::to_string).collect();
        ids.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Properties {
        Properties {
            first_key: b"a".to_vec(),
            last_key: vec![0xff; 300],
            seqno_min: Seqno::new(1),
            seqno_max: Seqno::MAX,
            entries: u64::MAX,
            codec: CodecField(Codec::Zstd),
            level: -5,
            dictionaries: vec![DictionaryId(1), DictionaryId(u32::MAX)],
            written_for: "flush".to_owned(),
            ..Properties::default()
        }
    }

    #[test]
    fn fields_round_trip_and_unknown_ones_are_skipped() {
        let mut bytes = sample().encode();
        assert_eq!(Properties::decode(&bytes).unwrap(), sample());
        put_varint(&mut bytes, 999);
        put_bytes(&mut bytes, b"of a later version");
        assert_eq!(Properties::decode(&bytes).unwrap(), sample());
        assert_eq!(Properties::decode(&[]).unwrap(), Properties::default());
    }

    #[test]
    fn damage_is_an_error_or_another_value_but_never_a_panic() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            assert!(Properties::decode(&bytes[..at]).is_err() || at < bytes.len());
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(other) = Properties::decode(&damaged) {
                    assert_ne!(other, sample(), "byte {at} bit {bit}");
                }
            }
        }
    }
}

//! Properties: facts about a table, recorded in its file and in the manifest.
//!
//! Stored as (number, length, bytes) fields in ascending order of their numbers. Numbers are
//! append-only: a reader skips unknown fields, and a missing field has its default.

use base::{
    Codec, Cursor, DictionaryId, Error, HashKey, KeyForm, KeyspaceId, Result, Seqno, TableId,
    put_bytes, put_varint,
};

use super::layout::Layout;

/// Most dictionaries that one table may name.
const DICTIONARIES_MAX: usize = 1 << 12;

/// Most value files that one table may point into.
pub(super) const VALUE_FILES_MAX: usize = 1 << 16;

/// The last of the fields that are always stored. Later fields are stored only if they are not zero or
/// empty, so that a table without them has the bytes of format version 1.
const ALWAYS_STORED: u64 = 22;

macro_rules! fields {
    ($($(#[$doc:meta])* $number:literal $name:ident: $type:ty,)+) => {
        /// The facts of one table.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Properties {
            $($(#[$doc])* pub $name: $type,)+
        }

        impl Properties {
            /// Encodes the properties.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let (mut out, mut field) = (Vec::new(), Vec::new());
                $(
                    if $number <= ALWAYS_STORED || self.$name != <$type>::default() {
                        field.clear();
                        Field::put(&self.$name, &mut field);
                        put_varint(&mut out, $number);
                        put_bytes(&mut out, &field);
                    }
                )+
                out
            }

            /// Decodes the stored form.
            ///
            /// # Errors
            /// `Corrupt` if a field is damaged or out of order.
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
                        // A field of a later version.
                        _ => {}
                    }
                }
                Ok(properties)
            }

            /// Every field's name and value, in stored order, for reports.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), Field::show(&self.$name))),+]
            }
        }
    };
}

fields! {
    /// The smallest key of an entry or start of a range delete.
    1 first_key: Vec<u8>,
    /// The largest key of an entry; empty in a table of only range deletes. [`Properties::end_key`] is
    /// the end of all entries and range deletes.
    2 last_key: Vec<u8>,
    /// The smallest seqno of entries and range deletes.
    3 seqno_min: Seqno,
    /// The largest seqno of entries and range deletes.
    4 seqno_max: Seqno,
    /// Number of versions.
    5 entries: u64,
    /// Number of tombstones.
    6 deletes: u64,
    /// Number of distinct keys.
    7 keys: u64,
    /// Key and value bytes of all entries, before encoding.
    8 raw_bytes: u64,
    /// Number of data blocks.
    9 blocks: u64,
    /// Number of blocks of more than one page.
    10 runs: u64,
    /// Length of the data blocks before compression, bytes.
    11 block_bytes: u64,
    /// Number of pages of data blocks.
    12 data_pages: u64,
    /// Number of metadata pages, one per partition.
    13 meta_pages: u64,
    /// Used bytes of metadata pages.
    14 meta_bytes: u64,
    /// Length of the filters in the metadata pages, bytes.
    15 filter_bytes: u64,
    /// Unused bytes of data pages.
    16 padding_bytes: u64,
    /// Number of block compressions, corrections of wrong estimates included.
    17 compressions: u64,
    /// The latest expiry of an entry, Unix milliseconds. 0 if an entry or a range delete never expires.
    18 latest_expiry: u64,
    /// The codec of compressed blocks; some blocks may be stored uncompressed.
    19 codec: CodecField,
    /// The level of the codec.
    20 level: i32,
    /// The dictionaries that the table's pages name.
    21 dictionaries: Vec<DictionaryId>,
    /// The purpose for which the table was written, as statistics name it.
    22 written_for: String,
    /// The keyspace of its keys.
    23 keyspace: KeyspaceId,
    /// Number of range deletes: one for each seqno of each fragment.
    24 range_deletes: u64,
    /// The end of the last range delete, exclusive.
    25 range_end: Vec<u8>,
    /// Number of merge operands.
    26 merges: u64,
    /// Number of entries that expire.
    27 expiring: u64,
    /// The earliest expiry of an entry, Unix milliseconds.
    28 earliest_expiry: u64,
    /// The value files that it points into, ascending, and the bytes of values in each.
    29 values: Vec<(TableId, u64)>,
    /// Number of blocks that were copied unchanged from other tables.
    30 passed_blocks: u64,
    /// Number of entries that a newer version or range delete of their key supersedes, kept for older
    /// snapshots; 0 also if it is not known.
    31 superseded: u64,
    /// Key and value bytes of the superseded entries, separated values included.
    32 superseded_bytes: u64,
    /// The smallest seqno of a superseded entry. A read below it needs none of them.
    33 superseded_min: Seqno,
    /// The largest seqno that supersedes an entry. A read at or above it needs none of them.
    34 superseding_max: Seqno,
    /// If the entries have no seqnos of their own: the seqno of a write before all of them.
    35 written_after: Seqno,
    /// In a table with bins, the bits of its bins; 0 in a sorted table.
    36 bin_bits: u64,
    /// The hash key of a hashed keyspace, 16 bytes; empty in an ordered one.
    37 hash_key: HashKeyField,
    /// Number of blocks with entries that straddle pages.
    38 straddled_blocks: u64,
    /// In a window, its policy as the manifest stores it; empty in other keyspaces.
    39 window: Vec<u8>,
    /// The sum (modulo 2^64) of the hashes of all entries, [`entry_hash`](crate::entry_hash); 0 if it was not
    /// counted.
    40 entry_sum: u64,
}

impl Properties {
    /// The layout of the table.
    ///
    /// # Errors
    /// `Corrupt` if the bin bits are out of range.
    pub fn layout(&self) -> Result<Layout> {
        Layout::decode(u8::try_from(self.bin_bits).unwrap_or(u8::MAX))
    }

    /// How the keyspace of the table stores its keys.
    #[must_use]
    pub const fn key_form(&self) -> KeyForm {
        match self.hash_key.0 {
            None => KeyForm::Plain,
            Some(key) => KeyForm::Hashed(key),
        }
    }

    /// The smallest key after every entry and every range delete.
    #[must_use]
    pub fn end_key(&self) -> Vec<u8> {
        if self.entries == 0 || self.range_end > self.last_key {
            return self.range_end.clone();
        }
        // No key lies between a key and that key followed by a zero byte.
        [&*self.last_key, &[0]].concat()
    }

    /// Memory of the fields without a fixed length, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.first_key.len()
            + self.last_key.len()
            + self.range_end.len()
            + size_of_val(&*self.dictionaries)
            + size_of_val(&*self.values)
            + self.window.len()
    }
}

/// [`Codec`] with a default, for [`Properties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecField(pub Codec);

impl Default for CodecField {
    fn default() -> Self {
        Self(Codec::None)
    }
}

/// An optional [`HashKey`], for [`Properties`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashKeyField(pub Option<HashKey>);

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

impl Field for KeyspaceId {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let id = cursor.varint()?;
        let narrow = u32::try_from(id);
        narrow.map(Self).map_err(|_| Error::corrupt("keyspace id").expected("32 bits").got(id))
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

impl Field for HashKeyField {
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(key) = &self.0 {
            out.extend_from_slice(key.bytes());
        }
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let bytes = cursor.take(HashKey::BYTES)?;
        Ok(Self(HashKey::from_slice(bytes)))
    }

    /// Does not show the secret.
    fn show(&self) -> String {
        if self.0.is_some() { "set" } else { "none" }.to_owned()
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

impl Field for Vec<(TableId, u64)> {
    fn put(&self, out: &mut Vec<u8>) {
        for (file, bytes) in self {
            put_varint(out, file.0);
            put_varint(out, *bytes);
        }
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let mut values = Self::new();
        while !cursor.is_empty() {
            let value: (TableId, u64) = (TableId(cursor.varint()?), cursor.varint()?);
            if values.len() == VALUE_FILES_MAX
                || values.last().is_some_and(|last| last.0 >= value.0)
            {
                return Err(Error::corrupt("value files of a table")
                    .expected(format_args!("ascending, at most {VALUE_FILES_MAX}"))
                    .got(value.0));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn show(&self) -> String {
        let files = self.iter().map(|(file, bytes)| format!("{file}: {bytes} B"));
        files.collect::<Vec<String>>().join(", ")
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
            keyspace: KeyspaceId(u32::MAX),
            range_end: b"b".to_vec(),
            earliest_expiry: 9,
            values: vec![(TableId(3), 100), (TableId(9), u64::MAX)],
            hash_key: HashKeyField(Some(HashKey::new([7; HashKey::BYTES]))),
            ..Properties::default()
        }
    }

    #[test]
    fn fields_round_trip_and_unknown_ones_are_skipped() {
        let mut bytes = sample().encode();
        assert_eq!(Properties::decode(&bytes).unwrap(), sample());
        put_varint(&mut bytes, 999);
        put_bytes(&mut bytes, b"a later field");
        assert_eq!(Properties::decode(&bytes).unwrap(), sample());
        assert_eq!(Properties::decode(&[]).unwrap(), Properties::default());
        assert!(sample().end_key() == [&[0xff; 300][..], &[0]].concat());
        let wider = Properties { range_end: vec![0xff; 301], ..sample() };
        assert_eq!(wider.end_key(), [0xff; 301]);
        assert_eq!(Properties { entries: 0, ..sample() }.end_key(), b"b");
    }

    /// Property 39 of docs/format/table.md: a window of 640 KiB that retains by the clock.
    #[test]
    fn the_policy_of_a_window_has_exactly_these_bytes() {
        let window = vec![0x80, 0x80, 0x28, 2];
        let encoded = Properties { window: window.clone(), ..Properties::default() }.encode();
        assert!(encoded.ends_with(&[39, 4, 0x80, 0x80, 0x28, 2]), "{encoded:02x?}");
        assert_eq!(Properties::decode(&[39, 4, 0x80, 0x80, 0x28, 2]).unwrap().window, window);
    }

    /// Property 40 of docs/format/table.md: a varint, and nothing in a table without it.
    #[test]
    fn the_sum_of_entries_has_exactly_these_bytes() {
        let plain = Properties::default().encode();
        let encoded = Properties { entry_sum: 300, ..Properties::default() }.encode();
        assert_eq!(encoded, [&*plain, &[40, 2, 0xac, 2]].concat());
        assert_eq!(Properties::decode(&encoded).unwrap().entry_sum, 300);
    }

    #[test]
    fn damaged_properties_never_decode_to_the_same_value() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            let cut = Properties::decode(&bytes[..at]);
            assert!(!cut.is_ok_and(|cut| cut == sample()), "cut at {at}");
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

//! What a table says about itself: recorded in the file, and by the manifest.
//!
//! Stored as (number, length, bytes) fields in ascending order of their numbers. Numbers are
//! append-only: a reader skips the ones it does not know, and a field it knows and does not find
//! keeps its default.

use base::{
    Codec, Cursor, DictionaryId, Error, KeyspaceId, Result, Seqno, TableId, put_bytes, put_varint,
};

/// The most dictionaries one table may name.
const DICTIONARIES_MAX: usize = 1 << 12;

/// The most value files one table may point into.
pub(super) const VALUE_FILES_MAX: usize = 1 << 16;

/// The last of the fields that are stored always. Those after it are stored where they are not zero
/// or empty, so that a table without them is, to the byte, one of the first version.
const ALWAYS_STORED: u64 = 22;

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
                    if $number <= ALWAYS_STORED || self.$name != <$type>::default() {
                        field.clear();
                        Field::put(&self.$name, &mut field);
                        put_varint(&mut out, $number);
                        put_bytes(&mut out, &field);
                    }
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
    /// The smallest key that an entry has or a range delete starts at.
    1 first_key: Vec<u8>,
    /// The largest key of an entry; empty in a table of range deletes only.
    /// [`Properties::end_key`] is behind everything.
    2 last_key: Vec<u8>,
    /// The smallest sequence number, of entries and range deletes.
    3 seqno_min: Seqno,
    /// The largest sequence number, of entries and range deletes.
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
    /// When the last entry expires, Unix milliseconds. 0: some entry, or a range delete, never does.
    18 latest_expiry: u64,
    /// How blocks are compressed, those stored as they are apart.
    19 codec: CodecField,
    /// The codec's level.
    20 level: i32,
    /// The dictionaries its pages name.
    21 dictionaries: Vec<DictionaryId>,
    /// What the table was written for, as statistics name it.
    22 written_for: String,
    /// The keyspace it was written for.
    23 keyspace: KeyspaceId,
    /// Range deletes: one for each sequence number of each fragment.
    24 range_deletes: u64,
    /// The end of the last range delete, exclusive.
    25 range_end: Vec<u8>,
    /// Entries that are operands of a merge operator.
    26 merges: u64,
    /// Entries that expire.
    27 expiring: u64,
    /// When the first of them does, Unix milliseconds.
    28 earliest_expiry: u64,
    /// The value files it points into, ascending, and the bytes of values in each.
    29 values: Vec<(TableId, u64)>,
    /// Blocks that were taken over from other tables as they were stored.
    30 passed_blocks: u64,
    /// Entries that something newer over their key supersedes, kept for who read before that; 0 where it
    /// is not known too.
    31 superseded: u64,
    /// Key and value bytes of these, long values that lie apart included.
    32 superseded_bytes: u64,
    /// The smallest sequence number of them. Who reads below it needs none.
    33 superseded_min: Seqno,
    /// The largest sequence number that supersedes one. Who reads at it or above needs none.
    34 superseding_max: Seqno,
    /// Where the entries carry no numbers: that of a write before all of them.
    35 written_after: Seqno,
}

impl Properties {
    /// The first key that is after every entry and no range delete covers.
    #[must_use]
    pub fn end_key(&self) -> Vec<u8> {
        if self.entries == 0 || self.range_end > self.last_key {
            return self.range_end.clone();
        }
        // No key lies between a key and that key with a zero behind it.
        [&*self.last_key, &[0]].concat()
    }

    /// The memory of what has no fixed length, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.first_key.len()
            + self.last_key.len()
            + self.range_end.len()
            + size_of_val(&*self.dictionaries)
            + size_of_val(&*self.values)
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
        assert!(sample().end_key() == [&[0xff; 300][..], &[0]].concat());
        let wider = Properties { range_end: vec![0xff; 301], ..sample() };
        assert_eq!(wider.end_key(), [0xff; 301]);
        assert_eq!(Properties { entries: 0, ..sample() }.end_key(), b"b");
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

//! How the tables of one keyspace are written, and the stored form: docs/format/manifest.md.

use std::fmt;

use base::{Codec, Cursor, Error, Result};

/// How new tables of a keyspace are written, as far as that differs from the settings of the store. Tables
/// that exist keep their form until a merge rewrites them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// How pages are compressed.
    pub codec: Option<Codec>,
    /// The level of `codec`; there is none without one.
    pub level: Option<i8>,
    /// Filter bits per key.
    pub filter_bits: Option<u8>,
}

const CODEC: u8 = 1;
const LEVEL: u8 = 2;
const FILTER_BITS: u8 = 4;

impl TableOptions {
    /// These options, and of `others` those that these do not have.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let (codec, level) = match self.codec {
            Some(codec) => (Some(codec), self.level),
            None => (others.codec, others.level),
        };
        Self { codec, level, filter_bits: self.filter_bits.or(others.filter_bits) }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let Self { codec, level, filter_bits } = self;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        out.push(
            flag(codec.is_some(), CODEC)
                | flag(level.is_some(), LEVEL)
                | flag(filter_bits.is_some(), FILTER_BITS),
        );
        out.extend(codec.map(|codec| codec as u8));
        out.extend(level.map(|level| level.to_le_bytes()).into_iter().flatten());
        out.extend(filter_bits);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        let flags = cursor.u8()?;
        if flags & !(CODEC | LEVEL | FILTER_BITS) != 0 || flags & (CODEC | LEVEL) == LEVEL {
            return Err(Error::corrupt("flags of table options").got(flags));
        }
        let has = |flag| flags & flag != 0;
        Ok(Self {
            codec: has(CODEC).then(|| cursor.u8().and_then(Codec::decode)).transpose()?,
            level: has(LEVEL)
                .then(|| cursor.u8().map(|byte| i8::from_le_bytes([byte])))
                .transpose()?,
            filter_bits: has(FILTER_BITS).then(|| cursor.u8()).transpose()?,
        })
    }
}

impl fmt::Display for TableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codec, level, filter_bits } = self;
        match codec {
            Some(codec) => write!(f, "codec {codec:?}")?,
            None => f.write_str("codec of the store")?,
        }
        if let Some(level) = level {
            write!(f, " at level {level}")?;
        }
        filter_bits.map_or(Ok(()), |bits| write!(f, ", {bits} filter bits a key"))
    }
}

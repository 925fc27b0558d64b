//! Pages: the 4 KiB unit in which a table is written, checked, read and cached.
//!
//! Every page starts with a [`Header`]. Its checksum covers the rest of the page and is seeded with the
//! page's identity (I8). Content longer than one page is a *run*: consecutive pages with the same header
//! except for their number in the run, so that each page can be verified and cached alone.
//! docs/format/table.md has the byte table.
//!
//! The functions are pure: they take bytes, and return a view or an error. Parsing a header takes a few
//! nanoseconds, a checksum about 0.16 us.

use base::limits::{PAGE_BYTES, RUN_PAGES_MAX};
use base::{Codec, Cursor, DictionaryId, Error, PageSeed, Result, hash64, invariant};

/// Length of a page's header, bytes.
pub const HEADER_BYTES: usize = 24;

/// Most bytes of content in a page.
pub const PAYLOAD_BYTES: usize = PAGE_BYTES - HEADER_BYTES;

/// Length of the checksum, bytes. It comes first, and covers all bytes after it.
const CHECKSUM_BYTES: usize = 8;

// The number in the run is stored in 16 bits.
const _: () = assert!(RUN_PAGES_MAX <= 1 << 16);

/// The content of a page. The numbers are stored and append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageKind {
    /// A block of entries.
    Data = 1,
    /// The separators and the filter of a partition.
    Meta = 2,
    /// Part of the top level: a separator and a page number per partition.
    Top = 3,
    /// Part of the properties.
    Properties = 4,
    /// The last page of the file.
    Footer = 5,
    /// Part of the range deletes.
    RangeDeletes = 6,
    /// A long value, or part of it.
    Values = 7,
    /// Part of a block with entries that straddle its pages.
    Straddled = 8,
}

impl PageKind {
    fn decode(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Data),
            2 => Ok(Self::Meta),
            3 => Ok(Self::Top),
            4 => Ok(Self::Properties),
            5 => Ok(Self::Footer),
            6 => Ok(Self::RangeDeletes),
            7 => Ok(Self::Values),
            8 => Ok(Self::Straddled),
            other => Err(Error::corrupt("page kind").expected("1..=8").got(other)),
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Meta => "meta",
            Self::Top => "top",
            Self::Properties => "properties",
            Self::Footer => "footer",
            Self::RangeDeletes => "range deletes",
            Self::Values => "values",
            Self::Straddled => "straddled",
        }
    }
}

/// A straddled page on which no entry begins.
pub const NO_ENTRY: u16 = u16::MAX;

/// The header fields that only a page of a straddled block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straddle {
    /// Offset in the page's payload of the first entry that begins there, or [`NO_ENTRY`].
    pub first: u16,
    /// The last 16 bits of the bin of the entry with the page's first byte.
    pub bin: u16,
    /// Length of the block's entries, bytes.
    pub entries_bytes: u16,
    /// The last 16 bits of the hash of the entry with the page's first byte.
    pub hash: u16,
}

impl Straddle {
    /// The fields as stored in place of dictionary and decompressed length.
    fn words(self) -> [u32; 2] {
        let word = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        [word(self.first, self.bin), word(self.entries_bytes, self.hash)]
    }

    const fn from_words([position, content]: [u32; 2]) -> Self {
        let (first, bin) = (position as u16, (position >> 16) as u16);
        Self { first, bin, entries_bytes: content as u16, hash: (content >> 16) as u16 }
    }
}

/// The header of a page without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The content of the page.
    pub kind: PageKind,
    /// The codec of the run's payload.
    pub codec: Codec,
    /// The page's number in its run, from 0.
    pub number: u16,
    /// The dictionary that compressed the payload; 0 for none.
    pub dictionary: DictionaryId,
    /// Length of the whole run's payload, bytes.
    pub payload_bytes: u32,
    /// Length of the decompressed payload, bytes.
    pub raw_bytes: u32,
    /// The fields of a page of a straddled block, which is not compressed.
    pub straddle: Option<Straddle>,
}

impl Header {
    /// Parses the header of `page`. The caller verified the page's checksum.
    ///
    /// # Errors
    /// `Corrupt` if the page is not 4 KiB, a field is out of range, or the payload does not fit a run or
    /// does not reach this page.
    pub fn parse(page: &[u8]) -> Result<Self> {
        if page.len() != PAGE_BYTES {
            return Err(Error::corrupt("page length").expected(PAGE_BYTES).got(page.len()));
        }
        let mut cursor = Cursor::new("page header", page);
        cursor.u64()?;
        let mut header = Self {
            kind: PageKind::decode(cursor.u8()?)?,
            codec: Codec::decode(cursor.u8()?)?,
            number: cursor.u16()?,
            dictionary: DictionaryId(cursor.u32()?),
            payload_bytes: cursor.u32()?,
            raw_bytes: cursor.u32()?,
            straddle: None,
        };
        if header.kind == PageKind::Straddled {
            header.straddle = Some(Straddle::from_words([header.dictionary.0, header.raw_bytes]));
            (header.dictionary, header.raw_bytes) = (DictionaryId(0), header.payload_bytes);
        }
        let pages = header.run_pages();
        if pages > RUN_PAGES_MAX || usize::from(header.number) >= pages {
            return Err(Error::corrupt("page's number in its run")
                .expected(format_args!("below {pages}, and that at most {RUN_PAGES_MAX}"))
                .got(header.number));
        }
        if header.codec == Codec::None && header.payload_bytes != header.raw_bytes {
            return Err(Error::corrupt("raw length of an uncompressed page")
                .expected(header.payload_bytes)
                .got(header.raw_bytes));
        }
        if let Some(straddle) = header.straddle {
            let Straddle { first, entries_bytes, .. } = straddle;
            let is_within = first == NO_ENTRY || usize::from(first) < header.payload_here();
            let is_block = u32::from(entries_bytes) <= header.payload_bytes;
            if header.codec != Codec::None || !is_within || !is_block {
                return Err(Error::corrupt("header of a straddled page")
                    .expected("no codec, and entries within the block")
                    .got(format_args!("{:?}, {straddle:?}", header.codec)));
            }
        }
        Ok(header)
    }

    /// Whether the page is part of a block of entries.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        matches!(self.kind, PageKind::Data | PageKind::Straddled)
    }

    /// The expected header of page `number` of the run that this page begins: the same but for the number,
    /// and for the fields of its own of a straddled page, which are those of `page`.
    pub(crate) const fn on_page(&self, number: u16, page: &Self) -> Self {
        let straddle = match (self.straddle, page.straddle) {
            (Some(one), Some(other)) if one.entries_bytes == other.entries_bytes => Some(other),
            (own, _) => own,
        };
        Self { number, straddle, ..*self }
    }

    /// Number of pages in the run.
    #[must_use]
    pub const fn run_pages(&self) -> usize {
        run_pages(self.payload_bytes as usize)
    }

    /// Number of payload bytes on this page.
    #[must_use]
    pub const fn payload_here(&self) -> usize {
        let before = self.number as usize * PAYLOAD_BYTES;
        let left = (self.payload_bytes as usize).saturating_sub(before);
        if left < PAYLOAD_BYTES { left } else { PAYLOAD_BYTES }
    }

    fn encode(&self, page: &mut [u8; PAGE_BYTES]) {
        let [before, after] =
            self.straddle.map_or([self.dictionary.0, self.raw_bytes], Straddle::words);
        let fields = [
            &[self.kind as u8, self.codec as u8][..],
            &self.number.to_le_bytes(),
            &before.to_le_bytes(),
            &self.payload_bytes.to_le_bytes(),
            &after.to_le_bytes(),
        ];
        let bytes = fields.into_iter().flatten();
        for (slot, byte) in page.iter_mut().skip(CHECKSUM_BYTES).zip(bytes) {
            *slot = *byte;
        }
    }
}

/// Number of pages that `payload_bytes` take; at least one.
#[must_use]
pub const fn run_pages(payload_bytes: usize) -> usize {
    if payload_bytes == 0 { 1 } else { payload_bytes.div_ceil(PAYLOAD_BYTES) }
}

/// Verifies that `bytes` are the page `page` of the table with `seed` (I8).
///
/// # Errors
/// `Corrupt` if they are not, with table and page.
pub fn verify_page(seed: PageSeed, page: u32, bytes: &[u8]) -> Result<()> {
    let location = || format!("page {page}, table {}", seed.table());
    let (PAGE_BYTES, Some((stored, covered))) =
        (bytes.len(), bytes.split_first_chunk::<CHECKSUM_BYTES>())
    else {
        let error = Error::corrupt("page length").at(location());
        return Err(error.expected(PAGE_BYTES).got(bytes.len()));
    };
    let (stored, computed) = (u64::from_le_bytes(*stored), seed.checksum(page, covered));
    if stored != computed {
        return Err(Error::corrupt("page checksum")
            .at(location())
            .expected(format_args!("{computed:016x}"))
            .got(format_args!("{stored:016x}")));
    }
    Ok(())
}

/// Extends the digest of the earlier pages by `page`. The digest is a hash over the checksums of all
/// pages except the footer, which stores it. The digest of no pages is 0.
#[must_use]
pub fn fold_digest(digest: u64, page: &[u8]) -> u64 {
    match page.split_first_chunk::<CHECKSUM_BYTES>() {
        Some((checksum, [kind, ..])) if *kind != PageKind::Footer as u8 => hash64(digest, checksum),
        _ => digest,
    }
}

/// Writes a page: `header`, `content`, zeros, and the checksum.
pub(crate) fn seal_page(
    page: &mut [u8; PAGE_BYTES],
    seed: PageSeed,
    number: u32,
    header: &Header,
    content: &[u8],
) {
    invariant!(content.len() == header.payload_here(), "a page holds its part of a payload");
    let seed = seed.page(number);
    header.encode(page);
    let (_, body) = page.split_at_mut(HEADER_BYTES);
    let (filled, rest) = body.split_at_mut(content.len().min(PAYLOAD_BYTES));
    filled.copy_from_slice(content);
    rest.fill(0);
    let (slot, covered) = page.split_at_mut(CHECKSUM_BYTES);
    let checksum = seed.checksum(covered);
    slot.copy_from_slice(&checksum.to_le_bytes());
}

/// The content of one page with the header `header`.
///
/// # Errors
/// `Corrupt` if the page is too short.
pub fn payload<'a>(page: &'a [u8], header: &Header) -> Result<&'a [u8]> {
    let end = HEADER_BYTES + header.payload_here();
    page.get(HEADER_BYTES..end)
        .ok_or_else(|| Error::corrupt("page length").expected(end).got(page.len()))
}

#[cfg(test)]
mod tests;

//! Reading and decoding of pages, shared by all readers.

use std::ops::Range;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Codec, DictionaryId, Error, PageSeed, Result, invariant};
use bytes::Bytes;
use media::{Buf, File, Purpose};

use super::block::RAW_BYTES_MAX;
use super::step::Pages;
use crate::codec::{BlockEngine, decompress};
use crate::dictionary::Dictionaries;
use crate::page::{HEADER_BYTES, Header, PageKind, payload, verify_page};

/// A longer block is charged while a reader holds a part of it. Shorter ones are bounded by the number
/// of reads in flight, and covered by the fixed overhead.
pub const CHARGED_BYTES_MIN: usize = 64 << 10;

/// The bytes of a block, and their charge.
struct ChargedBytes {
    bytes: Vec<u8>,
    _charge: Option<Charge>,
}

/// The buffer of a run, and its charge.
struct ChargedRun {
    buf: Buf,
    _charge: Option<Charge>,
}

impl AsRef<[u8]> for ChargedRun {
    fn as_ref(&self) -> &[u8] {
        &self.buf
    }
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Decompresses the run of `kind` on `pages`, which were verified. The run must have `count` pages.
///
/// An uncompressed block on a single frame is not copied: the result keeps the frame. One in a longer
/// read is copied, so that the read's memory is free once its pages are decoded. One in place is copied,
/// because it may be lost.
pub(crate) fn decode_pages(
    kind: PageKind,
    pages: Pages,
    count: u32,
    dictionaries: &dyn Dictionaries,
    account: &Account,
) -> Result<Bytes> {
    let pages = match pages {
        Pages::Block(block) => return Ok(block),
        Pages::Attached(block) => return Ok(block.shared()),
        Pages::Frame(frame) if count == 1 => match stored_payload(kind, &frame)? {
            Some(payload) => return Ok(Bytes::from_owner(frame).slice(payload)),
            None => Pages::Frame(frame),
        },
        pages => pages,
    };
    if let Pages::Run(buf) = pages {
        let first = buf.get(..PAGE_BYTES).unwrap_or_default();
        return match check_run(kind, first, count)?.codec {
            Codec::None => join_in_place(kind, buf, count, account),
            _ => decode_kind(kind, buf.chunks_exact(PAGE_BYTES), count, dictionaries, account),
        };
    }
    decode_kind(kind, pages.iter(), count, dictionaries, account)
}

/// The range of the content on the only page of a block; `None` if it is compressed.
pub(super) fn stored_payload(kind: PageKind, page: &[u8]) -> Result<Option<Range<usize>>> {
    let header = check_run(kind, page, 1)?;
    let payload = HEADER_BYTES..HEADER_BYTES + header.payload_here();
    Ok((header.codec == Codec::None).then_some(payload))
}

/// The uncompressed run of `kind` on the pages of `buf`. Moves the payloads together over the headers
/// between them, so that a long value needs no second copy.
fn join_in_place(kind: PageKind, mut buf: Buf, count: u32, account: &Account) -> Result<Bytes> {
    let charge = match buf.len() > CHARGED_BYTES_MIN {
        true => Some(account.charge(buf.len() as u64)?),
        false => None,
    };
    let header = check_run(kind, buf.get(..PAGE_BYTES).unwrap_or_default(), count)?;
    let mut joined = 0;
    for number in 0..count as usize {
        let at = number * PAGE_BYTES;
        let page = buf.get(at..at + PAGE_BYTES).unwrap_or_default();
        let here = if number == 0 { header } else { continuation(page, &header, number)? };
        let length = payload(page, &here)?.len();
        buf.copy_within(at + HEADER_BYTES..at + HEADER_BYTES + length, joined);
        joined += length;
    }
    if joined != header.payload_bytes as usize {
        return Err(Error::corrupt("payload of a run, bytes")
            .expected(header.payload_bytes)
            .got(joined));
    }
    Ok(Bytes::from_owner(ChargedRun { buf, _charge: charge }).slice(..joined))
}

/// The block on `pages`, which were verified, decompressed by `engine`; `None` if the engine does not.
///
/// # Errors
/// `Corrupt` if the pages are no block of `count` pages.
pub fn decode_with(engine: &dyn BlockEngine, pages: &Pages, count: u32) -> Result<Option<Bytes>> {
    let mut all = pages.iter().take(count as usize);
    let first = all.next().ok_or_else(|| Error::corrupt("pages of a block").got(0))?;
    let header = check_run(PageKind::Data, first, count)?;
    let raw_bytes = header.raw_bytes as usize;
    if header.codec == Codec::None
        || header.dictionary != DictionaryId(0)
        || raw_bytes > CHARGED_BYTES_MIN
    {
        return Ok(None);
    }
    let mut joined = payload(first, &header)?.to_vec();
    for (number, page) in (1..).zip(all) {
        joined.extend_from_slice(payload(page, &continuation(page, &header, number)?)?);
    }
    let raw = engine.decompress(header.codec, &joined, raw_bytes);
    Ok(raw.filter(|raw| raw.len() == raw_bytes).map(Bytes::from))
}

/// Decompresses the block on `pages`, which were verified.
pub(crate) fn decode_run<'a>(
    pages: impl Iterator<Item = &'a [u8]>,
    count: u32,
    dictionaries: &dyn Dictionaries,
    account: &Account,
) -> Result<Bytes> {
    decode_kind(PageKind::Data, pages, count, dictionaries, account)
}

/// As [`decode_pages`], from any source of pages.
pub(crate) fn decode_kind<'a>(
    kind: PageKind,
    pages: impl Iterator<Item = &'a [u8]>,
    count: u32,
    dictionaries: &dyn Dictionaries,
    account: &Account,
) -> Result<Bytes> {
    let mut pages = pages.take(count as usize);
    let first = pages.next().ok_or_else(|| Error::corrupt("pages of a block").got(0))?;
    let header = check_run(kind, first, count)?;
    let (raw_bytes, joined_bytes) = (header.raw_bytes as usize, header.payload_bytes as usize);
    // A zstd page may decompress to megabytes.
    let mut charge = match raw_bytes.max(joined_bytes) > CHARGED_BYTES_MIN {
        true => Some(account.charge((raw_bytes + joined_bytes) as u64)?),
        false => None,
    };
    if count == 1 && header.codec != Codec::None {
        let bytes = unpack(&header, payload(first, &header)?, dictionaries)?;
        return Ok(Bytes::from_owner(ChargedBytes { bytes, _charge: charge }));
    }
    // Payloads are joined, then decompressed.
    let mut joined = Vec::with_capacity(joined_bytes);
    joined.extend_from_slice(payload(first, &header)?);
    for (number, page) in (1..).zip(pages) {
        joined.extend_from_slice(payload(page, &continuation(page, &header, number)?)?);
    }
    if joined.len() != joined_bytes {
        return Err(Error::corrupt("payload of a run, bytes")
            .expected(joined_bytes)
            .got(joined.len()));
    }
    let bytes = match header.codec {
        Codec::None => joined,
        _ => unpack(&header, &joined, dictionaries)?,
    };
    if let Some(charge) = &mut charge {
        charge.shrink_to(raw_bytes as u64);
    }
    Ok(Bytes::from_owner(ChargedBytes { bytes, _charge: charge }))
}

/// The header of a run's first page. Checks that the run has `count` pages and a valid length.
fn check_run(kind: PageKind, first: &[u8], count: u32) -> Result<Header> {
    let header = Header::parse(first)?;
    let is_kind = header.kind == kind || kind == PageKind::Data && header.is_block();
    if !is_kind || header.number != 0 {
        return Err(Error::corrupt("page kind")
            .expected(format_args!("the first {} page of a run", kind.name()))
            .got(format_args!("{} page {} of a run", header.kind.name(), header.number)));
    }
    if header.run_pages() != count as usize || header.raw_bytes as usize > RAW_BYTES_MAX {
        return Err(Error::corrupt("block")
            .expected(format_args!("{count} pages, at most {RAW_BYTES_MAX} bytes"))
            .got(format_args!("{} pages, {} bytes", header.run_pages(), header.raw_bytes)));
    }
    Ok(header)
}

/// The header of page `number` of the run that starts with `first`.
fn continuation(page: &[u8], first: &Header, number: usize) -> Result<Header> {
    let header = Header::parse(page)?;
    let expected = first.on_page(number as u16, &header);
    if header == expected {
        return Ok(header);
    }
    Err(Error::corrupt("page of a run")
        .expected(format_args!("{expected:?}"))
        .got(format_args!("{header:?}")))
}

fn unpack(header: &Header, payload: &[u8], dictionaries: &dyn Dictionaries) -> Result<Vec<u8>> {
    let raw_bytes = header.raw_bytes as usize;
    if header.dictionary == DictionaryId(0) {
        return decompress(header.codec, None, payload, raw_bytes);
    }
    let dictionary = dictionaries.get(header.dictionary)?;
    decompress(header.codec, Some(&dictionary), payload, raw_bytes)
}

/// Reads `pages` pages from page `first` on, and verifies each (I8). The caller charged them.
pub(crate) fn read_pages(
    file: &dyn File,
    seed: PageSeed,
    first: u32,
    pages: u32,
    purpose: Purpose,
) -> Result<Buf> {
    let buf = read_raw(file, first, pages, purpose)?;
    for (number, page) in (first..).zip(buf.chunks_exact(PAGE_BYTES)) {
        verify_page(seed, number, page)?;
    }
    Ok(buf)
}

/// As [`read_pages`], without verification.
pub(crate) fn read_raw(file: &dyn File, first: u32, pages: u32, purpose: Purpose) -> Result<Buf> {
    let (buf, result) = read_at(file, first, Buf::pages(pages as usize), purpose);
    result.map(|()| buf)
}

/// Reads pages from page `first` on into `buf`, which comes back.
pub(crate) fn read_at(
    file: &dyn File,
    first: u32,
    buf: Buf,
    purpose: Purpose,
) -> (Buf, Result<()>) {
    let (at, length) = (u64::from(first) * PAGE_BYTES as u64, buf.len());
    let (buf, result) = file.read(at, buf, purpose);
    invariant!(buf.len() == length, "a read returns the buffer it was given");
    (buf, result.map_err(|error| error.at(format_args!("page {first} of {}", file.name()))))
}

/// The content of an uncompressed section that fills `pages`, which were verified.
pub(crate) fn section(kind: PageKind, pages: &[u8]) -> Result<Vec<u8>> {
    let first = Header::parse(pages.get(..PAGE_BYTES).unwrap_or_default())?;
    if first.kind != kind || first.codec != Codec::None || first.number != 0 {
        return Err(Error::corrupt("page kind").expected(kind.name()).got(first.kind.name()));
    }
    let mut content = Vec::with_capacity((first.payload_bytes as usize).min(pages.len()));
    for (number, page) in pages.chunks_exact(PAGE_BYTES).enumerate() {
        content.extend_from_slice(payload(page, &continuation(page, &first, number)?)?);
    }
    if content.len() == first.payload_bytes as usize {
        return Ok(content);
    }
    Err(Error::corrupt("section, bytes").expected(first.payload_bytes).got(content.len()))
}

//! The stored map: which page each slot holds, as written to the tier itself, to be found after a restart.
//!
//! The first page identifies the tier; then come the map pages, then the slots (docs/format/scm-tier.md). A
//! map page holds the hashes and tags of the slots of some sets as of its last write, which may be any number
//! of slot writes ago. Map pages are written lazily, in no order with the slots, and never synced. That is
//! safe because a page found by the map is verified before its first use, and dropped if it is another page
//! (I8); a crash costs a few hits.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, Result, hash64, invariant, put_u16, put_u32, put_u64};

use super::slot_map::{SlotEntry, WAYS};

/// First bytes of a tier's file, in every version of the format.
pub const SCM_MAGIC: [u8; 8] = *b"TERRASCM";

/// [`SCM_MAGIC`] as it is read.
const MAGIC: u64 = u64::from_le_bytes(SCM_MAGIC);

/// The format version.
const VERSION: u32 = 2;

/// Sets per map page: their hashes and tags fill the page beside its header of 16 bytes.
const SETS_PER_PAGE: usize = (PAGE_BYTES - 16) / ((8 + 2) * WAYS);

/// Slots per map page.
pub(crate) const SLOTS_PER_PAGE: usize = SETS_PER_PAGE * WAYS;

/// The layout of a tier: first page, map pages, slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// All pages of the tier.
    pub(crate) pages: usize,
    /// Map pages; they begin at page 1.
    pub(crate) map_pages: usize,
    /// Sets of slots; the slots follow the map pages.
    pub(crate) sets: usize,
}

impl Layout {
    /// The layout of `pages` pages; `None` if they are too few for one set.
    pub(crate) fn of(pages: usize) -> Option<Self> {
        let mut sets = pages.checked_sub(2)? / WAYS;
        while sets > 0 && 1 + sets.div_ceil(SETS_PER_PAGE) + sets * WAYS > pages {
            sets -= 1;
        }
        let map_pages = sets.div_ceil(SETS_PER_PAGE);
        invariant!(
            sets == 0 || 1 + map_pages + sets * WAYS <= pages,
            "the first page, the map and the slots fit the medium"
        );
        (sets > 0).then_some(Self { pages, map_pages, sets })
    }

    /// The page that is slot `slot`.
    pub(crate) const fn page_of(self, slot: usize) -> usize {
        1 + self.map_pages + slot
    }

    /// The map page of `slot`, counted from 0.
    pub(crate) const fn map_page_of(slot: usize) -> usize {
        slot / SLOTS_PER_PAGE
    }
}

/// Encodes the first page of a tier of `pages` pages with the random number `tier`.
pub(crate) fn encode_head(tier: u64, pages: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES);
    put_u64(&mut out, MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, WAYS as u32);
    put_u64(&mut out, tier);
    put_u64(&mut out, pages);
    invariant!(out.len() <= PAGE_BYTES - 8, "the first page has room for its checksum");
    out.resize(PAGE_BYTES - 8, 0);
    let checksum = hash64(MAGIC, &out);
    put_u64(&mut out, checksum);
    out
}

/// Decodes the first page of a tier of `pages` pages; returns the tier's number.
///
/// # Errors
/// `Corrupt` if the page is no first page, or that of a tier of another size or format: the tier's content
/// then is not used.
pub(crate) fn decode_head(page: &[u8], pages: u64) -> Result<u64> {
    let mut cursor = Cursor::new("first page of an SCM tier", page);
    let (magic, version, ways) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
    let (tier, len) = (cursor.u64()?, cursor.u64()?);
    let (covered, stored) = page.split_at(page.len().saturating_sub(8));
    let stored = Cursor::new("checksum of the first page of an SCM tier", stored).u64()?;
    let found = (magic, version, ways, len, stored);
    let wanted = (MAGIC, VERSION, WAYS as u32, pages, hash64(MAGIC, covered));
    if found != wanted {
        return Err(Error::corrupt("first page of an SCM tier")
            .expected(format_args!("{wanted:x?}"))
            .got(format_args!("{found:x?}")));
    }
    Ok(tier)
}

/// Encodes map page `number` with the entries of its slots.
pub(crate) fn encode_map(tier: u64, number: usize, slots: &[SlotEntry; SLOTS_PER_PAGE]) -> Vec<u8> {
    let mut body = Vec::with_capacity(PAGE_BYTES);
    debug_assert!(slots.iter().all(|slot| slot.hash != u64::MAX), "a claimed slot is not stored");
    put_u64(&mut body, number as u64);
    slots.iter().for_each(|slot| put_u64(&mut body, slot.hash));
    slots.iter().for_each(|slot| put_u16(&mut body, slot.tag));
    body.resize(PAGE_BYTES - 8, 0);
    let mut out = Vec::with_capacity(PAGE_BYTES);
    put_u64(&mut out, hash64(tier, &body));
    out.extend_from_slice(&body);
    invariant!(out.len() == PAGE_BYTES, "a map page holds its entries in one page");
    out
}

/// Decodes map page `number`; returns the entries of its slots.
///
/// # Errors
/// `Corrupt` if it is not this map page of this tier.
pub(crate) fn decode_map(tier: u64, number: usize, page: &[u8]) -> Result<Vec<SlotEntry>> {
    let mut cursor = Cursor::new("map page of an SCM tier", page);
    let stored = cursor.u64()?;
    let computed = hash64(tier, page.get(8..).unwrap_or_default());
    let found = cursor.u64()?;
    if (stored, found) != (computed, number as u64) {
        return Err(Error::corrupt("map page of an SCM tier")
            .expected(format_args!("{computed:016x} of page {number}"))
            .got(format_args!("{stored:016x} of page {found}")));
    }
    let hashes = (0..SLOTS_PER_PAGE).map(|_| cursor.u64()).collect::<Result<Vec<_>>>()?;
    hashes.into_iter().map(|hash| Ok(SlotEntry { hash, tag: cursor.u16()? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_uses_all_but_less_than_two_sets() {
        assert_eq!(Layout::of(17), None);
        assert_eq!(Layout::of(18), Some(Layout { pages: 18, map_pages: 1, sets: 1 }));
        for pages in [100, 1000, 786_432, 1 << 24] {
            let layout = Layout::of(pages).unwrap();
            let last = layout.page_of(layout.sets * WAYS - 1);
            assert!(last < pages && last + 2 * WAYS > pages, "{layout:?}");
            let in_map = layout.map_pages * SLOTS_PER_PAGE;
            assert!(in_map >= layout.sets * WAYS && in_map < layout.sets * WAYS + SLOTS_PER_PAGE);
        }
    }

    /// The bytes that a golden file spells.
    fn golden(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(" * ") {
                Some((count, _)) => bytes.resize(bytes.len() + count.parse::<usize>().unwrap(), 0),
                None => bytes.extend(
                    line.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()),
                ),
            }
        }
        bytes
    }

    #[test]
    fn golden_bytes() {
        let mut slots = [SlotEntry::default(); SLOTS_PER_PAGE];
        let first = [(1, 0x0111), (2, 0x0222), (0xffee, 0x0344)];
        slots.iter_mut().zip(first).for_each(|(slot, (hash, tag))| *slot = SlotEntry { hash, tag });
        let pages = [encode_head(7, 4096), encode_map(7, 3, &slots)].concat();
        assert_eq!(pages, golden(include_str!("../../golden/scm-tier.hex")));
    }

    #[test]
    fn stored_pages_decode_and_damaged_ones_do_not() {
        let head = encode_head(7, 4096);
        assert_eq!(decode_head(&head, 4096).unwrap(), 7);
        assert!(decode_head(&head, 4097).is_err());
        let slot = |number: usize| SlotEntry { hash: number as u64 + 1, tag: 7 * number as u16 };
        let slots = std::array::from_fn(slot);
        let map = encode_map(7, 3, &slots);
        assert_eq!(decode_map(7, 3, &map).unwrap(), slots);
        assert!(decode_map(8, 3, &map).is_err() && decode_map(7, 4, &map).is_err());
        for at in (0..PAGE_BYTES).step_by(61) {
            let (mut head, mut map) = (head.clone(), map.clone());
            head[at] ^= 4;
            map[at] ^= 4;
            assert!(decode_head(&head, 4096).is_err(), "{at}");
            assert!(decode_map(7, 3, &map).is_err(), "{at}");
        }
        for len in 0..64 {
            assert!(decode_head(&head[..len], 4096).is_err());
            assert!(decode_map(7, 3, &map[..len]).is_err());
        }
    }
}

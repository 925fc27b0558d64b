//! One version of a key as it lies in a map's region: header, key, value. Never changes once made.
//!
//! ```text
//!  0        8           12           16       16 + key_bytes
//! +---------+-----------+------------+--------+------------+
//! | trailer | key_bytes | value_bytes|  key   |   value    |
//! +---------+-----------+------------+--------+------------+
//! ```

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::slice;

use base::Trailer;

use crate::region::{Region, RegionOffset, UNIT_BYTES};

/// A version's place in the order of a map: key ascending, then newest first.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
}

impl Ord for Position<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(other.key).then_with(|| other.trailer.cmp(&self.trailer))
    }
}

impl PartialOrd for Position<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Position<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Position<'_> {}

#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    trailer: u64,
    key_bytes: u32,
    value_bytes: u32,
}

/// The place of an entry: it was written whole before the place was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryRef(RegionOffset);

impl EntryRef {
    /// The most bytes an entry takes beyond its key and value.
    pub(crate) const OVERHEAD_BYTES: usize = size_of::<Header>() + UNIT_BYTES - 1;

    /// Writes an entry into fresh memory of `region`.
    pub(crate) fn write(region: &Region, position: Position<'_>, value: &[u8]) -> Self {
        let key = position.key;
        let place = region.alloc(size_of::<Header>() + key.len() + value.len());
        let header = Header {
            trailer: position.trailer.word(),
            // Both are bounded by `base::limits` far below 4 GiB, and so is the allocation.
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
        };
        let start = region.address(place);
        // SAFETY: the allocation starts with the header and is aligned to 8 bytes.
        unsafe { start.cast::<Header>().write(header) };
        let key_at = offset(start, size_of::<Header>());
        // SAFETY: the allocation holds the key after the header, and nobody else knows it.
        unsafe { key_at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        let value_at = offset(key_at, key.len());
        // SAFETY: as above, the value after the key.
        unsafe { value_at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        Self(place)
    }

    /// The number that is stored; 0 stands for none.
    pub(crate) const fn number(this: Option<Self>) -> u32 {
        match this {
            Some(Self(place)) => RegionOffset::number(Some(place)),
            None => 0,
        }
    }

    /// The entry of a stored number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        RegionOffset::of(number).map(Self)
    }

    /// The key and trailer.
    #[inline]
    pub(crate) fn position(self, region: &Region) -> Position<'_> {
        let (start, header) = self.header(region);
        let key = offset(start, size_of::<Header>());
        // SAFETY: `write` put `key_bytes` of key here, before anybody had this place.
        let key = unsafe { slice::from_raw_parts(key.as_ptr(), header.key_bytes as usize) };
        Position { key, trailer: Trailer::from_word(header.trailer) }
    }

    /// The value.
    #[inline]
    pub(crate) fn value(self, region: &Region) -> &[u8] {
        let (start, header) = self.header(region);
        let value = offset(start, size_of::<Header>() + header.key_bytes as usize);
        // SAFETY: as in `position`, for the value.
        unsafe { slice::from_raw_parts(value.as_ptr(), header.value_bytes as usize) }
    }

    /// Asks the processor for the entry's first cache line.
    #[inline]
    pub(crate) fn prefetch(self, region: &Region) {
        crate::prefetch::line(region.address(self.0));
    }

    /// Asks the processor for the rest of the entry, whose first line is there, as far as that is
    /// worth asking for at once.
    #[inline]
    pub(crate) fn prefetch_rest(self, region: &Region) {
        let (start, header) = self.header(region);
        let bytes = size_of::<Header>() + (header.key_bytes + header.value_bytes) as usize;
        crate::prefetch::lines(start, bytes.min(AHEAD_BYTES_MAX));
    }

    #[inline]
    fn header(self, region: &Region) -> (NonNull<u8>, Header) {
        let start = region.address(self.0);
        // SAFETY: `write` put a header here, before anybody had this place.
        (start, unsafe { start.cast::<Header>().read() })
    }
}

/// The most that is asked for of one entry: processors follow longer ones by themselves.
const AHEAD_BYTES_MAX: usize = 512;

fn offset(start: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    // SAFETY: the callers stay within one entry's allocation.
    unsafe { start.add(bytes) }
}

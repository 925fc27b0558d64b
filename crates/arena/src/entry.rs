//! An entry: one version of a key in the region of an ordered map. Written once, then immutable.
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

use base::limits::KEY_BYTES_MAX;
use base::{Trailer, invariant};

use crate::region::{Region, RegionOffset, UNIT_BYTES};

/// The position of an entry in the order of a map: by key, and for one key the newest version first.
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

/// A reference to an entry, as an offset in its region. The entry is complete before a reference exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryRef(RegionOffset);

impl EntryRef {
    /// The most bytes of an entry besides its key and value.
    pub(crate) const OVERHEAD_BYTES: usize = size_of::<Header>() + UNIT_BYTES - 1;

    /// Writes an entry into newly allocated memory of `region`.
    pub(crate) fn write(region: &Region, position: Position<'_>, value: &[u8]) -> Self {
        let key = position.key;
        invariant!(
            key.len() <= KEY_BYTES_MAX && value.len() <= u32::MAX as usize,
            "keys and values are bounded before they are stored"
        );
        let at = region.alloc(size_of::<Header>() + key.len() + value.len());
        let header = Header {
            trailer: position.trailer.word(),
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
        };
        let start = region.address(at);
        // SAFETY: the allocation is aligned to 8 bytes and has room for the header.
        unsafe { start.cast::<Header>().write(header) };
        let key_at = offset(start, size_of::<Header>());
        // SAFETY: the allocation has room for the key after the header, and no other thread has its offset.
        unsafe { key_at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len()) };
        let value_at = offset(key_at, key.len());
        // SAFETY: as above, for the value after the key.
        unsafe { value_at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len()) };
        Self(at)
    }

    /// The number to store for a reference; 0 for none.
    pub(crate) const fn number(this: Option<Self>) -> u32 {
        match this {
            Some(Self(offset)) => RegionOffset::number(Some(offset)),
            None => 0,
        }
    }

    /// The reference of a stored number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        RegionOffset::of(number).map(Self)
    }

    /// The key and trailer.
    #[inline]
    pub(crate) fn position(self, region: &Region) -> Position<'_> {
        let (start, header) = self.header(region);
        let key = offset(start, size_of::<Header>());
        // SAFETY: `write` stored `key_bytes` bytes of key here before it returned this reference.
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

    /// Prefetches the entry's first cache line.
    #[inline]
    pub(crate) fn prefetch(self, region: &Region) {
        crate::prefetch::line(region.address(self.0));
    }

    /// Prefetches the entry's first 512 bytes. Reads the header, so call it after [`EntryRef::prefetch`].
    #[inline]
    pub(crate) fn prefetch_rest(self, region: &Region) {
        let (start, header) = self.header(region);
        let bytes = size_of::<Header>() + (header.key_bytes + header.value_bytes) as usize;
        crate::prefetch::lines(start, bytes.min(PREFETCH_BYTES_MAX));
    }

    #[inline]
    fn header(self, region: &Region) -> (NonNull<u8>, Header) {
        let start = region.address(self.0);
        // SAFETY: `write` stored a header here before it returned this reference.
        (start, unsafe { start.cast::<Header>().read() })
    }
}

/// The most bytes of one entry to prefetch. The processor itself prefetches the rest of a longer one.
const PREFETCH_BYTES_MAX: usize = 512;

fn offset(start: NonNull<u8>, bytes: usize) -> NonNull<u8> {
    // SAFETY: the callers stay within the allocation of one entry.
    unsafe { start.add(bytes) }
}

//! The packed forms of small collections in a dump file: ziplist, listpack, intset and zipmap; and LZF.
//!
//! Each is one string of the file. Every length is checked against the string, nothing is allocated by a
//! length alone, and the number of entries is bounded. A damaged one is an error. A file without a checksum
//! has no other protection, so the totals and the lengths backwards, which reading does not need, are
//! compared as well.

/// What is wrong with a packed string.
pub(super) type Broken = &'static str;

/// Entries of one packed string: an entry of one byte takes some fifty here. Redis packs a few hundred by its
/// default settings.
const ENTRIES_MAX: usize = 1 << 20;

/// Adds an entry.
fn add(entries: &mut Vec<Vec<u8>>, entry: Vec<u8>) -> Result<(), Broken> {
    if entries.len() == ENTRIES_MAX {
        return Err("a packed string has more than a million entries");
    }
    entries.push(entry);
    Ok(())
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        self.take(1)?.first().copied().ok_or("it is cut off")
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Broken> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A little-endian number with a sign.
    fn signed(&mut self, bytes: usize) -> Result<i64, Broken> {
        let unused = 64 - 8 * bytes as u32;
        Ok((self.number(bytes)? << unused).cast_signed() >> unused)
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Broken> {
        usize::try_from(self.number(bytes)?).map_err(|_| "a length is too large")
    }
}

/// The entries, if nothing follows and there are `count` of them. A list that is too long to count has
/// `None`.
fn whole(
    entries: Vec<Vec<u8>>,
    rest: &Bytes<'_>,
    count: Option<usize>,
) -> Result<Vec<Vec<u8>>, Broken> {
    if !rest.0.is_empty() {
        return Err("bytes follow the end of a packed string");
    }
    if count.is_some_and(|count| count != entries.len()) {
        return Err("a packed string has a wrong number of entries");
    }
    Ok(entries)
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The entries of a ziplist.
pub(super) fn ziplist(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    let (total, tail, count) = (bytes.length(4)?, bytes.length(4)?, bytes.length(2)?);
    if total != packed.len() {
        return Err("a ziplist has a wrong length");
    }
    let mut entries = Vec::new();
    // The places of the last entry and of this one.
    let (mut last, mut start) = (10, 10);
    loop {
        let before = match bytes.byte()? {
            0xff if tail != last => return Err("a ziplist has its last entry elsewhere"),
            0xff => return whole(entries, &bytes, Some(count).filter(|count| *count < 0xffff)),
            254 => bytes.length(4)?,
            before => usize::from(before),
        };
        if before != start - last {
            return Err("an entry of a ziplist has a wrong length");
        }
        let head = bytes.byte()?;
        let entry = match head >> 6 {
            0 => bytes.take(usize::from(head & 0x3f))?.to_vec(),
            1 => {
                let length = usize::from(head & 0x3f) << 8 | usize::from(bytes.byte()?);
                bytes.take(length)?.to_vec()
            }
            2 => {
                let length =
                    bytes.take(4)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                bytes.take(length)?.to_vec()
            }
            _ => text(match head {
                0xc0 => bytes.signed(2)?,
                0xd0 => bytes.signed(4)?,
                0xe0 => bytes.signed(8)?,
                0xf0 => bytes.signed(3)?,
                0xfe => bytes.signed(1)?,
                0xf1..=0xfd => i64::from(head & 0x0f) - 1,
                _ => return Err("a ziplist has an unknown entry"),
            }),
        };
        add(&mut entries, entry)?;
        (last, start) = (start, packed.len() - bytes.0.len());
    }
}

/// The entries of a listpack.
pub(super) fn listpack(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    let (total, count) = (bytes.length(4)?, bytes.length(2)?);
    if total != packed.len() {
        return Err("a listpack has a wrong length");
    }
    let mut entries = Vec::new();
    loop {
        let before = bytes.0.len();
        let head = bytes.byte()?;
        let entry = match head {
            0xff => return whole(entries, &bytes, Some(count).filter(|count| *count < 0xffff)),
            0..=0x7f => text(i64::from(head)),
            0x80..=0xbf => bytes.take(usize::from(head & 0x3f))?.to_vec(),
            0xc0..=0xdf => {
                let number = i64::from(head & 0x1f) << 8 | i64::from(bytes.byte()?);
                text(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            0xe0..=0xef => {
                let length = usize::from(head & 0x0f) << 8 | usize::from(bytes.byte()?);
                bytes.take(length)?.to_vec()
            }
            0xf0 => {
                let length = bytes.length(4)?;
                bytes.take(length)?.to_vec()
            }
            0xf1 => text(bytes.signed(2)?),
            0xf2 => text(bytes.signed(3)?),
            0xf3 => text(bytes.signed(4)?),
            0xf4 => text(bytes.signed(8)?),
            _ => return Err("a listpack has an unknown entry"),
        };
        add(&mut entries, entry)?;
        // The length of the entry stands behind it, 7 bits a byte; Redis takes a byte more than it needs for
        // the greatest length of each.
        let length = before - bytes.0.len();
        let back = match length {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        };
        let back =
            bytes.take(back)?.iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        if back != length {
            return Err("an entry of a listpack has a wrong length");
        }
    }
}

/// The members of an intset.
pub(super) fn intset(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    let (width, count) = (bytes.length(4)?, bytes.length(4)?);
    if !matches!(width, 2 | 4 | 8) || Some(bytes.0.len()) != width.checked_mul(count) {
        return Err("an intset has a wrong length");
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        add(&mut entries, text(bytes.signed(width)?))?;
    }
    Ok(entries)
}

/// The fields and values of a zipmap, one behind the other.
pub(super) fn zipmap(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    let count = usize::from(bytes.byte()?);
    let mut entries = Vec::new();
    loop {
        let length = |bytes: &mut Bytes<'_>| {
            Ok::<_, Broken>(match bytes.byte()? {
                0xff => None,
                254 => Some(bytes.length(4)?),
                length => Some(usize::from(length)),
            })
        };
        let Some(field) = length(&mut bytes)? else {
            return whole(entries, &bytes, Some(2 * count).filter(|_| count < 254));
        };
        add(&mut entries, bytes.take(field)?.to_vec())?;
        let value = length(&mut bytes)?.ok_or("a zipmap has a field without a value")?;
        let free = usize::from(bytes.byte()?);
        add(&mut entries, bytes.take(value)?.to_vec())?;
        bytes.take(free)?;
    }
}

/// The `length` bytes that `packed` has compressed by LZF.
pub(super) fn unpack_lzf(packed: &[u8], length: usize) -> Result<Vec<u8>, Broken> {
    // A reference of three bytes gives at most 264.
    if length / 264 > packed.len() {
        return Err("a compressed string is longer than its bytes can give");
    }
    let (mut bytes, mut out) = (Bytes(packed), Vec::with_capacity(length));
    while !bytes.0.is_empty() {
        let head = usize::from(bytes.byte()?);
        if head < 32 {
            out.extend_from_slice(bytes.take(head + 1)?);
        } else {
            let mut count = head >> 5;
            if count == 7 {
                count += usize::from(bytes.byte()?);
            }
            let back = ((head & 0x1f) << 8 | usize::from(bytes.byte()?)) + 1;
            let start =
                out.len().checked_sub(back).ok_or("a compressed string refers before its start")?;
            // The copy may overlap its own end.
            for at in start..start + count + 2 {
                let byte = out.get(at).copied().ok_or("a compressed string is damaged")?;
                out.push(byte);
            }
        }
        if out.len() > length {
            return Err("a compressed string is longer than it says");
        }
    }
    if out.len() == length { Ok(out) } else { Err("a compressed string is shorter than it says") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listpack of one string, as Redis writes it.
    fn listpack_of(string: &[u8]) -> Vec<u8> {
        let mut entry = vec![0xf0];
        entry.extend((string.len() as u32).to_le_bytes());
        entry.extend(string);
        let length = entry.len();
        // `lpEncodeBacklen` compares by `<`.
        let back = match length {
            0..=127 => 1,
            _ if length < 16_383 => 2,
            _ if length < 2_097_151 => 3,
            _ => 4,
        };
        for at in (0..back).rev() {
            let more = if at + 1 == back { 0 } else { 0x80 };
            entry.push((length >> (7 * at) & 0x7f) as u8 | more);
        }
        let total = 6 + entry.len() + 1;
        [&(total as u32).to_le_bytes()[..], &1_u16.to_le_bytes(), &entry, &[0xff]].concat()
    }

    #[test]
    fn strings_of_a_listpack_may_have_any_length() {
        for length in [122, 123, 16_376, 16_377, 16_378, 16_379, 2_097_145, 2_097_146, 2_097_147] {
            let string = vec![b'x'; length];
            assert_eq!(listpack(&listpack_of(&string)).as_deref(), Ok(&[string][..]), "{length}");
        }
    }

    #[test]
    fn the_entries_of_a_packed_string_are_bounded() {
        for (entries, is_read) in [(ENTRIES_MAX, true), (ENTRIES_MAX + 1, false)] {
            let total = (6 + 2 * entries + 1) as u32;
            let head = [&total.to_le_bytes()[..], &[0xff, 0xff]].concat();
            let list = [&head[..], &[7, 1].repeat(entries), &[0xff]].concat();
            assert_eq!(listpack(&list).is_ok(), is_read, "{entries}");
        }
    }

    /// Totals, counts and lengths backwards: those that reading needs and the others.
    #[test]
    fn each_wrong_length_of_a_packed_string_is_noticed() {
        type Parse = fn(&[u8]) -> Result<Vec<Vec<u8>>, Broken>;
        let list = listpack_of(b"abc");
        let zip = [18, 0, 0, 0, 13, 0, 0, 0, 2, 0, 0, 1, b'a', 3, 2, b'b', b'c', 0xff];
        let ints = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 2, 0];
        let map = [1, 1, b'f', 1, 0, b'v', 0xff];
        // The parser, the packed string, its entries, and the bytes of it that are no length.
        let all: [(Parse, &[u8], usize, &[usize]); 4] = [
            (listpack, &list, 1, &[11, 12, 13]),
            (ziplist, &zip, 2, &[12, 15, 16]),
            (intset, &ints, 2, &[8, 9, 10, 11]),
            (zipmap, &map, 2, &[2, 5]),
        ];
        for (parse, packed, entries, contents) in all {
            assert_eq!(parse(packed).map(|it| it.len()), Ok(entries), "{packed:?}");
            assert!(parse(&[packed, &[0]].concat()).is_err(), "{packed:?}: a byte too many");
            for at in (0..packed.len()).filter(|at| !contents.contains(at)) {
                let mut damaged = packed.to_vec();
                damaged[at] ^= 1;
                assert!(parse(&damaged).is_err(), "{packed:?}: byte {at}");
            }
        }
    }
}

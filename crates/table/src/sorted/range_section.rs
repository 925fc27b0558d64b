//! The section of a table with its range deletes: encoder and decoder.
//!
//! An open table keeps it decoded. docs/format/table.md has the byte table.

use base::limits::KEY_BYTES_MAX;
use base::{Charge, Cursor, Error, Result, Seqno, invariant, put_bytes, put_varint};
use bytes::Bytes;

use crate::range_deletes::RangeDeletes;

/// The longest section, bytes: about a million fragments. A store with more range deletes keeps them in
/// several tables.
pub(crate) const SECTION_BYTES_MAX: usize = 64 << 20;

/// The longest bound of a fragment: the successor of the longest key.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// Length of the counts of fragments and seqnos, bytes.
const COUNTS_BYTES: usize = 8;

/// Fewest bytes of a fragment: it starts at the end of the last one, and its end is one byte longer.
const FRAGMENT_BYTES_MIN: usize = 5;

/// Collects the section.
#[derive(Debug, Default)]
pub(crate) struct RangeSection {
    fragments: u32,
    seqnos: u32,
    entries: Vec<u8>,
    first: Bytes,
    end: Vec<u8>,
}

impl RangeSection {
    /// Appends a fragment, which must be after the last one.
    pub(crate) fn add(&mut self, start: &[u8], end: &[u8], seqnos: &[Seqno]) -> Result<()> {
        let bounded = start.len().max(end.len()) <= BOUND_BYTES_MAX && start < end;
        let descending = seqnos.is_sorted_by(|one, next| one > next) && !seqnos.is_empty();
        if !bounded || !descending || (self.fragments > 0 && start < self.end.as_slice()) {
            return Err(Error::invalid("range delete")
                .expected(format_args!(
                    "from `{}` on, before its end, with descending sequence numbers",
                    self.end.escape_ascii()
                ))
                .got(format_args!(
                    "`{}` to `{}`, {seqnos:?}",
                    start.escape_ascii(),
                    end.escape_ascii()
                )));
        }
        let bytes = self.entries.len() + start.len() + end.len() + 10 * (seqnos.len() + 3);
        if bytes > SECTION_BYTES_MAX {
            return Err(Error::invalid("range deletes of a table, bytes")
                .expected(format_args!("at most {SECTION_BYTES_MAX}"))
                .got(bytes));
        }
        let out = &mut self.entries;
        if self.fragments > 0 && start == self.end.as_slice() {
            put_varint(out, 0);
        } else {
            put_varint(out, start.len() as u64 + 1);
            out.extend_from_slice(start);
        }
        put_bytes(out, end);
        put_varint(out, seqnos.len() as u64);
        let mut newer = 0;
        for (index, seqno) in seqnos.iter().enumerate() {
            put_varint(out, if index == 0 { seqno.get() } else { newer - seqno.get() });
            newer = seqno.get();
        }
        if self.fragments == 0 {
            self.first = Bytes::copy_from_slice(start);
        }
        self.end.clear();
        self.end.extend_from_slice(end);
        // Both counts are smaller than the number of encoded bytes.
        invariant!(self.entries.len() <= SECTION_BYTES_MAX, "the length was bounded before");
        self.fragments += 1;
        self.seqnos += seqnos.len() as u32;
        Ok(())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.fragments == 0
    }

    /// The number of seqnos of all fragments together.
    pub(crate) const fn seqnos(&self) -> u32 {
        self.seqnos
    }

    /// The first deleted key.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    /// The end of the last fragment.
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }

    /// Approximate memory in use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() + self.first.len() + self.end.capacity()
    }

    /// The counts, which precede the entries.
    pub(crate) fn counts(&self) -> [u8; COUNTS_BYTES] {
        (u64::from(self.seqnos) << 32 | u64::from(self.fragments)).to_le_bytes()
    }

    pub(crate) fn entries(&self) -> &[u8] {
        &self.entries
    }
}

/// Decodes a section. Charges the memory of its decoded form beyond the section's own bytes (I10).
pub(crate) fn decode(section: &Bytes, charge: &mut Charge) -> Result<RangeDeletes> {
    let mut cursor = Cursor::new("range deletes", section);
    let (fragments, seqnos) = (cursor.u32()? as usize, cursor.u32()? as usize);
    if fragments == 0
        || fragments > section.len() / FRAGMENT_BYTES_MIN
        || !(fragments..=section.len()).contains(&seqnos)
    {
        return Err(Error::corrupt("range deletes of a table")
            .expected(format_args!("some, within {} bytes", section.len()))
            .got(format_args!("{fragments} with {seqnos} sequence numbers")));
    }
    charge.grow((fragments * RangeDeletes::FRAGMENT_BYTES + seqnos * size_of::<Seqno>()) as u64)?;
    let mut deletes = RangeDeletes::with_capacity(fragments, seqnos);
    let mut end = Bytes::new();
    let mut numbers = Vec::new();
    for index in 0..fragments {
        let bound = |cursor: &mut Cursor<'_>, length: usize| {
            cursor.take(length).map(|bound| section.slice_ref(bound))
        };
        let start = match cursor.length(BOUND_BYTES_MAX + 1)? {
            0 if index > 0 => end.clone(),
            0 => return Err(Error::corrupt("range deletes of a table").expected("a start")),
            more => bound(&mut cursor, more - 1)?,
        };
        let length = cursor.length(BOUND_BYTES_MAX)?;
        let next_end = bound(&mut cursor, length)?;
        numbers.clear();
        let mut newer = 0u64;
        for number in 0..cursor.length(seqnos - deletes.seqnos().len())? {
            let word = cursor.varint()?;
            let seqno = if number == 0 { Some(word) } else { newer.checked_sub(word) };
            match seqno.and_then(Seqno::checked).filter(|_| number == 0 || word > 0) {
                Some(seqno) => numbers.push(seqno),
                None => return Err(Error::corrupt("sequence numbers of a range delete").got(word)),
            }
            newer = seqno.unwrap_or_default();
        }
        if numbers.is_empty() || start >= next_end || (index > 0 && start < end) {
            return Err(Error::corrupt("range deletes of a table")
                .at(format_args!("fragment {index}"))
                .expected("ascending, disjoint fragments, each with a sequence number"));
        }
        end = next_end;
        deletes.push(start, end.clone(), &numbers);
    }
    let found = deletes.seqnos().len();
    if found != seqnos {
        return Err(Error::corrupt("sequence numbers of range deletes")
            .expected(seqnos)
            .got(found));
    }
    cursor.finish()?;
    Ok(deletes.indexed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_deletes::RangeDelete;
    use base::{Account, Rng};

    fn encoded(deletes: &RangeDeletes) -> Bytes {
        let mut section = RangeSection::default();
        for fragment in deletes.iter() {
            section.add(fragment.start, fragment.end, fragment.seqnos).unwrap();
        }
        [&section.counts()[..], section.entries()].concat().into()
    }

    fn sample(rng: &mut Rng) -> RangeDeletes {
        let key = |rng: &mut Rng| Bytes::from(format!("key{:03}", rng.below(200)));
        RangeDeletes::build((0..1 + rng.below(60)).map(|_| {
            let (one, other) = (key(rng), key(rng));
            let seqno = Seqno::new(rng.below(1 << 40));
            let last = Bytes::copy_from_slice(&[one.max(other.clone()).as_ref(), b"~"].concat());
            RangeDelete { start: other, end: last, seqno }
        }))
    }

    #[test]
    fn a_section_round_trips_and_is_charged() {
        let (mut rng, seed) = Rng::from_env();
        for _ in 0..100 {
            let deletes = sample(&mut rng);
            let account = Account::unlimited("test");
            let mut charge = account.charge(0).unwrap();
            let bytes = encoded(&deletes);
            let decoded = decode(&bytes, &mut charge).unwrap();
            assert_eq!(decoded, deletes, "seed {seed}");
            let beyond = decoded.len() * RangeDeletes::FRAGMENT_BYTES + decoded.seqnos().len() * 8;
            assert_eq!(account.used(), beyond as u64);
            assert!(charge.bytes() as usize + bytes.len() + 200 >= decoded.bytes());
        }
    }

    #[test]
    fn fragments_out_of_order_are_refused() {
        let mut section = RangeSection::default();
        let seqnos = [9, 5].map(Seqno::new);
        section.add(b"b", b"d", &seqnos).unwrap();
        section.add(b"d", b"e", &seqnos[1..]).unwrap();
        let mut refused = |start: &[u8], end: &[u8], seqnos: &[Seqno]| {
            let error = section.add(start, end, seqnos).unwrap_err();
            assert_eq!(error.kind(), base::ErrorKind::Invalid);
        };
        refused(b"d", b"f", &seqnos);
        refused(b"f", b"f", &seqnos);
        refused(b"f", b"g", &[]);
        refused(b"f", b"g", &[seqnos[1], seqnos[0]]);
        refused(b"f", b"g", &[seqnos[1], seqnos[1]]);
        refused(b"f", &[b'g'; BOUND_BYTES_MAX + 1], &seqnos);
        assert_eq!((section.first(), section.end(), section.seqnos()), (&b"b"[..], &b"e"[..], 3));
    }

    #[test]
    fn a_damaged_section_never_panics() {
        let (mut rng, seed) = Rng::from_env();
        let account = Account::unlimited("test");
        for _ in 0..20 {
            let bytes = encoded(&sample(&mut rng));
            for cut in 0..bytes.len() {
                let mut charge = account.charge(0).unwrap();
                assert!(decode(&bytes.slice(..cut), &mut charge).is_err(), "seed {seed}");
                let mut damaged = bytes.to_vec();
                damaged[cut] ^= 1 << rng.below(8);
                if let Ok(deletes) = decode(&damaged.into(), &mut charge) {
                    assert!(deletes.iter().all(|it| it.start < it.end && !it.seqnos.is_empty()));
                }
            }
        }
    }
}

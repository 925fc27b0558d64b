//! The body of a small collection: its elements, one behind the other. Each has a length (2 bytes,
//! little-endian) and its bytes; behind a field of a hash stands its value in the same form, behind a
//! member of a sorted set its score (8 bytes, the bits of the float, little-endian). Elements stand in the
//! order in which they were added.

use bytes::Bytes;

use crate::reply::Fail;
use crate::value::Kind;

/// A small collection has at most this many elements, and this many bytes.
pub(crate) const COUNT_MAX: usize = 128;
pub(crate) const BYTES_MAX: usize = 4 << 10;

/// A member with its payload: a field's value, nothing, or a score.
pub(crate) type Member = (Bytes, Bytes);

/// The bytes that one element adds to the body.
pub(crate) fn size(kind: Kind, member: &[u8], payload: &[u8]) -> usize {
    match kind {
        Kind::Hash => 4 + member.len() + payload.len(),
        _ => 2 + member.len() + payload.len(),
    }
}

/// The body with `members`, each of less than 64 KiB.
pub(crate) fn encode(kind: Kind, members: &[Member]) -> Bytes {
    let sizes = members.iter().map(|(member, payload)| size(kind, member, payload));
    let mut body = Vec::with_capacity(sizes.sum());
    let mut push = |bytes: &[u8], has_length: bool| {
        if has_length {
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            base_invariant(usize::from(length) == bytes.len());
            body.extend_from_slice(&length.to_le_bytes());
        }
        body.extend_from_slice(bytes);
    };
    for (member, payload) in members {
        push(member, true);
        push(payload, kind == Kind::Hash);
    }
    body.into()
}

/// Small collections are short: [`BYTES_MAX`] is less than 64 KiB.
fn base_invariant(is_whole: bool) {
    debug_assert!(is_whole, "an element of a small collection is longer than its length can say");
}

/// The members of a body.
///
/// # Errors
/// If the body is cut off or too long: a damaged or newer value.
pub(crate) fn decode(kind: Kind, body: &Bytes) -> Result<Vec<Member>, Fail> {
    let (mut members, mut at) = (Vec::new(), 0);
    // A longer one would take much more memory than its bytes.
    if body.len() > BYTES_MAX {
        return Err(Fail::new("ERR the stored value is too long"));
    }
    let mut take = |length: Option<usize>| {
        let length = match length {
            Some(length) => length,
            None => {
                let bytes = body.get(at..).and_then(|rest| rest.first_chunk::<2>());
                at += 2;
                usize::from(u16::from_le_bytes(*bytes.ok_or_else(cut_off)?))
            }
        };
        let end = at + length;
        if end > body.len() {
            return Err(cut_off());
        }
        let taken = body.slice(at..end);
        at = end;
        Ok((taken, end == body.len()))
    };
    if body.is_empty() {
        return Ok(members);
    }
    loop {
        let (member, mut is_last) = take(None)?;
        let payload = match kind {
            Kind::Hash => take(None)?,
            Kind::SortedSet => take(Some(8))?,
            _ => (Bytes::new(), is_last),
        };
        is_last = payload.1;
        members.push((member, payload.0));
        if is_last {
            return Ok(members);
        }
    }
}

fn cut_off() -> Fail {
    Fail::new("ERR the stored value is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_these_bytes_and_are_never_misread() {
        let of = |text: &'static str| Bytes::from_static(text.as_bytes());
        let hash = vec![(of("f"), of("value")), (of(""), of(""))];
        assert_eq!(&encode(Kind::Hash, &hash)[..], b"\x01\0f\x05\0value\0\0\0\0");
        let set = vec![(of("a"), of("")), (of("bc"), of(""))];
        assert_eq!(&encode(Kind::Set, &set)[..], b"\x01\0a\x02\0bc");
        let score = Bytes::copy_from_slice(&1.5_f64.to_bits().to_le_bytes());
        let sorted = vec![(of("m"), score)];
        assert_eq!(&encode(Kind::SortedSet, &sorted)[..], b"\x01\0m\0\0\0\0\0\0\xf8\x3f");
        for (kind, members) in [(Kind::Hash, hash), (Kind::Set, set), (Kind::SortedSet, sorted)] {
            let body = encode(kind, &members);
            assert_eq!(decode(kind, &body).unwrap(), members);
            assert!(decode(kind, &vec![0; BYTES_MAX + 1].into()).is_err());
            for end in 1..body.len() {
                if let Ok(fewer) = decode(kind, &body.slice(..end)) {
                    assert!(fewer.len() < members.len(), "cut within an element");
                }
            }
        }
    }
}

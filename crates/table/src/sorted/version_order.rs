//! The order of versions (key ascending, trailer descending), checked one version after another.

use std::cmp::Reverse;

use base::{Error, Result, Trailer};

/// The last version of an ordered sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionOrder {
    last: Option<(Vec<u8>, Trailer)>,
}

impl VersionOrder {
    /// Passes the version (`key`, `trailer`). Returns whether its key differs from the last one.
    ///
    /// # Errors
    /// `Corrupt` if it does not come after the last version, which then stays the last one.
    pub(super) fn pass(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        let Some((last, last_trailer)) = &mut self.last else {
            self.last = Some((key.to_vec(), trailer));
            return Ok(true);
        };
        if (&**last, Reverse(*last_trailer)) >= (key, Reverse(trailer)) {
            return Err(Error::corrupt("order of versions")
                .expected(format_args!("one after {last_trailer:?} of its key, or a key after"))
                .got(format_args!("{trailer:?} of `{}`", key.escape_ascii())));
        }
        let is_new = **last != *key;
        if is_new {
            last.clear();
            last.extend_from_slice(key);
        }
        *last_trailer = trailer;
        Ok(is_new)
    }

    /// The last version.
    pub(super) fn last(&self) -> Option<(&[u8], Trailer)> {
        self.last.as_ref().map(|(key, trailer)| (&**key, *trailer))
    }

    /// The key of the last version.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.last().map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use base::{EntryKind, Seqno};

    use super::*;

    #[test]
    fn keys_ascend_and_the_versions_of_a_key_descend() {
        let at = |seqno| Trailer::new(Seqno::new(seqno), EntryKind::Put);
        let mut order = VersionOrder::default();
        assert_eq!(order.key(), None);
        for (key, seqno, is_new) in [("a", 9, true), ("a", 7, false), ("b", 8, true)] {
            assert_eq!(order.pass(key.as_bytes(), at(seqno)).unwrap(), is_new, "{key} {seqno}");
        }
        for (key, seqno) in [("b", 8), ("b", 9), ("a", 1), ("", 1)] {
            assert!(order.pass(key.as_bytes(), at(seqno)).is_err(), "{key} {seqno}");
            assert_eq!(order.key(), Some(&b"b"[..]));
        }
    }
}

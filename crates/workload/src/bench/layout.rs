//! Which keys the numbers of a store have: their own, in order, or scattered ones.
//!
//! Scattered keys are those of a fixed bijection of all key numbers, whatever the seed and however
//! many keys there are: a store grows by inserts all over its key space, and another process finds
//! the same keys again.

use base::Result;

use crate::{KEY_NUMBER_MAX, Keys, Permutation};

/// Names the bijection. Stores filled by earlier processes rely on it.
const SCATTER: u64 = 0x7e55_ace0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    keys: Keys,
    scatter: Option<Permutation>,
}

impl Layout {
    pub(super) fn new(keys: Keys, is_scattered: bool) -> Self {
        Self { keys, scatter: is_scattered.then(|| Permutation::new(KEY_NUMBER_MAX, SCATTER)) }
    }

    /// Whether keys sort as their numbers do.
    pub(super) const fn is_ordered(&self) -> bool {
        self.scatter.is_none()
    }

    pub(super) const fn key_bytes(&self) -> usize {
        self.keys.bytes()
    }

    fn place(&self, number: u64) -> u64 {
        self.scatter.map_or(number, |scatter| scatter.apply(number))
    }

    /// Replaces `out` by the key of `number`.
    #[inline]
    pub(super) fn write(&self, number: u64, out: &mut Vec<u8>) {
        self.keys.write(self.place(number), out);
    }

    /// Replaces `out` by a key of no number, beside that of `number`.
    #[inline]
    pub(super) fn write_missing(&self, number: u64, out: &mut Vec<u8>) {
        self.keys.write_missing(self.place(number), out);
    }

    /// The number of `key`, if it is one of these keys.
    #[inline]
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let place = self.keys.number(key)?;
        Some(self.scatter.map_or(place, |scatter| scatter.invert(place)))
    }
}

/// The layouts a workload can be run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Whichever the store has.
    Any,
    /// Keys in order.
    Ordered,
    /// Scattered keys.
    Scattered,
}

impl Wanted {
    /// Whether keys are to be scattered in a store whose keys are, are not, or may be either.
    pub(super) fn agree(self, is_scattered: Option<bool>) -> Result<bool> {
        let wanted = match self {
            Self::Any => return Ok(is_scattered.unwrap_or(false)),
            Self::Ordered => false,
            Self::Scattered => true,
        };
        match is_scattered {
            Some(other) if other != wanted => Err(base::Error::invalid("workload")
                .expected("those of one store to keep their keys alike: ordered or scattered")
                .got(if wanted {
                    "scattered keys in a store of ordered ones"
                } else {
                    "ordered keys in a store of scattered ones"
                })),
            _ => Ok(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_keys_read_back_and_lie_apart() {
        let keys = Keys::new(16).unwrap();
        let (ordered, scattered) = (Layout::new(keys, false), Layout::new(keys, true));
        let (mut rng, seed) = base::Rng::from_env();
        let (mut key, mut next) = (Vec::new(), Vec::new());
        let mut ascending = 0;
        for _ in 0..1000 {
            let number = rng.below(KEY_NUMBER_MAX - 1);
            for layout in [&ordered, &scattered] {
                layout.write(number, &mut key);
                assert_eq!(layout.number(&key), Some(number), "TERRACE_SEED={seed}");
                layout.write_missing(number, &mut next);
                assert_eq!(layout.number(&next), None, "TERRACE_SEED={seed}");
            }
            scattered.write(number + 1, &mut next);
            ascending += u32::from(key < next);
        }
        assert!((400..600).contains(&ascending), "{ascending}, TERRACE_SEED={seed}");
    }

    /// The keys of a store outlive the process that wrote them.
    #[test]
    fn the_scatter_is_fixed() {
        let layout = Layout::new(Keys::new(8).unwrap(), true);
        let mut key = Vec::new();
        layout.write(1, &mut key);
        assert_eq!(key, SCATTERED_ONE);
    }

    const SCATTERED_ONE: [u8; 8] = [0, 0, 169, 177, 250, 114, 48, 70];

    #[test]
    fn a_store_keeps_its_layout() {
        assert!(!Wanted::Any.agree(None).unwrap());
        assert!(Wanted::Any.agree(Some(true)).unwrap());
        assert!(Wanted::Scattered.agree(None).unwrap());
        assert!(Wanted::Scattered.agree(Some(false)).is_err());
        assert!(Wanted::Ordered.agree(Some(true)).is_err());
    }
}

//! The mapping of key numbers to the keys of a store: in order, or scattered.
//!
//! Scattered keys follow a fixed bijection of all key numbers that depends on neither seed nor number of
//! keys. So inserts spread over the whole key space of a store, and another process finds the same keys
//! again.

use base::Result;

use crate::{KEY_NUMBER_MAX, Keys, Permutation};

/// The seed of the bijection. Stores filled by earlier processes rely on it.
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

    /// Whether keys sort like their numbers.
    pub(super) const fn is_ordered(&self) -> bool {
        self.scatter.is_none()
    }

    pub(super) const fn key_bytes(&self) -> usize {
        self.keys.bytes()
    }

    fn place(&self, number: u64) -> u64 {
        self.scatter.map_or(number, |scatter| scatter.apply(number))
    }

    /// Replaces `out` with the key of `number`.
    #[inline]
    pub(super) fn write(&self, number: u64, out: &mut Vec<u8>) {
        self.keys.write(self.place(number), out);
    }

    /// Replaces `out` with a key that is never written, next to that of `number`.
    #[inline]
    pub(super) fn write_missing(&self, number: u64, out: &mut Vec<u8>) {
        self.keys.write_missing(self.place(number), out);
    }

    /// The number of `key`, or `None` if it belongs to no number.
    #[inline]
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let place = self.keys.number(key)?;
        Some(self.scatter.map_or(place, |scatter| scatter.invert(place)))
    }
}

/// The layouts that a workload can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The layout that the store has, or in order if that is unknown.
    Any,
    /// Keys in order.
    Ordered,
    /// Scattered keys.
    Scattered,
}

impl Wanted {
    /// Whether the keys of the run are scattered. `is_scattered` is the layout of the store, if known.
    ///
    /// # Errors
    /// `Invalid` if the workload needs the other layout.
    pub(super) fn agree(self, is_scattered: Option<bool>) -> Result<bool> {
        let wanted = match self {
            Self::Any => return Ok(is_scattered.unwrap_or(false)),
            Self::Ordered => false,
            Self::Scattered => true,
        };
        match is_scattered {
            Some(other) if other != wanted => Err(base::Error::invalid("workload")
                .expected("the layout of keys that the store has")
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
    fn scattered_keys_map_back_to_numbers_and_lie_apart() {
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

    /// A store outlives the process that filled it.
    #[test]
    fn the_bijection_is_fixed() {
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

//! The sequence numbers of open reads, which decide which versions a merge must keep.
//!
//! Read once, when a flush or a merge is planned. It remains valid while the job runs: a later snapshot has a
//! read sequence number at or above the newest one here.

use base::{Error, Result, Seqno};

/// The read sequence numbers of all snapshots and open reads, ascending. The last is the newest visible
/// sequence number.
///
/// All versions above the last number are needed: a later read may have a number between any two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizon(Vec<Seqno>);

impl Horizon {
    /// The horizon of `seqnos`, in any order. The largest is the newest visible sequence number.
    #[must_use]
    pub fn new(mut seqnos: Vec<Seqno>) -> Self {
        seqnos.sort_unstable();
        seqnos.dedup();
        Self(seqnos)
    }

    /// A horizon from bytes from outside.
    ///
    /// # Errors
    /// `Corrupt` if the numbers do not ascend.
    pub fn ascending(seqnos: Vec<Seqno>) -> Result<Self> {
        if seqnos.is_sorted_by(|a, b| a < b) {
            return Ok(Self(seqnos));
        }
        Err(Error::corrupt("horizon of a job").expected("ascending sequence numbers"))
    }

    /// The read sequence numbers, ascending.
    #[must_use]
    pub fn seqnos(&self) -> &[Seqno] {
        &self.0
    }

    /// The smallest read sequence number; zero if the list is empty, because then nothing may be dropped.
    #[must_use]
    pub fn oldest(&self) -> Seqno {
        self.0.first().copied().unwrap_or(Seqno::ZERO)
    }

    /// Whether a version at `older` must be kept although its key has a newer version at `newer`: true if a
    /// read may see the older version and not the newer one.
    #[must_use]
    pub fn needs(&self, older: Seqno, newer: Seqno) -> bool {
        let first = self.0.partition_point(|reader| *reader < older);
        self.0.get(first).is_none_or(|reader| *reader < newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(numbers: &[u64]) -> Horizon {
        Horizon::new(numbers.iter().map(|number| Seqno::new(*number)).collect())
    }

    #[test] // I5
    fn a_version_is_needed_if_a_read_is_between_it_and_the_next() {
        let horizon = horizon(&[30, 10, 20, 10]);
        let needs = |older, newer| horizon.needs(Seqno::new(older), Seqno::new(newer));
        assert!(needs(5, 11));
        assert!(!needs(5, 10));
        assert!(needs(10, 11));
        assert!(!needs(11, 20));
        assert!(needs(11, 21));
        // A later read may have a number between two versions above the horizon.
        assert!(needs(31, 32) && needs(30, 31) && !needs(29, 30));
    }

    #[test]
    fn a_decoded_horizon_must_ascend() {
        let numbers = |list: &[u64]| list.iter().map(|n| Seqno::new(*n)).collect::<Vec<_>>();
        assert_eq!(Horizon::ascending(numbers(&[1, 2])).unwrap(), horizon(&[1, 2]));
        for bad in [&[2, 1], &[1, 1]] {
            assert!(Horizon::ascending(numbers(bad)).is_err());
        }
    }
}

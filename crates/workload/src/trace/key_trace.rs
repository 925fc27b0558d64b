//! The keys of a trace as numbers, in memory, so that any store of numbered keys can be accessed in the order
//! of the trace, again and again.
//!
//! The number of a key is its rank among the distinct keys in key order, as [`crate::plan`] lays them out:
//! keys that are neighbours in the trace are neighbours in a store filled in order. Cost: 4 bytes per access,
//! and during reading about 100 bytes per distinct key.

use std::collections::HashMap;

use base::{Error, Result, broken_invariant};

use super::access::{Access, KEYS_MAX, Trace, for_each};

/// The most accesses: 1 GiB of memory.
const ACCESSES_MAX: usize = 1 << 28;

/// The key of each access, whatever the operation: of a scan, its first key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTrace {
    numbers: Box<[u32]>,
    distinct: u32,
}

impl KeyTrace {
    /// Reads `trace` to its end.
    ///
    /// # Errors
    /// `Invalid` if the trace has no accesses or too many accesses or distinct keys; those of the trace.
    pub fn read(trace: &mut dyn Trace) -> Result<Self> {
        let too_many = |what: &str, most: usize| {
            Error::invalid("trace").expected(format_args!("at most {most} {what}")).got("more")
        };
        let mut appeared: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut numbers = Vec::new();
        for_each(trace, None, &mut |Access { key, .. }| {
            if numbers.len() >= ACCESSES_MAX {
                return Err(too_many("accesses", ACCESSES_MAX));
            }
            let next = appeared.len() as u32;
            let number = match appeared.get(key) {
                Some(number) => *number,
                None if appeared.len() >= KEYS_MAX => {
                    return Err(too_many("distinct keys", KEYS_MAX));
                }
                None => *appeared.entry(key.clone()).or_insert(next),
            };
            numbers.push(number);
            Ok(())
        })?;
        if numbers.is_empty() {
            return Err(Error::invalid("trace").expected("accesses").got("none"));
        }
        let mut sorted: Vec<_> = appeared.into_iter().collect();
        sorted.sort_unstable();
        let mut ranks = vec![0; sorted.len()];
        for (rank, (_, number)) in sorted.iter().enumerate() {
            let Some(slot) = ranks.get_mut(*number as usize) else {
                return Err(broken_invariant!("distinct keys are numbered without a gap"));
            };
            *slot = rank as u32;
        }
        for number in &mut numbers {
            let Some(rank) = ranks.get(*number as usize) else {
                return Err(broken_invariant!(
                    "every access is of a distinct key that was numbered"
                ));
            };
            *number = *rank;
        }
        Ok(Self { numbers: numbers.into_boxed_slice(), distinct: ranks.len() as u32 })
    }

    /// The number of accesses, at least one.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// The number of distinct keys. The key numbers are all numbers below it.
    #[must_use]
    pub const fn distinct(&self) -> u64 {
        self.distinct as u64
    }

    /// The key number of access `turn`. Past its end the trace starts over.
    #[inline]
    pub(crate) fn number(&self, turn: u64) -> u64 {
        let at = (turn % self.accesses()) as usize;
        self.numbers.get(at).copied().unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Format;

    fn read(format: Format, bytes: Vec<u8>) -> Result<KeyTrace> {
        KeyTrace::read(&mut *format.read("pipe", Box::new(std::io::Cursor::new(bytes))).unwrap())
    }

    #[test]
    fn numbers_are_ranks_in_the_order_of_keys() {
        let lines = "9000000000 2 0 0\n5 1 0 1\n9000000001 1 0 2\n7 1 0 3\n";
        let keys = read(Format::Lis, lines.into()).unwrap();
        assert_eq!((keys.accesses(), keys.distinct()), (5, 4));
        let numbers: Vec<_> = (0..7).map(|turn| keys.number(turn)).collect();
        assert_eq!(numbers, [2, 3, 0, 3, 1, 2, 3]);
    }

    #[test]
    fn an_empty_or_damaged_trace_is_refused() {
        let errors = [(vec![], base::ErrorKind::Invalid), (vec![0; 9], base::ErrorKind::Corrupt)];
        for (bytes, kind) in errors {
            assert_eq!(read(Format::U64Be, bytes).unwrap_err().kind(), kind);
        }
    }
}

//! When a keyspace's dictionary is trained, and on what.
//!
//! A flush samples its memtable: stretches of consecutive entries, each about as long as a block,
//! drawn at even distances. (MyNVM, EuroSys'18, trains one dictionary a table from blocks sampled
//! over all of it; here tables share one, so that training is rare and pages may outlive tables.)

use arena::OrderedMap;
use base::{Account, Charge, Result};
use std::sync::Arc;
use table::{Dictionary, gain, train};

/// The size of a dictionary, bytes: four pages, a fraction of what a block repeats of others.
const DICTIONARY_BYTES: usize = 16 << 10;
/// One sample: about what a page of twofold compression holds.
const SAMPLE_BYTES: usize = 8 << 10;
/// Samples of one flush: sixty times the dictionary in all.
const SAMPLES: u64 = 120;
/// Fewer samples train nothing.
const SAMPLES_MIN: usize = 16;
/// A gain that is worth a new dictionary, as a part of the compressed size.
const GAIN_MIN: f64 = 0.02;

/// Stretches of a memtable.
pub(crate) struct Samples {
    stretches: Vec<Vec<u8>>,
    _charge: Charge,
}

impl Samples {
    /// Draws samples from `map`.
    ///
    /// # Errors
    /// `Retry` where memory is short.
    pub(crate) fn draw(map: &Arc<OrderedMap>, account: &Account) -> Result<Self> {
        let charge = account.charge(SAMPLES * (SAMPLE_BYTES as u64 + (SAMPLE_BYTES as u64) / 4))?;
        let every = (map.data_bytes() / SAMPLES).max(SAMPLE_BYTES as u64);
        let mut stretches: Vec<Vec<u8>> = Vec::new();
        let mut cursor = map.cursor();
        cursor.seek_first();
        let mut passed = 0u64;
        while cursor.valid() && stretches.len() <= SAMPLES as usize {
            let (key, value) = (cursor.key(), cursor.value());
            if passed >= every * stretches.len() as u64 {
                stretches.push(Vec::with_capacity(SAMPLE_BYTES));
            }
            if let Some(stretch) = stretches.last_mut() {
                for bytes in [key, value] {
                    let room = SAMPLE_BYTES - stretch.len();
                    stretch.extend(bytes.iter().take(room));
                }
            }
            passed += (key.len() + value.len()) as u64;
            cursor.next();
        }
        Ok(Self { stretches, _charge: charge })
    }

    /// One half to train on, the other to judge by.
    fn halves(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let all = || self.stretches.iter().map(Vec::as_slice).enumerate();
        let half = |odd: bool| all().filter(|(n, _)| (n % 2 == 1) == odd).map(|(_, s)| s).collect();
        (half(false), half(true))
    }

    /// What the dictionary in use gains on these samples.
    pub(crate) fn gain(
        &self,
        dictionary: &Arc<Dictionary>,
        level: i32,
        account: &Account,
    ) -> Result<f64> {
        gain(&self.halves().1, dictionary, level, account)
    }

    /// The content of a new dictionary; `None` where there is too little to train on.
    pub(crate) fn train(&self, account: &Account) -> Result<Option<Vec<u8>>> {
        if self.stretches.len() < SAMPLES_MIN {
            return Ok(None);
        }
        train(&self.halves().0, DICTIONARY_BYTES, account).map(Some)
    }
}

/// Whether to train: nothing was judged since the store was opened, or the dictionary in use (none
/// gains nothing) gains clearly less than what was found then.
pub(crate) fn is_worth_training(adopted: Option<f64>, now: Option<f64>) -> bool {
    adopted.is_none_or(|adopted| now.unwrap_or(0.0) + GAIN_MIN < adopted)
}

/// Whether a dictionary with gain `new` takes the place of one with gain `old` (zero for none).
pub(crate) fn is_worth_adopting(old: f64, new: f64) -> bool {
    new > old + GAIN_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntryKind, Seqno, Trailer};

    #[test]
    fn training_is_rare_and_adoption_rarer() {
        assert!(is_worth_training(None, None) && is_worth_training(None, Some(0.2)));
        assert!(!is_worth_training(Some(0.0), None));
        assert!(!is_worth_training(Some(0.30), Some(0.29)));
        assert!(is_worth_training(Some(0.30), Some(0.27)));
        assert!(is_worth_adopting(0.0, 0.03) && !is_worth_adopting(0.10, 0.11));
    }

    #[test]
    fn samples_come_from_the_whole_memtable() {
        let account = Account::unlimited("test");
        let map = OrderedMap::new(&account).unwrap();
        for number in 0..20_000u64 {
            let trailer = Trailer::new(Seqno::new(number + 1), EntryKind::Put);
            map.insert(format!("{number:08}").as_bytes(), trailer, &[b'v'; 200]);
        }
        let samples = Samples::draw(&map, &account).unwrap();
        assert!((100..=121).contains(&samples.stretches.len()), "{}", samples.stretches.len());
        let last = samples.stretches.last().unwrap();
        let first_key: u64 = std::str::from_utf8(&last[..8]).unwrap().parse().unwrap();
        assert!(first_key > 19_000);
        assert!(samples.stretches.iter().all(|stretch| stretch.len() <= SAMPLE_BYTES));
    }
}

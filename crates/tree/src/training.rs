//! Training of a keyspace's compression dictionary: when, and on which samples.
//!
//! A flush samples its memtable: stretches of consecutive entries, each about as long as a block, at even
//! distances. (MyNVM, EuroSys 2018, trains one dictionary per table from blocks sampled all over it; here
//! tables share one, so that training is rare and pages may outlive tables.)

use std::sync::Arc;

use arena::OrderedMap;
use base::{Account, Charge, Result};
use table::{Dictionary, gain, train};

/// Size of a dictionary, bytes: four pages.
const DICTIONARY_BYTES: usize = 16 << 10;
/// Size of a sample, bytes: about the content of a page that compresses to one half.
const SAMPLE_BYTES: usize = 8 << 10;
/// Samples per flush: sixty times the size of a dictionary in all.
const SAMPLES: u64 = 120;
/// With fewer samples no dictionary is trained.
const SAMPLES_MIN: usize = 16;
/// The least gain for which a new dictionary is adopted, as a share of the compressed size.
const GAIN_MIN: f64 = 0.02;

/// Samples of a memtable.
pub(crate) struct Samples {
    stretches: Vec<Vec<u8>>,
    _charge: Charge,
}

impl Samples {
    /// Draws samples from `map`.
    ///
    /// # Errors
    /// `Retry` if memory is short.
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

    /// One half of the samples to train on, the other to measure the gain.
    fn halves(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let all = || self.stretches.iter().map(Vec::as_slice).enumerate();
        let half = |odd: bool| all().filter(|(n, _)| (n % 2 == 1) == odd).map(|(_, s)| s).collect();
        (half(false), half(true))
    }

    /// The gain of `dictionary` on these samples.
    pub(crate) fn gain(
        &self,
        dictionary: &Arc<Dictionary>,
        level: i32,
        account: &Account,
    ) -> Result<f64> {
        gain(&self.halves().1, dictionary, level, account)
    }

    /// The content of a new dictionary; `None` if there are too few samples.
    pub(crate) fn train(&self, account: &Account) -> Result<Option<Vec<u8>>> {
        if self.stretches.len() < SAMPLES_MIN {
            return Ok(None);
        }
        train(&self.halves().0, DICTIONARY_BYTES, account).map(Some)
    }
}

/// Whether to train: no gain was measured since the store was opened, or the current dictionary (without one,
/// the gain is 0) gains clearly less than was measured then.
pub(crate) fn is_worth_training(adopted: Option<f64>, now: Option<f64>) -> bool {
    adopted.is_none_or(|adopted| now.unwrap_or(0.0) + GAIN_MIN < adopted)
}

/// Whether a dictionary with gain `new` replaces one with gain `old` (0 without one).
pub(crate) fn is_worth_adopting(old: f64, new: f64) -> bool {
    new > old + GAIN_MIN
}

#[cfg(test)]
mod tests {
    use base::{EntryKind, Seqno, Trailer};

    use super::*;

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

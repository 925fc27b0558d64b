//! Keys that split a table into parts of about the same size, for jobs that share it.

use base::Result;
use base::limits::PAGE_BYTES;
use media::Purpose;

use super::table::Table;
use super::top::Top;

/// Most keys that [`Table::splits`] returns.
const SPLITS_MAX: usize = 64;

/// Most bytes of all keys that [`Table::splits`] returns: keys may have 64 KiB each.
const SPLIT_BYTES_MAX: usize = 16 << 10;

impl Table {
    /// Keys that split the table into parts, ascending and behind the first key, with the file offset of each
    /// part, bytes: at most 64 and at most 16 KiB of keys, about evenly spaced, and none if the table has
    /// fewer than two partitions. Takes no read.
    #[must_use]
    pub fn splits(&self) -> Vec<(Vec<u8>, u64)> {
        let Ok(top) = self.top() else { return Vec::new() };
        let separators = top.separators().count();
        let mut step = separators.div_ceil(SPLITS_MAX).max(1);
        while step <= separators {
            if let Some(splits) = self.splits_by(&top, step) {
                return splits;
            }
            step *= 2;
        }
        Vec::new()
    }

    /// The first key of every partition whose number is a multiple of `step`; `None` if the keys are too long
    /// together.
    fn splits_by(&self, top: &Top<'_>, step: usize) -> Option<Vec<(Vec<u8>, u64)>> {
        let mut splits: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut bytes = 0;
        for index in (step - 1..top.separators().count()).step_by(step) {
            let (Ok(separator), Ok(partition)) =
                (top.separators().get(index), top.partition(index + 1))
            else {
                break;
            };
            // Versions of one key may fill several partitions.
            if self.splits_after(&splits, &separator.key) {
                bytes += separator.key.len();
                if bytes > SPLIT_BYTES_MAX {
                    return None;
                }
                splits.push((separator.key, u64::from(partition.first_page) * PAGE_BYTES as u64));
            }
        }
        Some(splits)
    }

    /// Whether `key` may follow `splits`: nothing lies before a split at the first key.
    fn splits_after(&self, splits: &[(Vec<u8>, u64)], key: &[u8]) -> bool {
        let last = splits.last().map_or(&self.properties().first_key, |(last, _)| last);
        **last < *key
    }

    /// As [`Table::splits`], but of blocks in place of partitions, for a table with few partitions. Reads the
    /// metadata page of each partition, past every cache.
    ///
    /// # Errors
    /// `Corrupt` if one of these pages is damaged, otherwise the device's.
    pub fn block_splits(&self, purpose: Purpose) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut splits: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut step = (self.footer().pages as usize).div_ceil(SPLITS_MAX).max(1) as u32;
        let (mut bytes, mut last) = (0, 0);
        for number in 0..self.top()?.partitions() {
            let span = self.meta_span(self.partition(number)?);
            let page = self.read(span, purpose)?;
            let meta = self.meta(span, &page)?;
            let mut next = Some(0);
            while let Some(block) = next {
                next = meta.after(block)?;
                let (first, _) = meta.block_pages(block)?;
                let key = match meta.separator(block)? {
                    Some(separator) => separator.key,
                    None => match number.checked_sub(1) {
                        Some(before) => self.top()?.separators().get(before)?.key,
                        None => continue,
                    },
                };
                // Versions of one key may fill several blocks.
                if first < last + step || !self.splits_after(&splits, &key) {
                    continue;
                }
                last = first;
                bytes += key.len();
                splits.push((key, u64::from(first) * PAGE_BYTES as u64));
                while bytes > SPLIT_BYTES_MAX {
                    step *= 2;
                    let mut is_kept = false;
                    splits.retain(|_| {
                        is_kept = !is_kept;
                        !is_kept
                    });
                    bytes = splits.iter().map(|(key, _)| key.len()).sum();
                }
            }
        }
        Ok(splits)
    }
}

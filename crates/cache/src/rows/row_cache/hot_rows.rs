//! Hot rows over a restart: which rows are worth reading ahead, and inserting such rows.

use base::invariant;

use super::{Refusal, Row, RowCache, RowOwner, Vacancy};

impl RowCache {
    /// Inserts a row that was hot in an earlier run and that nobody asked for yet, read after `vacancy` was
    /// taken, under the conditions in the module's header. It evicts no other row, and stays longer than a
    /// new one. Waits for the log's mutex.
    ///
    /// # Errors
    /// Why the row is refused, which does no harm.
    pub fn fill_ahead(
        &self,
        owner: &RowOwner,
        hash: u64,
        vacancy: Vacancy,
        row: Row<'_>,
    ) -> Result<(), Refusal> {
        invariant!(
            row.seqno <= row.as_of,
            "a row read ahead is visible at the seqno it was read at"
        );
        self.check_size(&row)?;
        let mut log = self.log.lock();
        let filled = match owner.floor() == vacancy.floor {
            true => log.fill_ahead(self.shared(), owner.number, hash, vacancy.bucket, row),
            false => Err(Refusal::Written),
        };
        filled.inspect_err(|refusal| log.counts.refused.count(*refusal))
    }

    /// Takes memory for `bytes` of rows that will be read ahead, or up to the limit, as far as nobody else
    /// needs it.
    pub fn reserve(&self, bytes: u64) {
        self.log.lock().reserve(bytes);
    }

    /// Whether a row can be read ahead without evicting another.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.log.lock().has_room()
    }

    /// Calls `visit` with the owner's number, the key and the memory in bytes of each cached row, the hot
    /// ones first, until it returns false. A row that moves meanwhile may be missed or visited twice. Holds
    /// the log's mutex for 64 KiB of rows at a time.
    pub fn visit_hot_rows(&self, visit: &mut dyn FnMut(u32, &[u8], usize) -> bool) {
        let segments = self.log.lock().newest_segments();
        for wants_hot in [true, false] {
            for number in &segments {
                let shared = self.shared();
                if !self.log.lock().visit_segment(shared, *number, wants_hot, visit) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use base::{Account, Seqno, key_hash};

    use super::super::super::row::{ROW_BYTES_MAX, RowFrom};
    use super::*;

    const LIMIT: u64 = 4 << 20;

    fn hash(owner: &RowOwner, key: &[u8]) -> u64 {
        owner.hash(key_hash(key))
    }

    fn key(number: u32) -> Vec<u8> {
        format!("key {number:06}").into_bytes()
    }

    /// Reads the row ahead; whether it came in.
    fn fill_ahead(cache: &RowCache, owner: &RowOwner, number: u32) -> bool {
        let (key, value) = (key(number), vec![number as u8; 500]);
        let hash = hash(owner, &key);
        let vacancy = cache.vacancy(owner, hash).unwrap();
        let (seqno, as_of) = (Seqno::new(1), Seqno::new(1));
        let from = RowFrom::Device;
        let row = Row { key: &key, value: &value, packed: false, seqno, as_of, expiry: 0, from };
        cache.fill_ahead(owner, hash, vacancy, row).is_ok()
    }

    fn get(cache: &RowCache, owner: &RowOwner, number: u32) -> bool {
        let (key, mut value) = (key(number), Vec::new());
        cache.get(owner, &key, hash(owner, &key), Seqno::new(1), &mut value).is_some()
    }

    #[test]
    fn rows_read_ahead_evict_nothing_and_answer_gets() {
        let cache = RowCache::new(&Account::unlimited("test"), LIMIT).unwrap();
        let owner = cache.owner();
        cache.reserve(LIMIT * 2);
        assert_eq!(cache.bytes(), LIMIT);
        let filled =
            (0..u32::MAX).take_while(|number| fill_ahead(&cache, &owner, *number)).count() as u32;
        assert!(u64::from(filled) * 512 > LIMIT / 10 * 9, "{filled} rows");
        assert!(!cache.has_room());
        // A full bucket of the index lets go of a row.
        let found = (0..filled).filter(|number| get(&cache, &owner, *number)).count() as u32;
        assert!(found > filled / 100 * 95, "{found} of {filled}");
        let statistics = cache.statistics();
        assert_eq!((statistics.ahead, statistics.evicted), (u64::from(filled), 0));
        assert_eq!((statistics.fills, statistics.refused.memory), (0, 1));
    }

    #[test]
    fn a_row_that_is_written_while_it_is_read_ahead_is_refused() {
        let cache = RowCache::new(&Account::unlimited("test"), LIMIT).unwrap();
        let owner = cache.owner();
        let (key, seqno) = (key(1), Seqno::new(1));
        let hash = hash(&owner, &key);
        let row = Row {
            key: &key,
            value: b"old",
            packed: false,
            seqno,
            as_of: seqno,
            expiry: 0,
            from: RowFrom::Device,
        };
        let vacancy = cache.vacancy(&owner, hash).unwrap();
        cache.invalidate(hash);
        assert_eq!(cache.fill_ahead(&owner, hash, vacancy, row), Err(Refusal::Written));
        let vacancy = cache.vacancy(&owner, hash).unwrap();
        owner.raise_floor(Seqno::new(2));
        assert_eq!(cache.fill_ahead(&owner, hash, vacancy, row), Err(Refusal::Written));
        let value = vec![0; ROW_BYTES_MAX];
        let large = Row { value: &value, ..row };
        let vacancy = cache.vacancy(&owner, hash).unwrap();
        assert_eq!(cache.fill_ahead(&owner, hash, vacancy, large), Err(Refusal::Large));
        assert!(!get(&cache, &owner, 1));
    }

    #[test]
    fn hot_rows_are_visited_first_and_stale_ones_not_at_all() {
        let cache = RowCache::new(&Account::unlimited("test"), LIMIT).unwrap();
        let (owner, other) = (cache.owner(), cache.owner());
        let fill = |owner: &RowOwner, number: u32| {
            let (key, seqno) = (key(number), Seqno::new(1));
            let hash = hash(owner, &key);
            let vacancy = cache.vacancy(owner, hash).unwrap();
            let (value, from) = (b"value", RowFrom::Device);
            let row = Row { key: &key, value, packed: false, seqno, as_of: seqno, expiry: 0, from };
            cache.fill(owner, hash, vacancy, row).unwrap();
        };
        (0..100).for_each(|number| fill(&owner, number));
        fill(&other, 7);
        for number in 0..100 {
            assert!(get(&cache, &owner, number) || number % 4 != 0);
        }
        (0..100)
            .filter(|number| number % 4 == 1)
            .for_each(|number| cache.invalidate(hash(&owner, &key(number))));
        let visited = |most: usize| {
            let mut rows = Vec::new();
            cache.visit_hot_rows(&mut |owner, key, bytes| {
                assert!(bytes > key.len() && bytes % 8 == 0);
                rows.push((owner, key.to_vec()));
                rows.len() < most
            });
            rows
        };
        let all = visited(usize::MAX);
        assert_eq!(all.len(), 76, "each current row once");
        assert_eq!(all.iter().filter(|(number, _)| *number == other.number()).count(), 1);
        assert_eq!(all.last().map(|row| row.0), Some(other.number()), "the one that nobody used");
        assert_eq!(visited(10).len(), 10);
    }
}

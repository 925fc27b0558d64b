//! Pages that are lost while they are read in place: they are asked for again, and no answer is another.

use super::model::{here, model};
use super::*;
use crate::cut::Cut;

/// Supplies single pages in place, until one is lost.
struct Lender {
    driver: Driver,
    cut: Cut,
    /// What was asked for last, where it was lost.
    lost: Option<Span>,
}

impl Lender {
    fn fetch(&mut self, span: Span) -> Result<Pages> {
        if let Some(lost) = self.lost.take() {
            assert_eq!(lost, span, "what was lost is asked for again");
        }
        let pages = self.driver.fetch(span)?;
        let Pages::Frame(frame) = &pages else { return Ok(pages) };
        let Some(pages) = self.cut.lend(frame.first_chunk().unwrap()) else {
            return Ok(pages);
        };
        self.lost = self.cut.is_lost().then_some(span);
        Ok(pages)
    }

    fn get(&mut self, key: &[u8], at: Trailer) -> Result<Option<(Trailer, Bytes)>> {
        let table = Arc::clone(&self.driver.table);
        let mut read = PointRead::new(table, key, key_hash(key), at);
        let mut supplied = None;
        loop {
            match read.step(supplied.take())? {
                Step::Ready(found) => return Ok(found.map(|found| (found.trailer, found.value))),
                Step::Need(span) => supplied = Some(self.fetch(span)?),
            }
        }
    }

    fn walk(&mut self, forward: bool) -> Result<Vec<(Vec<u8>, Trailer, Bytes)>> {
        let mut cursor = TableCursor::new(Arc::clone(&self.driver.table));
        if forward {
            cursor.seek_first()
        } else {
            cursor.seek_last()
        }
        let mut all = Vec::new();
        loop {
            let mut supplied = None;
            let is_valid = loop {
                match cursor.step(supplied.take())? {
                    Step::Ready(is_valid) => break is_valid,
                    Step::Need(span) => supplied = Some(self.fetch(span)?),
                }
            };
            if !is_valid {
                return Ok(all);
            }
            all.extend(here(&cursor));
            if forward { cursor.next() } else { cursor.prev() }
        }
    }
}

/// Runs `read` with the first page lost, the second, and so on, until none is, or for `most` turns.
fn each_lost<T: PartialEq + std::fmt::Debug>(
    table: &Arc<Table>,
    most: usize,
    expected: &T,
    read: impl Fn(&mut Lender) -> Result<T>,
) {
    for number in 0..most {
        let Some(cut) = Cut::after(number) else { return };
        let mut lender = Lender { driver: Driver::new(table), cut, lost: None };
        assert_eq!(&read(&mut lender).unwrap(), expected, "page {number} was lost");
        if !lender.cut.is_lost() {
            return;
        }
        assert!(lender.lost.is_none(), "page {number}, which was lost, was not asked for again");
    }
}

#[test]
fn what_is_lost_while_it_is_read_is_asked_for_again() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for codec in codecs() {
        let (medium, account) = (medium(), Account::unlimited("test"));
        let model = model(&mut rng);
        write(&medium, spec(codec), &model, &account).unwrap();
        let table = open(&medium).unwrap();
        let entries: Vec<_> = model.iter().collect();
        for _ in 0..20 {
            let ((key, Reverse(at)), value) = entries[rng.below(entries.len() as u64) as usize];
            let expected = Some((*at, Bytes::copy_from_slice(value)));
            each_lost(&table, 4, &expected, |lender| lender.get(key, *at));
        }
        let mut all: Vec<_> = entries
            .iter()
            .map(|((key, at), value)| (key.clone(), at.0, Bytes::copy_from_slice(value)))
            .collect();
        each_lost(&table, 12, &all, |lender| lender.walk(true));
        all.reverse();
        each_lost(&table, 12, &all, |lender| lender.walk(false));
    }
}

/// A caller may hold what it was given for as long as it likes.
#[test]
fn what_was_found_in_place_stays_what_it_is() {
    for codec in codecs() {
        let (medium, account) = (medium(), Account::unlimited("test"));
        let value = vec![7; 300];
        let model = Model::from([((b"key".to_vec(), Reverse(put(1))), value.clone())]);
        write(&medium, spec(codec), &model, &account).unwrap();
        let Some(cut) = Cut::after(2) else { return };
        let mut lender = Lender { driver: Driver::new(&open(&medium).unwrap()), cut, lost: None };
        let (_, found) = lender.get(b"key", put(1)).unwrap().unwrap();
        // The next page that is lent is lost, and the slot with it.
        let (_, again) = lender.get(b"key", put(1)).unwrap().unwrap();
        assert!(lender.cut.is_lost());
        assert_eq!((&found[..], &again[..]), (&value[..], &value[..]), "{codec:?}");
    }
}

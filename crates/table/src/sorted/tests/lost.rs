//! Pages in place that are lost during a read: the read asks for them again, and no answer is wrong.

use super::model::{here, model};
use super::*;
use crate::cut::Cut;

/// Supplies single pages in place, until one is lost.
struct Lender {
    driver: Driver,
    cut: Cut,
    /// The span requested last, if its page was lost.
    lost: Option<Span>,
}

impl Lender {
    fn fetch(&mut self, span: Span) -> Result<Pages> {
        if let Some(lost) = self.lost.take() {
            assert_eq!(lost, span, "the read asks for the lost page again");
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

/// Runs `read` with the first page lost, with the second page lost, and so on, until none is lost, at
/// most `most` times.
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

#[test] // I6
fn a_page_lost_during_a_read_is_requested_again() {
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

/// A caller may hold a result for any time.
#[test]
fn a_result_read_in_place_stays_unchanged() {
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

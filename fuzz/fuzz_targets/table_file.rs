//! Reads arbitrary bytes as a table file with matching checksums: describes, opens, checks and salvages it,
//! scans it in both directions, and looks up keys. A table that passes the check opens without any of the
//! pages that it stores twice.

#![no_main]

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, ErrorKind, Result, Seqno, Trailer, key_hash};
use libfuzzer_sys::fuzz_target;
use media::{Buf, Purpose};
use table::{NoDictionaries, Pages, PointRead, Salvaged, Span, Step, Table, TableCursor, salvage};
use terrace_fuzz::{medium_of, seal_pages};

/// A scan of more entries than an input can hold does not end.
const STEPS_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(PAGE_BYTES).min(16 * PAGE_BYTES), 0);
    let Some((store, id)) = seal_pages(&mut file) else { return };
    let name = table::file_name(id);
    let medium = medium_of(&name, file.clone());
    let account = Account::unlimited("fuzz");
    let _ = table::describe(&*medium, &name, &account, true, &mut |fact| {
        let _ = fact.to_string();
    });
    let mut last = None;
    let mut visit = |salvaged: Salvaged<'_>| {
        if let Salvaged::Version { key, trailer, .. } = salvaged {
            let version = (key.to_vec(), std::cmp::Reverse(trailer));
            assert!(last.as_ref().is_none_or(|last| *last < version), "in order");
            last = Some(version);
        }
        Ok(())
    };
    let salvaged = salvage(&*medium, store, id, &NoDictionaries, None, &account, &mut visit);
    let salvaged = match salvaged {
        // A table of a newer format is refused.
        Err(error) if error.kind() == ErrorKind::Invalid => return,
        salvaged => salvaged.expect("memory"),
    };
    let dictionaries = Arc::new(NoDictionaries);
    let opened = Table::open(&*medium, store, id, None, None, dictionaries, &account);
    let Ok(table) = opened else { return };
    let report = table.check(&account, &mut |done, total| assert!(done <= total)).expect("memory");
    let keys = walk(&table, true);
    let back = walk(&table, false);
    let deletes = table.range_deletes().expect("memory");
    for (before, next) in deletes.iter().zip(deletes.iter().skip(1)) {
        assert!(before.start < before.end && before.end <= next.start);
    }
    for fragment in deletes.iter() {
        let newest = fragment.seqnos.first().copied();
        assert_eq!(deletes.newest_covering(fragment.start, Seqno::MAX), newest);
    }
    let footer = *table.footer();
    for lost in (footer.range_deletes..footer.pages).filter(|page| footer.twin(*page).is_some()) {
        let mut damaged = file.clone();
        damaged[lost as usize * PAGE_BYTES] ^= 1;
        let medium = medium_of(&name, damaged);
        let dictionaries = Arc::new(NoDictionaries);
        let reopened = Table::open(&*medium, store, id, None, None, dictionaries, &account);
        let is_same = reopened.is_ok_and(|it| it.properties() == table.properties());
        assert!(is_same || !report.is_clean(), "without page {lost}");
    }
    if report.is_clean() {
        assert_eq!(salvaged.versions, report.entries, "a clean table is salvaged whole");
        // A table that passes the check reads the same in both directions.
        assert_eq!(keys.as_ref().ok().map(Vec::len), back.ok().map(|keys| keys.len()));
        assert_eq!(keys.as_ref().ok().map(|keys| keys.len() as u64), Some(report.entries));
    }
    for (key, trailer) in keys.unwrap_or_default().into_iter().take(64) {
        let found = get(&table, &key, trailer);
        assert!(!report.is_clean() || found.is_ok_and(|found| found), "a key that is there");
    }
    let _ = get(&table, b"nowhere", Trailer::seek(Seqno::MAX));
});

fn fetch(table: &Table, span: Span) -> Result<Pages> {
    let at = u64::from(span.first) * PAGE_BYTES as u64;
    // As the driver of the read does: reads stay within the file.
    let pages = (span.pages as usize).min(table.footer().pages as usize + 1);
    let (buf, result) = table.file().read(at, Buf::pages(pages), Purpose::Data);
    result.map(|()| Pages::Run(buf))
}

fn walk(table: &Arc<Table>, forward: bool) -> Result<Vec<(Vec<u8>, Trailer)>> {
    let mut cursor = TableCursor::new(Arc::clone(table));
    let mut keys = Vec::new();
    if forward {
        cursor.seek_first()
    } else {
        cursor.seek_last()
    }
    loop {
        let mut supplied = None;
        let valid = loop {
            match cursor.step(supplied.take())? {
                Step::Ready(valid) => break valid,
                Step::Need(span) => supplied = Some(fetch(table, span)?),
            }
        };
        if !valid {
            return Ok(keys);
        }
        assert!(keys.len() < STEPS_MAX, "a walk that does not end");
        keys.push((cursor.key().to_vec(), cursor.trailer().expect("an entry has a trailer")));
        let _ = cursor.value();
        if forward { cursor.next() } else { cursor.prev() }
    }
}

fn get(table: &Arc<Table>, key: &[u8], at: Trailer) -> Result<bool> {
    let mut read = PointRead::new(Arc::clone(table), key, key_hash(key), at);
    let mut supplied = None;
    loop {
        match read.step(supplied.take())? {
            Step::Ready(found) => return Ok(found.is_some()),
            Step::Need(span) => supplied = Some(fetch(table, span)?),
        }
    }
}

use std::sync::Arc;

use base::{ManualClock, Seqno, Trailer, Write, WriteSize};
use compact::Horizon;

use super::*;
use crate::timekeeper::Timekeeper;
use crate::{ReadContext, Version};

const READ: ReadAt = ReadAt { seqno: Seqno::new(100), now: 5 };

fn new_view() -> View {
    let account = Account::unlimited("test");
    let timekeeper = Arc::new(Timekeeper::new(Arc::new(ManualClock::at(1)), 0));
    let rows = cache::RowCache::new(&account, 1 << 20).unwrap().owner();
    let read_context = ReadContext::new(timekeeper, account.clone(), 1 << 20, rows);
    let active = Memtable::new(&account, Seqno::new(1)).unwrap();
    let (sealed, version) = (Vec::new(), Arc::new(Version::default()));
    View { active, sealed, version, read_context, ingested: Seqno::ZERO }
}

fn write(memtable: &Memtable, seqno: u64, key: &[u8], write: Write<'_>) {
    memtable.reserve(WriteSize::of(key, write)).unwrap();
    let trailer = Trailer::new(Seqno::new(seqno), write.kind());
    memtable.insert(key, trailer, b"", Horizon::default);
}

fn note(spans: &DeadSpans, view: &View, keys: (&[u8], &[u8]), newest: u64) {
    spans.note(view, keys, Seqno::new(newest), READ, &Account::unlimited("test"));
}

fn end(spans: &DeadSpans, key: &[u8]) -> Option<Vec<u8>> {
    spans.end(key, READ)
}

#[test]
fn a_span_serves_reads_at_its_seqno_and_time_or_later() {
    let (spans, view) = (DeadSpans::default(), new_view());
    note(&spans, &view, (b"", b"m"), 50);
    assert_eq!(end(&spans, b""), Some(b"m".to_vec()));
    assert_eq!(end(&spans, b"m"), None);
    assert_eq!(spans.start(b"c", READ), Some(Vec::new()));
    let at = |seqno, now| spans.end(b"c", ReadAt { seqno: Seqno::new(seqno), now });
    assert!(at(50, 5).is_some() && at(49, 5).is_none() && at(50, 4).is_none());
}

#[test]
fn chains_are_jumped_over_at_once_and_the_oldest_are_joined() {
    let (spans, view) = (DeadSpans::default(), new_view());
    let key = |number: u64| number.to_be_bytes();
    for number in 0..200 {
        note(&spans, &view, (&key(number), &key(number + 1)), number / 4);
    }
    assert!(spans.state.read().spans.len() <= SPANS_MAX);
    assert_eq!(end(&spans, &key(7)), Some(key(200).to_vec()));
    assert_eq!(spans.start(&key(199), READ), Some(key(0).to_vec()));
    // The oldest were joined: readers that are behind jump over the later ones only.
    let behind =
        |number, seqno| spans.end(&key(number), ReadAt { seqno: Seqno::new(seqno), now: 5 });
    assert_eq!(behind(0, 20), None);
    assert_eq!(behind(0, 40), Some(key(164).to_vec()));
}

#[test]
fn a_put_cuts_the_span_and_a_delete_does_not() {
    let (spans, view) = (DeadSpans::default(), new_view());
    note(&spans, &view, (b"a", b"z"), 50);
    spans.written(b"k", EntryKind::Delete);
    assert_eq!(end(&spans, b"a"), Some(b"z".to_vec()));
    for (kind, key) in
        [(EntryKind::Put, b"k"), (EntryKind::Merge, b"c"), (EntryKind::PutExpiring, b"a")]
    {
        spans.written(key, kind);
        assert_eq!(end(&spans, key), None, "{kind:?}");
        assert_eq!(spans.start(key, READ), None, "{kind:?}");
    }
    assert_eq!(end(&spans, b"a\0"), Some(b"c".to_vec()));
    assert_eq!(end(&spans, b"d"), Some(b"k".to_vec()));
    assert_eq!(end(&spans, b"k\0"), Some(b"z".to_vec()));
}

#[test]
fn a_walk_that_may_have_missed_a_write_notes_nothing() {
    let (spans, view) = (DeadSpans::default(), new_view());
    // A put that is not visible yet came behind the walk.
    write(&view.active, 101, b"k", Write::Put(b""));
    note(&spans, &view, (b"a", b"z"), 50);
    assert!(!spans.any() && end(&spans, b"b").is_none());
    note(&spans, &view, (b"l", b"z"), 50);
    assert!(end(&spans, b"m").is_some());
    // Writes go to another memtable than the walk saw, or there are new tables.
    let next = Memtable::new(&Account::unlimited("test"), Seqno::new(200)).unwrap();
    spans.sealed(&next);
    note(&spans, &view, (b"a", b"c"), 50);
    assert_eq!(end(&spans, b"b"), None);
    spans.ingested(Seqno::new(300));
    let after = View { active: next, ..new_view() };
    note(&spans, &after, (b"a", b"c"), 50);
    assert!(!spans.any());
    note(&spans, &View { ingested: Seqno::new(300), ..after }, (b"a", b"c"), 50);
    assert_eq!(end(&spans, b"b"), Some(b"c".to_vec()));
}

#[test]
fn spans_that_no_walk_uses_are_forgotten() {
    let (spans, view) = (DeadSpans::default(), new_view());
    note(&spans, &view, (b"a", b"c"), 50);
    let seal = |first| {
        spans.sealed(&Memtable::new(&Account::unlimited("test"), Seqno::new(first)).unwrap());
    };
    seal(200);
    assert!(end(&spans, b"a").is_some());
    seal(300);
    assert!(spans.any());
    seal(400);
    assert!(!spans.any());
}

/// A writer took its sequence number, the memtable was sealed, a walk passed the key, and then the writer
/// inserted. The span that the walk notes must not hide the key.
#[test] // I1
fn a_put_that_is_late_in_a_sealed_memtable_is_not_hidden() {
    let (spans, mut view) = (DeadSpans::default(), new_view());
    let account = Account::unlimited("test");
    let sealed =
        std::mem::replace(&mut view.active, Memtable::new(&account, Seqno::new(102)).unwrap());
    spans.sealed(&view.active);
    view.sealed.push(Arc::clone(&sealed));
    write(&sealed, 101, b"f", Write::Put(b"late"));
    note(&spans, &view, (b"a", b"m"), 50);
    assert_eq!(end(&spans, b"b"), None);
}

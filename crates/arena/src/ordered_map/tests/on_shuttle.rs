use base::{EntryKind, Seqno};

use super::*;

fn trailer(seqno: u64) -> Trailer {
    Trailer::new(Seqno::new(seqno), EntryKind::Put)
}

/// The keys of `writer`, in an order that splits nodes in the middle and at the end.
fn keys(writer: u8) -> impl Iterator<Item = [u8; 2]> {
    [5u8, 1, 9, 3, 7, 2, 8, 10, 4, 6].into_iter().map(move |number| [number, writer])
}

/// Two writers insert into the same leaves until inner nodes split, too, while a reader gets keys and walks
/// forward and backward: entries are in order, finished inserts are found, and no entry is lost.
#[test]
fn shuttle_insert_read_and_iterate() {
    crate::sync::explore(400, || {
        let map = OrderedMap::new(&Account::unlimited("map")).unwrap();
        map.reserve(20, 80).unwrap();
        let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let writers: Vec<_> = (0..2u8)
            .map(|writer| {
                let (map, done) = (Arc::clone(&map), Arc::clone(&done));
                shuttle::thread::spawn(move || {
                    for (number, key) in keys(writer).enumerate() {
                        map.insert(&key, trailer(1), &key);
                        done[writer as usize].store(number as u64 + 1, Release);
                    }
                })
            })
            .collect();
        let reader = {
            let (map, done) = (Arc::clone(&map), Arc::clone(&done));
            shuttle::thread::spawn(move || {
                let mut cursor = map.cursor();
                for _ in 0..2 {
                    let finished: Vec<u64> = done.iter().map(|done| done.load(Acquire)).collect();
                    for (writer, finished) in (0u8..).zip(&finished) {
                        for key in keys(writer).take(*finished as usize) {
                            let (_, value) = map.get(&key, Trailer::seek(Seqno::MAX)).unwrap();
                            assert_eq!(value, key);
                        }
                    }
                    cursor.seek_first();
                    let forward = walk(&mut cursor, Cursor::next);
                    assert!(forward.is_sorted() && forward.len() as u64 >= finished.iter().sum());
                    cursor.seek_last();
                    let mut back = walk(&mut cursor, Cursor::prev);
                    back.reverse();
                    assert!(back.is_sorted() && back.len() >= forward.len());
                }
            })
        };
        writers.into_iter().chain([reader]).for_each(|thread| thread.join().unwrap());
        let mut all: Vec<_> = keys(0).chain(keys(1)).map(|key| key.to_vec()).collect();
        all.sort();
        let mut cursor = map.cursor();
        cursor.seek_first();
        assert_eq!(walk(&mut cursor, Cursor::next), all);
    });
}

fn walk(cursor: &mut Cursor, step: impl Fn(&mut Cursor)) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while cursor.valid() {
        assert_eq!(cursor.key(), cursor.value());
        keys.push(cursor.key().to_vec());
        step(cursor);
    }
    keys
}

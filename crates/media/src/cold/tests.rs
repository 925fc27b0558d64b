//! Tests of [`Cold`] over two media in memory.

use super::*;
use crate::{Buf, MemoryMedium, Op, Purpose, Request};
use base::limits::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

fn content(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| vec![page as u8 + 1; PAGE_BYTES]).collect()
}

/// A medium with the local file `a` of eight pages, and its copy `a.1` on the other medium.
fn scene() -> (Arc<MemoryMedium>, Arc<MemoryMedium>, Cold) {
    let (local, remote) = (Arc::new(MemoryMedium::new()), Arc::new(MemoryMedium::new()));
    local.insert("a", content(8)).unwrap();
    remote.insert("a.1", content(8)).unwrap();
    let cold = Cold::new(Arc::clone(&local) as _, |name| name.starts_with('a'));
    cold.attach(Arc::clone(&remote) as _, BTreeMap::new()).unwrap();
    (local, remote, cold)
}

fn name() -> ColdName {
    ColdName { file: "a.1".to_owned(), len: 8 * PAGE }
}

fn names(medium: &dyn Medium) -> Vec<String> {
    medium.list().unwrap().into_iter().map(|file| file.name).collect()
}

#[test]
fn an_open_file_moves_and_reads_as_before() {
    let (local, _, cold) = scene();
    let file = cold.open("a", Access::Direct).unwrap();
    let read = |at| {
        let (buf, result) = file.read(at * PAGE, Buf::pages(1), Purpose::Data);
        result.map(|()| buf[0])
    };
    assert_eq!((read(3).unwrap(), cold.reads().reads), (4, 0));
    cold.switch("a", name()).unwrap();
    assert_eq!((names(&*local), names(&cold)), (vec![], vec!["a".to_owned()]));
    assert_eq!((read(3).unwrap(), cold.reads().reads), (4, 1));
    assert_eq!(cold.open("a", Access::Direct).unwrap().size().unwrap(), 8 * PAGE);
    assert!(!cold.link("a", &MemoryMedium::new()).unwrap(), "it must be copied");
    assert!(read(8).is_err());
    assert_eq!(cold.reads().failures, 1);
}

#[test]
fn a_removed_cold_file_is_left_to_the_owner_of_its_medium() {
    let (local, remote, cold) = scene();
    cold.switch("a", name()).unwrap();
    // A process that died after the switch left the local file.
    local.insert("a", content(1)).unwrap();
    assert_eq!((cold.remove_hidden().unwrap(), names(&*local)), (1, vec![]));
    assert!(cold.is_named("a.1"));
    cold.remove("a").unwrap();
    assert_eq!((names(&cold), names(&*remote)), (vec![], vec!["a.1".to_owned()]));
    assert!(!cold.is_named("a.1"));
    assert_eq!((cold.take_removed(), cold.take_removed()), (vec!["a.1".to_owned()], vec![]));
}

#[test]
fn a_missing_cold_file_is_damage() {
    let (_, remote, cold) = scene();
    assert_eq!(
        cold.switch("a", ColdName { file: "b".to_owned(), len: 1 }).unwrap_err().kind(),
        base::ErrorKind::Invalid
    );
    assert!(cold.open("a", Access::Direct).is_ok(), "it did not move");
    cold.switch("a", name()).unwrap();
    remote.remove("a.1").unwrap();
    let error = cold.open("a", Access::Direct).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt, "{error}");
}

#[test]
fn reads_of_one_queue_are_merged_to_ranges() {
    let (local, remote, cold) = scene();
    local.insert("l", content(1)).unwrap();
    local.insert("ab", content(40)).unwrap();
    remote.insert("ab.1", content(40)).unwrap();
    cold.switch("a", name()).unwrap();
    cold.switch("ab", ColdName { file: "ab.1".to_owned(), len: 40 * PAGE }).unwrap();
    let open = |name| cold.open(name, Access::Direct).unwrap();
    let (a, ab, l) = (open("a"), open("ab"), open("l"));
    let mut queue = cold.queue(32).unwrap();
    let reads = [(&a, 5), (&ab, 0), (&a, 2), (&l, 0), (&ab, 15), (&ab, 16), (&ab, 39), (&a, 3)];
    for (token, (file, page)) in reads.iter().enumerate() {
        let op = Op::Read { at: page * PAGE, buf: Buf::pages(1) };
        let (file, token) = (Arc::clone(file), token as u64);
        queue.submit(Request { file, op, purpose: Purpose::Data, token }).unwrap();
    }
    let mut done = Vec::new();
    queue.complete(reads.len(), &mut done).unwrap();
    assert_eq!((done.len(), queue.in_flight()), (reads.len(), 0));
    for completion in done {
        completion.result.unwrap();
        let (_, page) = reads[completion.token as usize];
        assert_eq!(u64::from(completion.buf[0]), page + 1, "read {}", completion.token);
    }
    // Of `a` pages 2 to 5; of `ab` 0 to 15, 16, and 39.
    let ColdReads { reads, ranges, bytes, .. } = cold.reads();
    assert_eq!((reads, ranges, bytes), (7, 4, (4 + 16 + 1 + 1) * PAGE));
}

#[test]
fn without_another_medium_nothing_moves() {
    let local = Arc::new(MemoryMedium::new());
    local.insert("a", content(1)).unwrap();
    let cold = Cold::new(local, |_| true);
    assert_eq!((names(&cold), cold.remove_hidden().unwrap()), (vec!["a".to_owned()], 0));
    cold.remove("a").unwrap();
    assert_eq!(cold.take_removed(), Vec::<String>::new());
}

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
    attach(&cold, &remote, BTreeMap::new());
    (local, remote, cold)
}

fn attach(cold: &Cold, remote: &Arc<MemoryMedium>, names: BTreeMap<String, ColdName>) {
    let is_sound = |_: &str, at: u64, bytes: &[u8]| {
        let mut pages = (at / PAGE..).zip(bytes.chunks(PAGE_BYTES));
        pages.all(|(number, page)| page.iter().all(|byte| *byte == number as u8 + 1))
    };
    let account = Account::unlimited("cold tables");
    cold.attach(Arc::clone(remote) as _, names, is_sound, &account).unwrap();
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

/// [`scene`] with pages 2 and 7 of the cold file `a` kept; and the same files in a process that begins now.
fn kept() -> (Arc<MemoryMedium>, Arc<MemoryMedium>, Cold) {
    let (local, remote, cold) = scene();
    let mut writer = cold.keep("a").unwrap();
    for number in [2, 7] {
        writer.add(number, &content(8)[number as usize * PAGE_BYTES..][..PAGE_BYTES]).unwrap();
    }
    writer.finish(8 * PAGE).unwrap();
    cold.switch("a", name()).unwrap();
    let cold = again(&local, &remote);
    (local, remote, cold)
}

fn again(local: &Arc<MemoryMedium>, remote: &Arc<MemoryMedium>) -> Cold {
    let cold = Cold::new(Arc::clone(local) as _, |name| name.starts_with('a'));
    attach(&cold, remote, [("a".to_owned(), name())].into());
    cold
}

fn read(cold: &Cold, page: u64) -> Result<u8> {
    let file = cold.open("a", Access::Direct)?;
    assert_eq!(file.size().unwrap(), 8 * PAGE);
    let (buf, result) = file.read(page * PAGE, Buf::pages(1), Purpose::Data);
    result.map(|()| buf[0])
}

#[test]
fn kept_pages_are_read_without_the_other_medium() {
    let (local, remote, cold) = kept();
    assert_eq!((names(&*local), names(&cold)), (vec!["a.kept".to_owned()], vec!["a".to_owned()]));
    assert_eq!((cold.remove_hidden().unwrap(), names(&*local).len()), (0, 1));
    remote.remove("a.1").unwrap();
    assert_eq!((read(&cold, 2).unwrap(), read(&cold, 7).unwrap()), (3, 8));
    assert_eq!(cold.reads(), ColdReads::default());
    let error = read(&cold, 3).unwrap_err();
    assert_eq!((error.kind(), cold.reads().failures), (base::ErrorKind::Corrupt, 1), "{error}");
    // A kept page of a queue is not part of a range.
    let file = cold.open("a", Access::Direct).unwrap();
    let mut queue = cold.queue(4).unwrap();
    for (token, page) in [1, 2].into_iter().enumerate() {
        let op = Op::Read { at: page * PAGE, buf: Buf::pages(1) };
        let (file, token) = (Arc::clone(&file), token as u64);
        queue.submit(Request { file, op, purpose: Purpose::Data, token }).unwrap();
    }
    let mut done = Vec::new();
    queue.complete(2, &mut done).unwrap();
    done.sort_by_key(|completion| completion.token);
    assert!(done[0].result.is_err() && done[1].result.is_ok() && done[1].buf[0] == 3);
    cold.remove("a").unwrap();
    assert_eq!(names(&*local), Vec::<String>::new());
}

#[test]
fn damaged_kept_pages_are_read_from_the_other_medium() {
    // A page, the index, and each field of the trailer.
    for damaged in
        [0, 2 * PAGE, 3 * PAGE, 3 * PAGE + 8, 3 * PAGE + 12, 3 * PAGE + 20, 3 * PAGE + 33]
    {
        let (local, remote, _) = kept();
        let file = local.open("a.kept", Access::Direct).unwrap();
        let at = damaged / PAGE * PAGE;
        let (mut page, _) = file.read(at, Buf::pages(1), Purpose::Data);
        page[(damaged - at) as usize] ^= 1;
        file.write(at, page, Purpose::Data).1.unwrap();
        let cold = again(&local, &remote);
        assert_eq!((read(&cold, 2).unwrap(), read(&cold, 7).unwrap()), (3, 8), "{damaged}");
        assert_eq!(cold.reads().ranges, if damaged == 0 { 1 } else { 2 }, "{damaged}");
    }
    // Of a shorter table, and without its end.
    let (local, remote, _) = kept();
    let cold = Cold::new(Arc::clone(&local) as _, |name| name.starts_with('a'));
    remote.insert("b", content(8)).unwrap();
    let other = ColdName { file: "b".to_owned(), len: 7 * PAGE };
    attach(&cold, &remote, [("a".to_owned(), other)].into());
    let file = cold.open("a", Access::Direct).unwrap();
    file.read(2 * PAGE, Buf::pages(1), Purpose::Data).1.unwrap();
    assert_eq!(cold.reads().ranges, 1);
    local.open("a.kept", Access::Direct).unwrap().set_len(3 * PAGE).unwrap();
    assert_eq!((read(&again(&local, &remote), 2).unwrap()), 3);
}

#[test]
fn pages_kept_for_a_move_that_did_not_happen_are_removed() {
    let (local, remote, cold) = scene();
    let mut writer = cold.keep("a").unwrap();
    writer.add(2, &content(1)).unwrap();
    drop(writer);
    assert_eq!(names(&*local), ["a"]);
    cold.keep("a").unwrap().finish(8 * PAGE).unwrap();
    // A second try begins anew.
    cold.keep("a").unwrap().finish(8 * PAGE).unwrap();
    assert_eq!((names(&*local).len(), names(&cold).len()), (2, 1));
    let cold = Cold::new(Arc::clone(&local) as _, |name| name.starts_with('a'));
    attach(&cold, &remote, BTreeMap::new());
    assert_eq!((cold.remove_hidden().unwrap(), names(&*local)), (0, vec!["a".to_owned()]));
}

#[test]
fn golden_bytes_of_kept_pages() {
    let (local, ..) = kept();
    let file = local.open("a.kept", Access::Direct).unwrap();
    let (bytes, read) = file.read(0, Buf::pages(4), Purpose::Data);
    read.unwrap();
    assert!(bytes[..PAGE_BYTES].iter().all(|byte| *byte == 3));
    assert!(bytes[PAGE_BYTES..2 * PAGE_BYTES].iter().all(|byte| *byte == 8));
    let stored = |page: usize| {
        let page = &bytes[page * PAGE_BYTES..][..PAGE_BYTES];
        let end = page.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        page[..end].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let golden: String = include_str!("../../golden/kept.hex").split_whitespace().collect();
    assert_eq!(stored(2) + "000000" + &stored(3), golden);
}

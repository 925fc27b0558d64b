//! Runs with keys from a trace.

use super::*;
use crate::test_store::{Fault, TestStore};
use crate::trace::Format;

/// A trace of block numbers.
fn trace(blocks: &[u64]) -> KeyTrace {
    let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.to_be_bytes()).collect();
    let source = Box::new(std::io::Cursor::new(bytes));
    KeyTrace::read(&mut *Format::U64Be.read("test", source).unwrap()).unwrap()
}

/// The numbers of the keys looked up in `store` since lookup `from`.
fn asked(store: &TestStore, from: usize) -> Vec<u64> {
    let keys = Keys::new(16).unwrap();
    store.asked()[from..].iter().map(|key| keys.number(key).unwrap()).collect()
}

/// Every workload that draws keys follows the trace, and finds each key. A run goes on where the last one
/// ended, and starts over at the end of the trace.
#[test]
fn one_thread_follows_the_order_of_the_trace() {
    let blocks: Vec<u64> = (0..48).map(|at| 1000 * (at * at % 37)).collect();
    let keys = trace(&blocks);
    let expected: Vec<_> = (0..48).map(|turn| keys.number(turn)).collect();
    let options = Options { num: keys.distinct(), ops: Some(48), ..Options::default() };
    let store = TestStore::new(Fault::None);
    let mut bench = Bench::new(&store, options).unwrap();
    bench.replay(keys);
    bench.run(Name::FillSeq, &mut |_| {}).unwrap();
    assert_eq!(store.len() as u64, options.num, "a fill ignores the trace");
    for name in [Name::ReadRandom, Name::ReadRandom] {
        let from = store.asked().len();
        let report = bench.run(name, &mut |_| {}).unwrap();
        assert_eq!((report.figures.found, report.figures.wrong), (48, 0), "{report}");
        assert_eq!(asked(&store, from), expected);
    }
    bench.set_options(Options { ops: Some(32), ..options }).unwrap();
    for part in [0..32, 32..64, 16..48] {
        let from = store.asked().len();
        bench.run(Name::ReadRandom, &mut |_| {}).unwrap();
        let turns = part.map(|turn| expected[turn % 48]);
        assert_eq!(asked(&store, from), turns.collect::<Vec<_>>());
    }
    // With many lookups in flight the keys are the same, in an order that the store chooses.
    let from = store.asked().len();
    bench.set_options(Options { ops: Some(48), ..options }).unwrap();
    bench.run(Name::MultiReadRandom, &mut |_| {}).unwrap();
    let (mut many, mut all) = (asked(&store, from), expected);
    many.sort_unstable();
    all.sort_unstable();
    assert_eq!(many, all);
    for name in [Name::SeekRandom, Name::Overwrite, Name::ReadMissing, Name::ReadWhileWriting] {
        assert_eq!(bench.run(name, &mut |_| {}).unwrap().figures.wrong, 0, "{name}");
    }
}

/// Threads share the trace: together they look up each access once.
#[test]
fn threads_do_each_access_of_a_trace_once() {
    let blocks: Vec<u64> = (0..512).map(|at| at * at % 101).collect();
    let keys = trace(&blocks);
    let mut expected: Vec<_> = (0..512).map(|turn| keys.number(turn)).collect();
    let options =
        Options { num: 200, ops: Some(512), threads: 4, existing: true, ..Options::default() };
    let store = TestStore::new(Fault::None);
    let mut bench = Bench::new(&store, options).unwrap();
    bench.replay(keys);
    bench.run(Name::ReadRandom, &mut |_| {}).unwrap();
    let mut asked = asked(&store, 0);
    asked.sort_unstable();
    expected.sort_unstable();
    assert_eq!(asked, expected);
}

#[test]
fn a_trace_is_refused_by_workloads_that_it_does_not_fit() {
    let keys = trace(&[1, 5, 7]);
    let check = |name, num| Bench::check(name, &Options { num, ..Options::default() }, Some(&keys));
    check(Name::ReadRandom, 3).unwrap();
    check(Name::FillSeq, 4).unwrap();
    let few = check(Name::ReadRandom, 2).unwrap_err().to_string();
    assert!(few.contains("at least the 3 distinct keys"), "{few}");
    let mix = check(Name::YcsbA, 3).unwrap_err().to_string();
    assert!(mix.contains("`ycsb-a`"), "{mix}");
}

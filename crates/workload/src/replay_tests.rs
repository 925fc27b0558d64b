//! Replays on a map: the operations and counts of each access, and the faults that a replay detects.

use base::Error;

use super::*;
use crate::test_store::{Fault, TestStore};
use crate::trace::Position;

/// Accesses from a list, after a load phase.
struct Listed {
    load: Vec<Access>,
    run: Vec<Access>,
}

impl Listed {
    fn new(load: Vec<Access>, run: Vec<Access>) -> Self {
        let reversed = |mut list: Vec<Access>| {
            list.reverse();
            list
        };
        Self { load: reversed(load), run: reversed(run) }
    }
}

impl Trace for Listed {
    fn load(&mut self, access: &mut Access) -> Result<bool> {
        Ok(self.load.pop().map(|next| *access = next).is_some())
    }

    fn next(&mut self, access: &mut Access) -> Result<bool> {
        Ok(self.run.pop().map(|next| *access = next).is_some())
    }

    fn position(&self) -> Position {
        Position { done: 0, total: self.run.len() as u64 }
    }
}

fn access(op: Op, key: &str, value_bytes: Option<u64>) -> Access {
    Access { op, key: key.as_bytes().to_vec(), value_bytes }
}

fn value_len(store: &TestStore, key: &str) -> Option<usize> {
    let mut len = None;
    store.get(key.as_bytes(), &mut |value| len = Some(value.len())).unwrap();
    len
}

#[test]
fn each_access_does_its_operations_and_is_counted() {
    let store = TestStore::new(Fault::None);
    let run_accesses = vec![
        access(Op::GetOrPut, "a", Some(50)), // miss, put
        access(Op::GetOrPut, "a", Some(90)), // hit: stays as it is
        access(Op::GetOrPut, "b", None),     // miss, put with the default size
        access(Op::Put, "c", Some(0)),
        access(Op::Update, "c", Some(30)),
        access(Op::Get, "nothing", Some(9)), // miss, and stays one
        access(Op::Delete, "b", None),
        access(Op::Scan(10), "a", None),
        access(Op::Scan(10), "x", None),
    ];
    let mut trace = Listed::new(vec![access(Op::Put, "loaded", Some(5))], run_accesses);
    let options = Options { default_value_bytes: 11, sync: true, ..Options::default() };
    let report = run(&store, &mut trace, &options, &mut |_| {}).unwrap();
    assert_eq!((report.gets, report.puts, report.deletes, report.scans), (5, 4, 1, 2));
    let figures = &report.figures;
    assert_eq!((figures.ops, figures.found, figures.missing, figures.wrong), (9, 3, 4, 0));
    assert_eq!(value_len(&store, "a"), Some(50));
    assert_eq!(value_len(&store, "b"), None);
    assert_eq!(value_len(&store, "c"), Some(30));
    assert_eq!(value_len(&store, "loaded"), Some(5));
    assert_eq!((store.len(), store.synced(), store.work()), (3, 6, [2, 1, 0]));
    // Written: a 51, b 12, c 1 and 31, and the deleted key.
    assert_eq!(figures.written_bytes, 96);
    assert_eq!(report.hit_ratio.store, Some(3.0 / 7.0));
    let device = &figures.device;
    assert_eq!(device.by_purpose["log"].write_ops, 4, "the load phase is not measured");
}

#[test]
fn the_value_size_of_the_options_overrides_the_trace() {
    let store = TestStore::new(Fault::None);
    let run_accesses = vec![access(Op::Put, "a", Some(1 << 40)), access(Op::Put, "b", None)];
    let options = Options { value_bytes: Some(77), limit: Some(1), ..Options::default() };
    let report = run(&store, &mut Listed::new(vec![], run_accesses), &options, &mut |_| {});
    assert_eq!(report.unwrap().figures.ops, 1, "the limit ends the replay");
    assert_eq!((value_len(&store, "a"), value_len(&store, "b")), (Some(77), None));
}

#[test]
fn a_broken_store_counts_as_wrong() {
    let keys: Vec<String> = (0..1000).map(|number| format!("key {number}")).collect();
    let faulty = keys.iter().filter(|key| TestStore::is_faulty(key.as_bytes())).count() as u64;
    assert!(faulty > 20);
    for fault in [Fault::Neighbour, Fault::Flips, Fault::Cuts] {
        let store = TestStore::new(fault);
        let puts = keys.iter().map(|key| access(Op::Put, key, None)).collect();
        let gets = keys.iter().map(|key| access(Op::Get, key, None)).collect();
        let mut trace = Listed::new(puts, gets);
        let report = run(&store, &mut trace, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(report.figures.wrong, faulty, "{fault:?}");
    }
}

#[test]
fn refused_puts_are_counted_and_other_errors_end_the_replay() {
    let all = || (0..100).map(|number| access(Op::Put, &format!("{number}"), None)).collect();
    let outcome = |fault| {
        let store = TestStore::new(fault);
        run(&store, &mut Listed::new(vec![], all()), &Options::default(), &mut |_| {})
    };
    let report = outcome(Fault::Refuses).unwrap();
    assert!(report.refused > 0);
    assert_eq!(report.refused + report.puts, 100);
    assert_eq!(outcome(Fault::Fails).unwrap_err().kind(), ErrorKind::NoSpace);

    struct Torn;
    impl Trace for Torn {
        fn next(&mut self, _: &mut Access) -> Result<bool> {
            Err(Error::corrupt("trace record"))
        }
        fn position(&self) -> Position {
            Position::default()
        }
    }
    let store = TestStore::new(Fault::None);
    let error = run(&store, &mut Torn, &Options::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// Scripts parse these field names.
#[test]
fn the_report_has_the_promised_fields() {
    let store = TestStore::new(Fault::None);
    let run_accesses = vec![access(Op::GetOrPut, "a", None), access(Op::GetOrPut, "a", None)];
    let mut trace = Listed::new(vec![], run_accesses);
    let report = run(&store, &mut trace, &Options::default(), &mut |_| {}).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["bench"], "replay");
    assert_eq!(json["hit_ratio"]["store"], 0.5);
    assert_eq!(json["hits"]["flash"], 1);
    assert_eq!(json["ops"], 2);
    assert!(report.to_string().contains("50.00 %"), "{report}");
}

/// With a real trace on a store that evicts nothing, exactly the first access of each object misses.
#[test]
fn a_real_trace_misses_each_object_once() {
    let Some(data) = std::env::var_os("TERRACE_DATA").map(std::path::PathBuf::from) else {
        println!("skipped: set TERRACE_DATA to a folder with traces/ to run this test");
        return;
    };
    let path = data.join("traces/cloudPhysicsIO.oracleGeneral.bin");
    let mut trace = crate::trace::Format::OracleGeneral.open(&path).unwrap();
    let store = TestStore::new(Fault::None);
    let options = Options { value_bytes: Some(16), ..Options::default() };
    let report = run(&store, trace.as_mut(), &options, &mut |_| {}).unwrap();
    assert_eq!((report.gets, report.puts, store.len()), (113_872, 48_974, 48_974));
    assert_eq!((report.figures.missing, report.figures.wrong), (48_974, 0));
}

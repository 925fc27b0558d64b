//! Jobs on devices that fail: nothing is lost, nothing is left, nothing wrong is installed (I9).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "support is shared by test files")]

mod support;

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, ErrorKind, Result, Rng, TableId};
use bytes::Bytes;
use media::{Fault, Faulty, Freeze, Listing, Medium, MemoryMedium, OpKind, Purpose, Rule};
use support::*;
use table::Table;
use terrace_compact::job::Job;
use terrace_compact::{Env, Outcome, Run, run, verify};

/// Inputs on a device, and the job that merges them.
struct Script {
    inputs: MemoryMedium,
    job: Job,
    /// The outcome, and the files it names, of a run that nothing disturbed.
    outcome: Outcome,
    files: Vec<(String, Bytes)>,
}

impl Script {
    fn new() -> Self {
        let mut rng = Rng::new(11);
        let faulty = Arc::new(Faulty::new(1));
        let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
        let spec = ContentSpec {
            runs: 3,
            keys: 1500,
            entries: 900,
            tables: 2,
            value_bytes: 300,
            puts_only: false,
            disjoint: false,
        };
        let content = Content::random(&mut rng, &medium, &spec);
        let inputs = faulty.crash_image(1).unwrap();
        let mut job = content.job(&[700]);
        job.output.table_bytes_max = 16 << 10;
        let outcome = run(job.clone(), &env(&medium)).unwrap();
        assert!(outcome.tables.len() > 3, "{}", outcome.tables.len());
        Self { inputs, job, outcome, files: files(&medium) }
    }

    /// The inputs on a device of their own.
    fn device(&self, seed: u64) -> (Arc<Faulty>, Arc<dyn Medium>) {
        let faulty = Arc::new(Faulty::over(&self.inputs, seed).unwrap());
        let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
        (faulty, medium)
    }

    /// Checks that the inputs are as they were, and that the job still gives what it gives.
    fn goes_on(&self, medium: &Arc<dyn Medium>) {
        self.job.discard_outputs(&**medium).unwrap();
        let env = env(medium);
        let outcome = run(self.job.clone(), &env).unwrap();
        assert_eq!(outcome, self.outcome);
        verified(&self.job, &outcome, &env).unwrap();
        assert!(files(medium) == self.files);
    }
}

fn verified(job: &Job, outcome: &Outcome, env: &Env) -> Result<Vec<Arc<Table>>> {
    verify(job, outcome.clone(), env, &Account::unlimited("tables"))
}

fn outputs(medium: &Arc<dyn Medium>) -> Vec<u64> {
    ids(medium).into_iter().filter(|id| *id >= OUTPUTS).collect()
}

fn footer(medium: &dyn Medium, table: TableId) -> table::Footer {
    let file = medium.open(&table::file_name(table), media::Access::Direct).unwrap();
    let pages = file.size().unwrap() / PAGE_BYTES as u64;
    table::Footer::read(&*file, pages as u32).unwrap().0
}

/// Every operation of a job fails once, in every way that its caller is told of.
#[test]
fn any_operation_can_fail() {
    let script = Script::new();
    let faults = [
        (OpKind::Read, Fault::Io, ErrorKind::Corrupt),
        (OpKind::Write, Fault::Io, ErrorKind::Corrupt),
        (OpKind::Write, Fault::NoSpace, ErrorKind::NoSpace),
        (OpKind::Sync, Fault::Io, ErrorKind::Corrupt),
        (OpKind::Names, Fault::NoSpace, ErrorKind::NoSpace),
    ];
    for (on, fault, kind) in faults {
        let mut failed = 0;
        for operation in 0.. {
            let (faulty, medium) = script.device(operation);
            let env = env(&medium);
            // A read that fails is read again; of a table's end, the last two pages by themselves.
            let times = if on == OpKind::Read { 5 } else { 1 };
            faulty.inject(Rule::new(on, fault.clone()).after(operation).times(times)).unwrap();
            let result = run(script.job.clone(), &env);
            if faulty.struck() == 0 {
                assert_eq!(result.unwrap(), script.outcome);
                break;
            }
            // A job that needs no more names may still succeed.
            let error = result.expect_err("a failed operation");
            assert_eq!(error.kind(), kind, "{on:?} {operation}: {error}");
            let place = error.to_string();
            assert!(on == OpKind::Names || place.contains(".table"), "{place}");
            assert_eq!(outputs(&medium), [0; 0], "{on:?} {fault:?} {operation}: {error}");
            assert_eq!(env.account.used(), 0);
            faulty.heal();
            script.goes_on(&medium);
            failed += 1;
        }
        assert!(failed > 3, "{on:?} {fault:?}: {failed}");
    }
}

/// What the device claims to have written and has not is found before it is installed.
#[test]
fn silent_faults_of_writes_are_found_by_verifying() {
    let script = Script::new();
    let elsewhere = Fault::Misdirected { name: None, at: 0 };
    for fault in [Fault::Lost, Fault::Torn, Fault::Flip, elsewhere] {
        let mut struck = 0;
        for operation in 0.. {
            let (faulty, medium) = script.device(operation);
            let env = env(&medium);
            faulty.inject(Rule::new(OpKind::Write, fault.clone()).after(operation)).unwrap();
            let outcome = run(script.job.clone(), &env).unwrap();
            let found = verified(&script.job, &outcome, &env);
            if faulty.struck() == 0 {
                found.unwrap();
                break;
            }
            struck += 1;
            let unharmed = files(&medium) == script.files;
            assert_eq!(found.is_ok(), unharmed, "{fault:?} {operation}: {found:?}");
            faulty.heal();
            script.goes_on(&medium);
        }
        assert!(struck > 3, "{fault:?}");
    }
}

/// A bad page of an input fails the job, names the table, and harms nothing; one that has a copy is read
/// from that.
#[test]
fn a_damaged_input_is_told_and_blamed() {
    let script = Script::new();
    let mut rng = Rng::new(5);
    for piece in script.job.pieces() {
        for page in 0..piece.file_bytes / PAGE_BYTES as u64 {
            let (faulty, medium) = script.device(page);
            let at = page * PAGE_BYTES as u64 + rng.below(PAGE_BYTES as u64);
            let name = table::file_name(piece.id);
            let footer = footer(&*medium, piece.id);
            faulty.flip(&name, at, 1 << rng.below(8)).unwrap();
            if footer.twin(page as u32).is_some() {
                assert_eq!(run(script.job.clone(), &env(&medium)).unwrap(), script.outcome);
                continue;
            }
            let mut run = Run::new(script.job.clone(), &env(&medium)).unwrap();
            let error = loop {
                match run.step() {
                    Ok(None) => {}
                    Ok(Some(_)) => panic!("page {page} of {name} is never read"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(run.blame(), Some(piece.id), "{error}");
            let told = error.to_string();
            assert!(
                told.contains(&name) || told.contains(&format!("table {}", piece.id)),
                "{told}"
            );
            assert_eq!(outputs(&medium), [0; 0]);
        }
    }
}

/// The files a job was planned for are gone or others by the time it runs.
#[test]
fn inputs_that_changed_are_refused() {
    let script = Script::new();
    let (_, medium) = script.device(1);
    let refused = |job: &Job, kind| {
        let error = run(job.clone(), &env(&medium)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(".table"), "{error}");
        assert_eq!(outputs(&medium), [0; 0]);
    };
    let change = |change: fn(&mut terrace_compact::job::Input)| {
        let mut job = script.job.clone();
        change(&mut job.inputs[1].tables[0]);
        job
    };
    refused(&change(|input| input.digest ^= 1), ErrorKind::Corrupt);
    refused(&change(|input| input.file_bytes += 4096), ErrorKind::Corrupt);
    refused(&change(|input| input.id = TableId(99)), ErrorKind::Invalid);
    let other = Job { keyspace: base::KeyspaceId(9), ..script.job.clone() };
    refused(&other, ErrorKind::Corrupt);
    let mut unordered = script.job.clone();
    unordered.inputs[0].tables.swap(0, 1);
    refused(&unordered, ErrorKind::Corrupt);
    let gone = script.job.inputs[2].tables[0].id;
    medium.remove(&table::file_name(gone)).unwrap();
    refused(&script.job, ErrorKind::Invalid);
}

/// A full device fails the job and has its space back.
#[test]
fn a_full_device_has_its_space_back() {
    let script = Script::new();
    let used = |medium: &Arc<dyn Medium>| -> u64 {
        medium.list().unwrap().iter().map(|Listing { len, .. }| len).sum()
    };
    let written = script.outcome.bytes_written();
    for room in (0..written).step_by(PAGE_BYTES * 4) {
        let (faulty, medium) = script.device(room);
        let before = used(&medium);
        faulty.set_capacity(Some(before + room));
        let error = run(script.job.clone(), &env(&medium)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(used(&medium), before);
        faulty.set_capacity(None);
    }
}

/// The power goes at any moment: the inputs are whole, and the job can be run again. Once an outcome
/// is there, so are its files (I3).
#[test]
fn the_power_can_go_at_any_moment() {
    let script = Script::new();
    let (whole, medium) = script.device(0);
    let (syncs, changes) = (whole.syncs(), whole.changes());
    run(script.job.clone(), &env(&medium)).unwrap();
    let moments = (syncs..whole.syncs()).map(Freeze::AtSync);
    let moments = moments.chain((changes..whole.changes()).map(Freeze::AtChange));
    for (number, freeze) in moments.enumerate() {
        let (faulty, medium) = script.device(number as u64);
        faulty.freeze(freeze);
        run(script.job.clone(), &env(&medium)).unwrap();
        let image = faulty.crash_image(number as u64).unwrap();
        let after: Arc<dyn Medium> = Arc::new(image);
        script.goes_on(&after);
    }
    let (faulty, medium) = script.device(9);
    let outcome = run(script.job.clone(), &env(&medium)).unwrap();
    let image: Arc<dyn Medium> = Arc::new(faulty.crash_image(9).unwrap());
    verified(&script.job, &outcome, &env(&image)).unwrap();
}

/// Two workers have the same job: the second is refused its files, or does the same elsewhere, and
/// only one outcome is the one that is waited for.
#[test]
fn one_of_two_workers_of_a_job_is_believed() {
    let script = Script::new();
    let (_, medium) = script.device(1);
    let env = env(&medium);
    let mut first = Run::new(script.job.clone(), &env).unwrap();
    while outputs(&medium).is_empty() {
        assert!(first.step().unwrap().is_none());
    }
    // The same attempt twice: the second finds the name taken, and takes nothing from the first.
    let error = run(script.job.clone(), &env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // Given up, and given to another with ids of its own.
    let mut again = Job { epoch: 2, ..script.job.clone() };
    again.output.ids = TableId(OUTPUTS + 5000)..TableId(OUTPUTS + 6000);
    let second = run(again.clone(), &env).unwrap();
    let late = loop {
        if let Some(outcome) = first.step().unwrap() {
            break outcome;
        }
    };
    assert_eq!(late, script.outcome);
    assert_eq!(verified(&again, &late, &env).unwrap_err().kind(), ErrorKind::Invalid);
    verified(&again, &second, &env).unwrap();
    assert_eq!(second.counts, late.counts);
    // What the late one wrote goes, and nothing else does.
    script.job.discard_outputs(&*medium).unwrap();
    verified(&again, &second, &env).unwrap();
}

/// An answer that makes no sense: what was written for it goes, and the job runs here.
#[test]
fn a_garbled_answer_is_refused_and_its_files_go() {
    let script = Script::new();
    let (_, medium) = script.device(1);
    let answer = run(script.job.clone(), &env(&medium)).unwrap().encode();
    assert_eq!(Outcome::decode(&answer).unwrap(), script.outcome);
    let mut garbled = answer.clone();
    garbled[answer.len() / 2] ^= 0x10;
    for bad in [&[][..], &answer[..answer.len() / 2], &garbled] {
        assert_eq!(Outcome::decode(bad).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    script.job.discard_outputs(&*medium).unwrap();
    assert_eq!(outputs(&medium), [0; 0]);
    script.goes_on(&medium);
}

/// Reads of a job are known to the device as such.
#[test]
fn reads_and_writes_are_of_the_compaction_class() {
    let script = Script::new();
    for (on, purpose) in [(OpKind::Read, Purpose::Data), (OpKind::Write, Purpose::Flush)] {
        let (faulty, medium) = script.device(1);
        faulty.inject(Rule::new(on, Fault::Io).purpose(purpose)).unwrap();
        run(script.job.clone(), &env(&medium)).unwrap();
        assert_eq!(faulty.struck(), 0);
    }
}

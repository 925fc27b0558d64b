//! Jobs on failing devices: inputs survive, no output remains, and no wrong output is installed (I9).

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
    /// The outcome and the files of an undisturbed run.
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

    /// A fresh device with the inputs.
    fn device(&self, seed: u64) -> (Arc<Faulty>, Arc<dyn Medium>) {
        let faulty = Arc::new(Faulty::over(&self.inputs, seed).unwrap());
        let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
        (faulty, medium)
    }

    /// Checks that the inputs are unchanged: the job still gives the same outcome and files.
    fn check_unchanged(&self, medium: &Arc<dyn Medium>) {
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

/// Fails each operation of a job once, with every fault that is reported to the caller.
#[test] // I9
fn a_job_survives_a_failure_of_any_operation() {
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
            // Reads are repeated, and the end of a table is read again page by page: fail all of these.
            let times = if on == OpKind::Read { 5 } else { 1 };
            faulty.inject(Rule::new(on, fault.clone()).after(operation).times(times)).unwrap();
            let result = run(script.job.clone(), &env);
            if faulty.struck() == 0 {
                assert_eq!(result.unwrap(), script.outcome);
                break;
            }
            // A job whose remaining operations do not use names may still succeed.
            let error = result.expect_err("a failed operation");
            assert_eq!(error.kind(), kind, "{on:?} {operation}: {error}");
            let place = error.to_string();
            assert!(on == OpKind::Names || place.contains(".table"), "{place}");
            assert_eq!(outputs(&medium), [0; 0], "{on:?} {fault:?} {operation}: {error}");
            assert_eq!(env.account.used(), 0);
            faulty.heal();
            script.check_unchanged(&medium);
            failed += 1;
        }
        assert!(failed > 3, "{on:?} {fault:?}: {failed}");
    }
}

/// Writes that the device loses or garbles silently are found before the outputs are installed.
#[test] // I9
fn verification_finds_silent_write_faults() {
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
            let is_unchanged = files(&medium) == script.files;
            assert_eq!(found.is_ok(), is_unchanged, "{fault:?} {operation}: {found:?}");
            faulty.heal();
            script.check_unchanged(&medium);
        }
        assert!(struck > 3, "{fault:?}");
    }
}

/// A damaged input page fails the job and names the table; a page with a copy is read from the copy.
#[test]
fn a_damaged_input_is_named() {
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
            let text = error.to_string();
            assert!(
                text.contains(&name) || text.contains(&format!("table {}", piece.id)),
                "{text}"
            );
            assert_eq!(outputs(&medium), [0; 0]);
        }
    }
}

/// An input that was removed or replaced after planning is refused.
#[test]
fn changed_inputs_are_refused() {
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

/// A job that fills the device fails and frees its outputs.
#[test]
fn a_job_that_fills_the_device_frees_its_outputs() {
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

/// Power fails at any point: the inputs are unchanged and the job can be run again. Once there is an outcome,
/// its files are durable (I3).
#[test] // I3, I9
fn a_job_survives_a_power_cut_at_any_point() {
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
        script.check_unchanged(&after);
    }
    let (faulty, medium) = script.device(9);
    let outcome = run(script.job.clone(), &env(&medium)).unwrap();
    let image: Arc<dyn Medium> = Arc::new(faulty.crash_image(9).unwrap());
    verified(&script.job, &outcome, &env(&image)).unwrap();
}

/// Two workers run the same job: the same attempt finds its file names taken; another attempt writes other
/// files, and only its outcome is accepted.
#[test] // I9
fn only_one_of_two_workers_outcomes_is_accepted() {
    let script = Script::new();
    let (_, medium) = script.device(1);
    let env = env(&medium);
    let mut first = Run::new(script.job.clone(), &env).unwrap();
    while outputs(&medium).is_empty() {
        assert!(first.step().unwrap().is_none());
    }
    // The same attempt again: its file names are taken, and the first attempt's files stay.
    let error = run(script.job.clone(), &env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // The job is given to another worker with other ids.
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
    // Removing the late attempt's files leaves the other outputs alone.
    script.job.discard_outputs(&*medium).unwrap();
    verified(&again, &second, &env).unwrap();
}

/// A garbled outcome is refused, its files are removed, and the job runs locally.
#[test]
fn a_garbled_outcome_is_refused_and_its_files_removed() {
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
    script.check_unchanged(&medium);
}

/// Reads and writes of a job carry the compaction purpose.
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

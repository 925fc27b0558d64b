//! A job runs in another process, which gets only the encoded job and a directory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "support is shared by test files")]

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use base::{Account, DictionaryId, Rng};
use media::{FileMedium, FileOptions, Medium};
use support::*;
use terrace_compact::job::Job;
use terrace_compact::{KeyRange, Outcome, Run, Verification, run, verify};

/// The worker's directory; not set in the parent.
const DIRECTORY: &str = "TERRACE_WORKER_DIRECTORY";
/// The worker aborts after it wrote this many tables.
const DIE_AFTER: &str = "TERRACE_WORKER_DIE_AFTER";
/// Precedes the outcome on standard output, to separate it from the test harness's output.
const ANSWER: &[u8] = b"outcome_of:";

fn medium(directory: &Path) -> Arc<dyn Medium> {
    Arc::new(FileMedium::open(directory, FileOptions::default()).unwrap())
}

/// The worker process: does nothing unless it is started as one.
#[test]
fn worker() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let medium = medium(Path::new(&directory));
    let most = std::env::var(DIE_AFTER).ok().and_then(|tables| tables.parse().ok());
    let mut message = Vec::new();
    std::io::stdin().read_to_end(&mut message).unwrap();
    let work = || -> base::Result<Outcome> {
        let mut run = Run::new(Job::decode(&message)?, &env(&medium))?;
        loop {
            if let Some(outcome) = run.step()? {
                return Ok(outcome);
            }
            let written = ids(&medium).into_iter().filter(|id| *id >= OUTPUTS).count();
            if most.is_some_and(|most| written >= most) {
                std::process::abort();
            }
        }
    };
    match work() {
        Ok(outcome) => {
            let mut out = std::io::stdout();
            out.write_all(&[ANSWER, &outcome.encode()].concat()).unwrap();
            out.flush().unwrap();
            std::process::exit(0);
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3);
        }
    }
}

fn spawn(directory: &Path, message: &[u8], die_after: Option<u64>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker", "--nocapture"]).env(DIRECTORY, directory);
    if let Some(tables) = die_after {
        command.env(DIE_AFTER, tables.to_string());
    }
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // A worker that dies early does not read its whole input.
    let _ = child.stdin.take().unwrap().write_all(message);
    child.wait_with_output().unwrap()
}

fn outcome_of(output: &Output) -> Outcome {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output_text = &output.stdout;
    let at = output_text.windows(ANSWER.len()).position(|window| window == ANSWER).unwrap();
    Outcome::decode(&output_text[at + ANSWER.len()..]).unwrap()
}

fn fixture() -> (tempfile::TempDir, Arc<dyn Medium>, Job) {
    let directory = tempfile::tempdir().unwrap();
    let medium = medium(directory.path());
    let mut rng = Rng::new(21);
    let spec = ContentSpec {
        runs: 4,
        keys: 5000,
        entries: 3000,
        tables: 2,
        value_bytes: 300,
        puts_only: false,
        disjoint: false,
    };
    let job = Content::random(&mut rng, &medium, &spec).job(&[5000]);
    (directory, medium, job)
}

#[test] // I9
fn another_process_writes_the_same_bytes() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let outcome = outcome_of(&spawn(directory.path(), &job.encode(), None));
    assert!(outcome.tables.len() > 4);
    verify(&job, outcome.clone(), &env(&medium), &Account::unlimited("tables")).unwrap();
    let theirs = files(&medium);
    job.discard_outputs(&*medium).unwrap();
    assert!(files(&medium) == inputs);
    assert_eq!(run(job, &env(&medium)).unwrap(), outcome);
    assert!(files(&medium) == theirs);
}

/// The job carries its hot ranges: the worker reports the pages that hold them, and the verification passes
/// these pages on.
#[test]
fn another_process_reports_hot_pages() {
    let (directory, medium, job) = fixture();
    let plain = outcome_of(&spawn(directory.path(), &job.encode(), None));
    assert!(plain.tables.iter().all(|table| table.hot.is_empty()));
    job.discard_outputs(&*medium).unwrap();
    let keys: Vec<Vec<u8>> =
        plain.tables.iter().map(|it| it.properties.first_key.clone()).collect();
    let hot = [1, 3].map(|at| KeyRange::through(&keys[at], &keys[at]));
    let hot = [&hot[..], &[KeyRange::new(&keys[4], None)]].concat();
    let job = Job { hot: hot.clone(), ..job };
    let outcome = outcome_of(&spawn(directory.path(), &job.encode(), None));
    let mut verification =
        Verification::new(&job, outcome.clone(), &env(&medium), &Account::unlimited("tables"))
            .unwrap();
    let mut reported = Vec::new();
    let tables = loop {
        let step = verification.step(&mut |page| {
            if page.is_hot {
                reported.push((page.file, page.number));
            }
        });
        if let Some(tables) = step.unwrap() {
            break tables;
        }
    };
    let mut expected = Vec::new();
    for (table, summary) in tables.iter().zip(&outcome.tables) {
        let digest = summary.digest;
        for page in summary.hot.iter().flat_map(Clone::clone) {
            expected.push((digest, page));
        }
        for partition in table.partitions_in(&table::Bounds::ALL).unwrap() {
            let partition = table.partition(partition).unwrap();
            let is_hot = |page: u32| {
                let (first, last) = table.keys_on(page).unwrap().unwrap();
                hot.iter().any(|range| range.overlaps(&KeyRange::through(&first, &last)))
            };
            for page in partition.first_page..=partition.meta_page {
                let is_reported = reported.contains(&(digest, page));
                // `keys_on` gives the separators around the page's keys, so its range is wider.
                assert!(!is_reported || is_hot(page), "page {page} of {}", table.id());
            }
        }
    }
    assert_eq!(reported, expected);
    let all: u32 = outcome.tables[4..].iter().map(|table| table.pages).sum();
    assert!(reported.len() > all as usize / 2 && outcome.tables[0].hot.is_empty());
    assert_eq!(outcome.tables[1].hot[0], 0..1);
    job.discard_outputs(&*medium).unwrap();
    assert_eq!(run(job, &env(&medium)).unwrap(), outcome);
}

/// A worker is killed after some tables: its files are removed, and the job runs again.
#[test] // I9
fn a_dead_workers_job_is_run_again() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let tables = outcome_of(&spawn(directory.path(), &job.encode(), None)).tables.len() as u64;
    for died_after in [1, tables / 2, tables] {
        job.discard_outputs(&*medium).unwrap();
        let output = spawn(directory.path(), &job.encode(), Some(died_after));
        assert!(!output.status.success());
        let left = ids(&medium).into_iter().filter(|id| *id >= OUTPUTS).count() as u64;
        assert!(left >= died_after);
        // With the same ids, the second worker finds the files and stops.
        let output = spawn(directory.path(), &job.encode(), None);
        assert_eq!(output.status.code(), Some(3));
        job.discard_outputs(&*medium).unwrap();
        assert!(files(&medium) == inputs);
        let outcome = outcome_of(&spawn(directory.path(), &job.encode(), None));
        verify(&job, outcome, &env(&medium), &Account::unlimited("tables")).unwrap();
    }
}

/// A worker refuses a job before it writes anything.
#[test]
fn a_worker_refuses_a_job_that_it_cannot_run() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let refused = |message: &[u8], why: &str| {
        let output = spawn(directory.path(), message, None);
        assert_eq!(output.status.code(), Some(3));
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output_text.contains(why), "{output_text}");
        assert!(files(&medium) == inputs);
    };
    let operator = Job { operator: Some("add.2".to_owned()), ..job.clone() };
    refused(&operator.encode(), "`add.2`");
    let mut dictionary = job.clone();
    dictionary.output.codec = base::Codec::Zstd;
    dictionary.output.dictionary = Some(DictionaryId(9));
    refused(&dictionary.encode(), "dictionary");
    let mut newer = job.encode();
    newer[8] = 9;
    refused(&newer, "job: unknown version: expected 1 to 3, got 9");
    refused(&job.encode()[1..], "job");
}

//! A job runs in another process that is given its bytes and a directory, and nothing else.

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

/// The child's directory; absent in the parent.
const DIRECTORY: &str = "TERRACE_WORKER_DIRECTORY";
/// The child dies once it has written so many tables.
const DIE_AFTER: &str = "TERRACE_WORKER_DIE_AFTER";
/// Said before the answer, to be told from what the test harness says.
const ANSWER: &[u8] = b"answer:";

fn medium(directory: &Path) -> Arc<dyn Medium> {
    Arc::new(FileMedium::open(directory, FileOptions::default()).unwrap())
}

/// The worker: a test that only does something where it is started as one.
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
    // A child that dies early does not read it all.
    let _ = child.stdin.take().unwrap().write_all(message);
    child.wait_with_output().unwrap()
}

fn answer(output: &Output) -> Outcome {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = &output.stdout;
    let at = said.windows(ANSWER.len()).position(|window| window == ANSWER).unwrap();
    Outcome::decode(&said[at + ANSWER.len()..]).unwrap()
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

#[test]
fn another_process_makes_the_same_bytes() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let outcome = answer(&spawn(directory.path(), &job.encode(), None));
    assert!(outcome.tables.len() > 4);
    verify(&job, outcome.clone(), &env(&medium), &Account::unlimited("tables")).unwrap();
    let theirs = files(&medium);
    job.discard_outputs(&*medium).unwrap();
    assert!(files(&medium) == inputs);
    assert_eq!(run(job, &env(&medium)).unwrap(), outcome);
    assert!(files(&medium) == theirs);
}

/// The job bears the keys that were read much by value: whoever runs it says which pages hold them, and
/// whoever verifies what came of it is given these.
#[test]
fn another_process_says_which_pages_are_hot() {
    let (directory, medium, job) = fixture();
    let plain = answer(&spawn(directory.path(), &job.encode(), None));
    assert!(plain.tables.iter().all(|table| table.hot.is_empty()));
    job.discard_outputs(&*medium).unwrap();
    let keys: Vec<Vec<u8>> =
        plain.tables.iter().map(|it| it.properties.first_key.clone()).collect();
    let hot = [1, 3].map(|at| KeyRange::through(&keys[at], &keys[at]));
    let hot = [&hot[..], &[KeyRange::new(&keys[4], None)]].concat();
    let job = Job { hot: hot.clone(), ..job };
    let outcome = answer(&spawn(directory.path(), &job.encode(), None));
    let mut verification =
        Verification::new(&job, outcome.clone(), &env(&medium), &Account::unlimited("tables"))
            .unwrap();
    let mut told = Vec::new();
    let tables = loop {
        let step = verification.step(&mut |page| told.push((page.file, page.number)));
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
                let is_told = told.contains(&(digest, page));
                // What lies on a page is told here by its separators, which are wider.
                assert!(!is_told || is_hot(page), "page {page} of {}", table.id());
            }
        }
    }
    assert_eq!(told, expected);
    let all: u32 = outcome.tables[4..].iter().map(|table| table.pages).sum();
    assert!(told.len() > all as usize / 2 && outcome.tables[0].hot.is_empty());
    assert_eq!(outcome.tables[1].hot[0], 0..1);
    job.discard_outputs(&*medium).unwrap();
    assert_eq!(run(job, &env(&medium)).unwrap(), outcome);
}

/// Killed after some of its tables: what it left goes, and the job runs again, here or there.
#[test]
fn a_worker_that_died_is_replaced() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let tables = answer(&spawn(directory.path(), &job.encode(), None)).tables.len() as u64;
    for died_after in [1, tables / 2, tables] {
        job.discard_outputs(&*medium).unwrap();
        let output = spawn(directory.path(), &job.encode(), Some(died_after));
        assert!(!output.status.success());
        let left = ids(&medium).into_iter().filter(|id| *id >= OUTPUTS).count() as u64;
        assert!(left >= died_after);
        // With the same ids it finds them taken; nothing is written twice.
        let output = spawn(directory.path(), &job.encode(), None);
        assert_eq!(output.status.code(), Some(3));
        job.discard_outputs(&*medium).unwrap();
        assert!(files(&medium) == inputs);
        let outcome = answer(&spawn(directory.path(), &job.encode(), None));
        verify(&job, outcome, &env(&medium), &Account::unlimited("tables")).unwrap();
    }
}

/// What a worker lacks it refuses before it writes.
#[test]
fn a_worker_refuses_what_it_cannot_do() {
    let (directory, medium, job) = fixture();
    let inputs = files(&medium);
    let refused = |message: &[u8], why: &str| {
        let output = spawn(directory.path(), message, None);
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{said}");
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
    refused(&newer, "job: another version: expected 1 to 2, got 9");
    refused(&job.encode()[1..], "job");
}

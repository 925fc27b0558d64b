//! The log on real files: appended records survive the death of the process at any time and at any
//! durability.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use media::{FileMedium, FileOptions};

use super::*;

const DIRECTORY: &str = "TERRACE_LOG_TEST_DIRECTORY";

fn files(directory: &std::path::Path) -> Arc<dyn Medium> {
    Arc::new(FileMedium::open(directory, FileOptions::default()).unwrap())
}

fn body(at: u64) -> Vec<u8> {
    let mut body = vec![at as u8; (at * 37 % 5000) as usize];
    body.extend_from_slice(&at.to_le_bytes());
    body
}

/// The child process of the test below: appends until it is killed, and prints the acknowledged seqnos.
#[test]
fn appends_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let (log, _, replayed) = open(&files(directory.as_ref())).unwrap();
    let mut next = replayed.len() as u64 + 1;
    loop {
        assert_eq!(append(&log, 1, 1, &body(next)).unwrap().get(), next);
        println!("acknowledged {next}");
        next += 1;
    }
}

#[test]
fn the_death_of_the_process_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for life in 1..=4u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::process::appends_until_killed", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = || lines.next()?.ok();
        let before = acknowledged;
        while acknowledged < before + 50 * life {
            let line = said().expect("the child appends until it is killed");
            acknowledged = line
                .strip_prefix("acknowledged ")
                .map_or(acknowledged, |number| number.parse().unwrap());
        }
        child.kill().unwrap();
        // Output from before its death counts too. The last line may be cut.
        while let Some(line) = said() {
            let number = line.strip_prefix("acknowledged ").and_then(|number| number.parse().ok());
            acknowledged = acknowledged.max(number.unwrap_or(0));
        }
        child.wait().unwrap();
        let (_, _, replayed) = open(&files(directory.path())).unwrap();
        let last = replayed.len() as u64;
        assert!(last >= acknowledged, "life {life}: {acknowledged} acknowledged, {last} replayed");
        assert!(
            replayed.iter().zip(1..).all(|((seqno, got), at)| *seqno == at && *got == body(at))
        );
        acknowledged = last;
    }
}

#[test]
fn segments_of_files_are_made_freed_and_cut() {
    let directory = tempfile::tempdir().unwrap();
    let medium = files(directory.path());
    let (log, ..) = open(&medium).unwrap();
    for at in 1..=60 {
        append(&log, 1, 1, &body(at)).unwrap();
        log.prepare(1).unwrap();
    }
    log.sync(log.last()).unwrap();
    append(&log, 2, 1, &vec![9; 100_000]).unwrap();
    log.rotate().unwrap();
    let cut = medium.list().unwrap().into_iter().find(|file| file.len > 100_000).unwrap();
    assert!(cut.len < 120_000, "{cut:?}");
    log.flushed(KeyspaceId(1), Seqno::new(61));
    assert!(free(&log) >= 3);
    drop(log);
    let (_, _, replayed) = open_with(&medium, options(), &|keyspace| {
        Some(Seqno::new(if keyspace == KeyspaceId(1) { 61 } else { 0 }))
    })
    .unwrap();
    assert!(replayed == [(61, vec![9; 100_000])], "{} replayed", replayed.len());
}

//! Verification of outcomes.

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
use base::{Account, Error, ErrorKind, HashKey, KeyForm, Result, Rng, TableId};
use media::{Access, Buf, Medium, MemoryMedium, Purpose};
use support::*;
use table::{Layout, Table};
use terrace_compact::job::Job;
use terrace_compact::{Env, KeyRange, Outcome, Verification, run, verify};

fn verified(job: &Job, outcome: &Outcome, env: &Env) -> Result<Vec<Arc<Table>>> {
    verify(job, outcome.clone(), env, &Account::unlimited("tables"))
}

fn fixture(seed: u64, value_bytes: u64, puts_only: bool) -> (Arc<dyn Medium>, Env, Content) {
    let mut rng = Rng::new(seed);
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 3,
        keys: 4000,
        entries: 3000,
        tables: 2,
        value_bytes,
        puts_only,
        disjoint: false,
    };
    let content = Content::random(&mut rng, &medium, &spec);
    let env = env(&medium);
    (medium, env, content)
}

#[test]
fn a_flipped_bit_in_any_page_is_found() {
    let (medium, env, content) = fixture(1, 200, false);
    let job = content.job(&[]);
    let outcome = run(job.clone(), &env).unwrap();
    assert_eq!(verified(&job, &outcome, &env).unwrap().len(), outcome.tables.len());
    let mut rng = Rng::new(2);
    for summary in &outcome.tables {
        let file = medium.open(&table::file_name(summary.table), Access::Direct).unwrap();
        for page in 0..u64::from(summary.pages) {
            let at = page * PAGE_BYTES as u64;
            let flip = |byte: usize, bit: u64| {
                let (mut buf, result) = file.read(at, Buf::pages(1), Purpose::Scrub);
                result.unwrap();
                buf[byte] ^= 1 << bit;
                file.write(at, buf, Purpose::Scrub).1.unwrap();
            };
            let (byte, bit) = (rng.below(PAGE_BYTES as u64) as usize, rng.below(8));
            flip(byte, bit);
            let error = verified(&job, &outcome, &env).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&table::file_name(summary.table)), "{error}");
            flip(byte, bit);
        }
    }
    assert!(verified(&job, &outcome, &env).is_ok());
}

/// Outputs with the hash key of another keyspace, or with another layout: their keys would not be found.
#[test]
fn an_output_with_another_form_of_keys_or_layout_is_refused() {
    let (_, env, content) = fixture(5, 200, true);
    let job = content.job(&[]);
    let outcome = run(job.clone(), &env).unwrap();
    let verified = |job: &Job, form: KeyForm| {
        let account = Account::unlimited("tables");
        let started = Verification::new(job, outcome.clone(), &env, &account).unwrap();
        let mut verification = started.keys_are(form);
        loop {
            if let Some(tables) = verification.step(&mut |_| {})? {
                return Ok(tables.len());
            }
        }
    };
    assert_eq!(verified(&job, KeyForm::Plain).unwrap(), outcome.tables.len());
    let hashed = KeyForm::Hashed(HashKey::new([7; HashKey::BYTES]));
    let mut binned = job.clone();
    binned.output.layout = Layout::bins(1 << 20, b"", None);
    let (other, plain) = (verified(&job, hashed), verified(&binned, KeyForm::Plain));
    for error in [other.unwrap_err(), plain.unwrap_err()] {
        let error: Error = error;
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("form of keys"), "{error}");
    }
}

#[test]
fn an_outcome_that_does_not_match_the_job_is_refused() {
    let (_, env, content) = fixture(3, 200, true);
    let job = content.job(&[]);
    let outcome = run(job.clone(), &env).unwrap();
    assert!(outcome.tables.len() > 3);
    // A late outcome, or one of a worker that was given up.
    for other in [Job { epoch: 2, ..job.clone() }, Job { id: 8, ..job.clone() }] {
        assert_eq!(verified(&other, &outcome, &env).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let narrow = KeyRange::new(&key(5), Some(&key(3000)));
    let mut foreign = job.clone();
    foreign.output.ids.end = TableId(OUTPUTS + 1);
    for other in [Job { bounds: narrow, ..job.clone() }, foreign] {
        assert_eq!(verified(&other, &outcome, &env).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let change = |change: fn(&mut Outcome)| {
        let mut changed = outcome.clone();
        change(&mut changed);
        let error = verified(&job, &changed, &env).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    };
    change(|it| it.counts.read += 1);
    change(|it| it.counts.merged = u64::MAX);
    change(|it| drop(it.tables.remove(1)));
    change(|it| it.tables.swap(0, 1));
    change(|it| it.tables[0].digest ^= 1);
    change(|it| it.tables[0].file_bytes += PAGE_BYTES as u64);
    change(|it| it.tables[0].properties.deletes += 1);
    let stated = |change: fn(&mut Outcome), what: &str| {
        let mut changed = outcome.clone();
        change(&mut changed);
        let error = verified(&job, &changed, &env).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    stated(|it| it.tables[0].properties.seqno_min = base::Seqno::MAX, "seqnos of a table");
    stated(
        |it| {
            it.counts.kept -= it.tables[0].properties.entries;
            it.counts.superseded += it.tables[0].properties.entries;
            it.tables[0].properties.entries = 0;
            it.tables[0].properties.range_deletes = 0;
        },
        "entries of a table",
    );
    change(|it| {
        let twice = it.tables[0].clone();
        it.counts.kept += twice.properties.entries;
        it.counts.read += twice.properties.entries;
        it.tables.insert(0, twice);
    });
}

/// A sample of the reads: it costs a fraction, it finds nothing wrong with good outputs, it always finds
/// damage in a file's first read, and other damage only if it happens to read it. All reads find all.
#[test]
fn a_sample_reads_a_fraction_and_finds_the_damage_that_it_reads() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ContentSpec {
        runs: 2,
        keys: 40_000,
        entries: 12_000,
        tables: 1,
        value_bytes: 1500,
        puts_only: true,
        disjoint: false,
    };
    let content = Content::random(&mut Rng::new(7), &medium, &spec);
    let env = env(&medium);
    let mut job = content.job(&[]);
    job.output.table_bytes_max = 64 << 20;
    let outcome = run(job.clone(), &env).unwrap();
    let pages: u64 = outcome.tables.iter().map(|it| u64::from(it.pages)).sum();
    assert!(pages > 1000, "{pages}");
    let verified = |seed: Option<u64>| {
        let account = Account::unlimited("tables");
        let mut verification = Verification::new(&job, outcome.clone(), &env, &account).unwrap();
        if let Some(seed) = seed {
            verification = verification.sampling(seed);
        }
        while verification.step(&mut |_| {})?.is_none() {}
        Ok::<_, Error>(verification.bytes_read())
    };
    let all = verified(None).unwrap();
    let some = (0..20).map(|seed| verified(Some(seed)).unwrap()).max().unwrap();
    assert!(some > 0 && some < all / 2, "{some} of {all}");
    let longest = outcome.tables.iter().max_by_key(|it| it.pages).unwrap();
    let file = medium.open(&table::file_name(longest.table), Access::Direct).unwrap();
    let flip = |page: u64| {
        let at = page * PAGE_BYTES as u64;
        let (mut buf, result) = file.read(at, Buf::pages(1), Purpose::Scrub);
        result.unwrap();
        buf[100] ^= 1;
        file.write(at, buf, Purpose::Scrub).1.unwrap();
    };
    let found = |page: u64, seeds: u64| {
        flip(page);
        let all = verified(None);
        let some = (0..seeds).filter(|seed| verified(Some(*seed)).is_err()).count() as u64;
        flip(page);
        assert_eq!(all.unwrap_err().kind(), ErrorKind::Corrupt);
        some
    };
    assert_eq!(found(0, 10), 10);
    // In the middle: one seed in 64.
    let middle = found(u64::from(longest.pages) / 2, 600);
    assert!((1..60).contains(&middle), "{middle} of 600 seeds");
}

//! Encoding of jobs and outcomes.

use base::{ErrorKind, Rng, hash64};
use table::{Properties, Summary, ValuesSummary};

use super::*;
use crate::{EntrySums, Outcome, VersionCounts};

/// The bytes of a golden file: hexadecimal words and `#` comments.
fn golden(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: String = lines.flat_map(str::split_whitespace).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn job() -> Job {
    let input = |id: u64, seqno: Option<u64>, bounds| Input {
        id: TableId(id),
        file_bytes: 8192,
        digest: 0x1111_1111_1111_1111 * id,
        bounds,
        seqno: seqno.map(Seqno::new),
    };
    Job {
        id: 7,
        epoch: 2,
        part: 1,
        store: StoreId(0x0102),
        keyspace: KeyspaceId(3),
        inputs: vec![
            InputRun { tables: vec![input(9, Some(300), KeyRange::new(b"a", Some(b"c")))] },
            InputRun {
                tables: vec![
                    input(4, None, KeyRange::all()),
                    input(5, None, KeyRange::new(b"m", None)),
                ],
            },
        ],
        bounds: KeyRange::new(b"a", Some(b"z")),
        horizon: Horizon::new([100, 356].map(Seqno::new).to_vec()),
        now_ms: 1_700_000_000_000,
        older: vec![KeyRange::new(b"k", Some(b"l"))],
        output: Output {
            codec: Codec::Zstd,
            level: -3,
            dictionary: Some(DictionaryId(2)),
            filter_bits: 8,
            layout: Layout::Sorted,
            table_bytes_max: 64 << 20,
            ids: TableId(16)..TableId(32),
        },
        operator: Some("add.1".to_owned()),
        hot: vec![KeyRange::new(b"b", None)],
        values: ValueRules::default(),
    }
}

fn outcome() -> Outcome {
    let properties = Properties {
        first_key: b"a".to_vec(),
        last_key: b"b".to_vec(),
        entries: 2,
        ..Properties::default()
    };
    let digest = 0x2222_2222_2222_2222;
    let (table, file_bytes) = (TableId(16), 16384);
    Outcome {
        job: 7,
        epoch: 2,
        part: 1,
        tables: vec![Summary { table, file_bytes, pages: 4, digest, properties, hot: Vec::new() }],
        counts: VersionCounts {
            read: 300,
            kept: 2,
            superseded: 200,
            range_deleted: 50,
            deleted: 30,
            expired: 10,
            merged: 8,
            evicted: 0,
        },
        values: None,
        sums: None,
        bytes_read: 24576,
        pages_passed: 1,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Golden bytes: they never change; a new form gets a new version.
#[test]
fn job_and_outcome_have_their_golden_bytes() {
    let (job_bytes, outcome_bytes) = (job().encode(), outcome().encode());
    assert_eq!(hex(&job_bytes), hex(&golden(include_str!("../../golden/job.hex"))));
    assert_eq!(hex(&outcome_bytes), hex(&golden(include_str!("../../golden/outcome.hex"))));
    assert_eq!(Job::decode(&job_bytes).unwrap(), job());
    assert_eq!(Outcome::decode(&outcome_bytes).unwrap(), outcome());
}

/// A job with value rules, which is encoded as version 2.
fn job_2() -> Job {
    let values = ValueRules {
        bytes_min: 16 << 10,
        ids: TableId(32)..TableId(33),
        collect: vec![TableId(6), TableId(8)],
    };
    Job { values, ..job() }
}

/// A job for tables with bins, which is encoded as version 3.
fn job_3() -> Job {
    let mut job = job_2();
    job.output.layout = Layout::decode(21).unwrap();
    job
}

/// As [`job_and_outcome_have_their_golden_bytes`], job version 3 with and without value rules.
#[test]
fn job_of_version_3_has_its_golden_bytes() {
    let bytes = job_3().encode();
    assert_eq!(hex(&bytes), hex(&golden(include_str!("../../golden/job-3.hex"))));
    assert_eq!(Job::decode(&bytes).unwrap(), job_3());
    let plain = Job { values: ValueRules::default(), ..job_3() };
    assert_eq!(Job::decode(&plain.encode()).unwrap(), plain);
    let layout_at = bytes.len() - 9;
    for (layout, is_known) in [(56, true), (57, false), (255, false)] {
        let mut changed = bytes.clone();
        changed[layout_at] = layout;
        assert_eq!(Job::decode(&sealed(changed)).is_ok(), is_known, "{layout}");
    }
}

/// An outcome with a value file, which is encoded as version 2.
fn outcome_2() -> Outcome {
    let (file, file_bytes, values, value_bytes) = (TableId(32), 40960, 2, 34000);
    let digest = 0x3333_3333_3333_3333;
    let values = ValuesSummary { file, file_bytes, values, value_bytes, digest };
    Outcome { values: Some(values), ..outcome() }
}

/// As [`job_and_outcome_have_their_golden_bytes`], version 2.
#[test]
fn job_and_outcome_of_version_2_have_their_golden_bytes() {
    let (job_bytes, outcome_bytes) = (job_2().encode(), outcome_2().encode());
    assert_eq!(hex(&job_bytes), hex(&golden(include_str!("../../golden/job-2.hex"))));
    assert_eq!(hex(&outcome_bytes), hex(&golden(include_str!("../../golden/outcome-2.hex"))));
    assert_eq!(Job::decode(&job_bytes).unwrap(), job_2());
    assert_eq!(Outcome::decode(&outcome_bytes).unwrap(), outcome_2());
}

/// An outcome with hot pages, which is encoded as version 3.
fn outcome_3() -> Outcome {
    let mut outcome = outcome_2();
    outcome.tables[0].hot = vec![0..1, 2..4];
    outcome
}

/// As [`job_and_outcome_have_their_golden_bytes`], outcome version 3 with and without a value file.
#[test]
fn outcome_of_version_3_has_its_golden_bytes() {
    let bytes = outcome_3().encode();
    assert_eq!(hex(&bytes), hex(&golden(include_str!("../../golden/outcome-3.hex"))));
    assert_eq!(Outcome::decode(&bytes).unwrap(), outcome_3());
    let plain = Outcome { values: None, ..outcome_3() };
    assert_eq!(Outcome::decode(&plain.encode()).unwrap(), plain);
    let wrong = |hot: &[(u32, u32)]| {
        let mut outcome = outcome_3();
        outcome.tables[0].hot = hot.iter().map(|(first, end)| *first..*end).collect();
        Outcome::decode(&outcome.encode()).unwrap_err().kind()
    };
    for hot in [&[(0, 5)][..], &[(1, 1)], &[(0, 1), (1, 2)], &[(0, 1), (2, 2)]] {
        assert_eq!(wrong(hot), ErrorKind::Corrupt, "{hot:?}");
    }
}

/// An outcome with sums of entries, which is encoded as version 4.
fn outcome_4() -> Outcome {
    let sums = EntrySums { read: 0x4444, dropped: 0x55, made: u64::MAX };
    Outcome { sums: Some(sums), ..outcome_3() }
}

/// As [`job_and_outcome_have_their_golden_bytes`], outcome version 4 with and without hot pages.
#[test]
fn outcome_of_version_4_has_its_golden_bytes() {
    let bytes = outcome_4().encode();
    assert_eq!(hex(&bytes), hex(&golden(include_str!("../../golden/outcome-4.hex"))));
    assert_eq!(Outcome::decode(&bytes).unwrap(), outcome_4());
    let plain = Outcome { sums: outcome_4().sums, ..outcome() };
    assert_eq!(Outcome::decode(&plain.encode()).unwrap(), plain);
}

/// `message` with a corrected checksum, so that its body is decoded.
fn sealed(mut message: Vec<u8>) -> Vec<u8> {
    let body = message.len().saturating_sub(8);
    message.truncate(body);
    let checksum = hash64(0, &message);
    message.extend_from_slice(&checksum.to_le_bytes());
    message
}

#[test]
fn damaged_messages_are_refused_without_a_panic() {
    let (mut rng, seed) = Rng::from_env();
    let outcomes =
        [outcome(), outcome_2(), outcome_3(), outcome_4()].map(|outcome| outcome.encode());
    for message in [job().encode(), job_2().encode(), job_3().encode()].into_iter().chain(outcomes)
    {
        let read = |bytes: &[u8]| match message[5] {
            b'J' => Job::decode(bytes).map(|job| job.encode()),
            _ => Outcome::decode(bytes).map(|outcome| outcome.encode()),
        };
        assert_eq!(read(&message).unwrap(), message);
        for at in 0..message.len() {
            assert!(read(&message[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = message.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "byte {at} bit {bit}");
                // With a correct checksum the body is either malformed or another message. Table properties
                // skip unknown fields, so an outcome may decode to an equal one.
                let is_exact = at < message.len() - 8 && message[5] == b'J';
                if let Ok(other) = read(&sealed(flipped)) {
                    assert!(!is_exact || other != message, "byte {at} bit {bit}");
                }
            }
        }
        for _ in 0..20_000 {
            let mut changed = message.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(changed.len() as u64) as usize;
                changed[at] = rng.next_u64() as u8;
            }
            let _ = read(&sealed(changed));
        }
        assert!(read(&[message.clone(), vec![0]].concat()).is_err(), "seed {seed}");
    }
}

#[test]
fn unknown_versions_and_other_messages_are_refused() {
    for (mut message, what) in [(job_3().encode(), "job"), (outcome_4().encode(), "outcome")] {
        message[8] += 1;
        let decode = |bytes: &[u8]| match what {
            "job" => Job::decode(bytes).map(drop),
            _ => Outcome::decode(bytes).map(drop),
        };
        let error = decode(&sealed(message)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&format!("{what}: unknown version")), "{error}");
    }
    assert_eq!(Job::decode(&outcome().encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(Outcome::decode(&job().encode()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn malformed_jobs_are_refused() {
    let refused = |change: fn(&mut Job)| {
        let mut job = job();
        change(&mut job);
        assert_eq!(Job::decode(&job.encode()).unwrap_err().kind(), ErrorKind::Corrupt, "{job:?}");
        assert!(job.check().is_err() || job.bounds.is_empty());
    };
    refused(|job| job.inputs.clear());
    refused(|job| job.horizon = Horizon::default());
    refused(|job| job.output.ids.end = job.output.ids.start);
    refused(|job| job.output.ids.start = TableId(9));
    refused(|job| job.values.ids = TableId(31)..TableId(33));
    refused(|job| {
        job.values.ids = TableId(32)..TableId(34);
        job.values.collect = vec![TableId(33)];
    });
    refused(|job| job.values.collect = vec![TableId(8), TableId(6)]);
    refused(|job| job.output.codec = Codec::Lz4);
    refused(|job| job.output.table_bytes_max = 1);
    refused(|job| job.bounds.end = Some(b"a".to_vec().into()));
}

//! Damage at rest: every byte flipped, every length cut. Recovery never panics, never returns a record
//! that was not written or out of order, and never loses a synced record silently.

use base::{Budget, ErrorKind, Rng};

use super::salvage::{assert_salvaged, salvage};
use super::*;

/// A log of two segments with some syncs, and its records.
pub(super) fn written() -> (Vec<(String, Vec<u8>)>, Replayed) {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    let mut expected = Replayed::new();
    for at in 0..13u8 {
        let body = vec![at + 1; 40 + usize::from(at) * 100];
        let first = append(&log, 1, 1 + u32::from(at) % 3, &body).unwrap();
        expected.push((first.get(), body));
        if at % 2 == 0 {
            log.sync(log.last()).unwrap();
        }
    }
    drop(log);
    let files = medium.list().unwrap().into_iter();
    let files: Vec<_> =
        files.map(|file| (file.name.clone(), medium.content(&file.name).unwrap())).collect();
    assert!(files.len() >= 2, "the log spans segments");
    (files, expected)
}

pub(super) fn image(files: &[(String, Vec<u8>)]) -> Arc<dyn Medium> {
    let medium = MemoryMedium::new();
    for (name, content) in files {
        medium.insert(name, content.clone()).unwrap();
    }
    Arc::new(medium)
}

/// Every record was synced: a flip is reported, or has no effect.
#[test]
fn a_flipped_byte_is_reported_or_harmless() {
    let (files, expected) = written();
    let (mut rng, seed) = Rng::from_env();
    let (mut reported, mut harmless) = (0, 0);
    for file in 0..files.len() {
        let content = &files[file].1;
        let used = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        // Every byte in use, and some bytes of the free space.
        for at in (0..used).chain((used..content.len()).step_by(61)) {
            let mut bad = files.clone();
            let mask = 1 << rng.below(8);
            bad[file].1[at] ^= mask;
            let context = format!("{} byte {at} mask {mask}, TERRACE_SEED={seed}", bad[file].0);
            match open(&image(&bad)) {
                Ok((_, _, replayed)) => {
                    assert!(replayed == expected, "{context}: {} replayed", replayed.len());
                    harmless += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
                    let said = error.to_string();
                    assert!(said.contains("log-0-"), "{context}: {said}");
                    reported += 1;
                    if at % 16 == 0 {
                        let lost = assert_salvaged(&image(&bad), &expected, &context);
                        assert!(lost.len() <= 1, "{context}: {lost:?}");
                    }
                }
            }
        }
    }
    // The headers and the records; not the padding and the last Mark.
    assert!(reported > 2 * 4096 + 5000, "{reported} reported");
    assert!(harmless > 4096, "{harmless} harmless");
}

/// An open reports a file that was cut within its first page or its records. It cannot notice a cut that
/// leaves less than a page, or the loss of the newest segments: the rest is a valid log.
#[test]
fn a_cut_file_is_reported() {
    let (files, expected) = written();
    for file in 0..files.len() {
        let whole = files[file].1.len();
        for len in (0..whole).step_by(37).chain([1, 4095, 4096, 4097, whole - 1]) {
            let mut bad = files.clone();
            bad[file].1.truncate(len);
            match open(&image(&bad)) {
                Ok((_, _, replayed)) => {
                    assert!(len > whole - 4096 && replayed == expected || len < 4096, "{len}");
                    assert!(expected.starts_with(&replayed), "{len}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}"),
            }
        }
    }
}

/// A segment that is missing from the middle, or is in place of another one, is reported.
#[test]
fn a_missing_or_exchanged_segment_is_reported() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    for _ in 0..24 {
        append(&log, 1, 1, &[7; 3000]).unwrap();
        log.sync(log.last()).unwrap();
    }
    drop(log);
    let names: Vec<String> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
    assert!(names.len() >= 4);
    let content = |name: &String| (name.clone(), medium.content(name).unwrap());
    let missing: Vec<_> = names.iter().filter(|name| **name != names[1]).map(content).collect();
    let error = open(&image(&missing)).unwrap_err();
    assert!(error.to_string().contains("durable below"), "{error}");
    let mut exchanged: Vec<_> = names.iter().map(content).collect();
    exchanged[1].1 = exchanged[2].1.clone();
    let error = open(&image(&exchanged)).unwrap_err();
    assert!(error.to_string().contains("another segment"), "{error}");
}

#[test]
fn random_bytes_never_panic_the_parsers() {
    let (mut rng, seed) = Rng::from_env();
    for _ in 0..20_000 {
        let mut bytes = vec![0; rng.below(200) as usize];
        rng.fill(&mut bytes);
        if let Some(word) = bytes.get_mut(4..8) {
            // A plausible kind and length, so that the parser gets further.
            word.copy_from_slice(&((1 + rng.below(3)) << 28 | rng.below(180)).to_le_bytes()[..4]);
        }
        assert!(crate::parse_record(rng.next_u64() as u32, &bytes).is_err(), "TERRACE_SEED={seed}");
    }
}

#[test]
fn a_memory_shortage_is_not_reported_as_damage() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    for bytes in [10, 2 << 20, 10] {
        append(&log, 1, 1, &vec![7; bytes]).unwrap();
    }
    drop(log);
    let budget = Budget::new(1 << 20);
    let account = budget.account("log");
    let opened =
        Log::open(Arc::clone(&medium), salvage(), &account, &|_| Some(Seqno::ZERO), &mut |_, _| {
            Ok(())
        });
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(open(&medium).unwrap().2.len(), 3);
}

/// A reader continues at the seqno after a batch.
#[test]
fn a_batch_beyond_the_largest_seqno_is_refused() {
    for (ops, is_record) in [(2, true), (3, false)] {
        let mut head = vec![0; crate::FIXED_BYTES];
        head.extend([ops, 1, 1]);
        let (kind, seqno) = (crate::record::Kind::Batch, Seqno::MAX.get() - 2);
        crate::record::finish_record(&mut head, 7, kind, 1, seqno, 0, 0);
        assert_eq!(crate::parse_record(7, &head).is_ok(), is_record);
    }
}

/// A file name that no log creates: its number would leave none for the next segment.
#[test]
fn a_segment_number_beyond_the_maximum_is_refused() {
    let medium = Arc::new(MemoryMedium::new());
    medium.insert("log-0-18446744073709551614", Vec::new()).unwrap();
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    assert_eq!(open(&device).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}

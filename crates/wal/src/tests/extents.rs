//! A copy of the extents before a point is a log that ends there, whatever is appended meanwhile.

use base::Rng;
use base::limits::PAGE_BYTES;
use media::{Access, Buf, Purpose};

use super::*;
use crate::{Extent, LogEnd, extents};

/// Copies the extents before `ends`.
fn copy(from: &Arc<dyn Medium>, ends: &[LogEnd]) -> Arc<dyn Medium> {
    let to = memory();
    for Extent { name, bytes, len } in extents(&**from, &Start::new(), ends).unwrap() {
        let file = from.open(&name, Access::Bytes).unwrap();
        let pages = (bytes.min(file.size().unwrap()) as usize).div_ceil(PAGE_BYTES);
        let (buf, read) = file.read(0, Buf::pages(pages), Purpose::Scrub);
        read.unwrap();
        let copied = to.create(&name, Access::Bytes, len).unwrap();
        let bytes = buf.len().min(bytes as usize);
        copied.store(0, &buf[..bytes], Purpose::Scrub).unwrap();
    }
    to
}

#[test] // I11
fn a_copy_up_to_a_point_replays_the_records_before_it() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..40 {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let medium = memory();
        let (mut log, ..) = open(&medium).unwrap();
        let mut points: Vec<(usize, LogEnd)> = Vec::new();
        let mut expected = Replayed::new();
        for _ in 0..200 {
            match rng.below(20) {
                0 => log.sync(log.last()).unwrap(),
                1 => log.rotate().unwrap(),
                2 => drop(log.prepare(2).unwrap()),
                3 if rng.one_in(4) => drop(log.give_back(rng.below(2) as usize).unwrap()),
                3 if rng.one_in(4) => {
                    drop(log);
                    log = open(&medium).unwrap().0;
                }
                4..7 => points.push((expected.len(), log.ends()[0])),
                _ => {
                    let body = vec![rng.below(256) as u8; 1 + rng.below(20_000) as usize];
                    let ops = 1 + rng.below(3) as u32;
                    let first = append(&log, 1, ops, &body).unwrap();
                    expected.push((first.get(), body));
                }
            }
        }
        for (records, end) in points {
            let copied = copy(&medium, &[end]);
            let (log, recovery, replayed) = open(&copied).unwrap();
            assert!(replayed == expected[..records], "{why}: {} records", replayed.len());
            assert_eq!(log.last(), end.last, "{why}");
            assert_eq!((recovery.torn, recovery.damage.map(|_| ())), (None, None), "{why}");
        }
    }
}

#[test]
fn a_log_without_an_active_segment_has_no_end_and_is_copied_whole() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 1, b"one").unwrap();
    drop(log);
    let copied = copy(&medium, &[]);
    assert_eq!(open(&copied).unwrap().2, [(1, b"one".to_vec())]);
}

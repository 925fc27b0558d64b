//! The bytes of docs/format/log.md and docs/format/log-device.md, exactly.

use super::*;

/// Decodes the golden file: hexadecimal words, `#` comments, and `N * 00` for runs of zeros.
fn golden(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap().trim();
        if let Some(zeros) = line.strip_suffix("* 00") {
            bytes.resize(bytes.len() + zeros.trim().parse::<usize>().unwrap(), 0);
        } else {
            let digits: String = line.split_whitespace().collect();
            for at in (0..digits.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
            }
        }
    }
    bytes
}

/// A segment with a Begin, two batches, a sync, the Mark after it, and a third batch; with `unlogged`
/// operations between the first two.
fn segment(unlogged: u32) -> Vec<u8> {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let store = StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
    let (log, ..) =
        open_with(&device, Options { store, has_gaps: unlogged > 0, ..options() }, &|_| None)
            .unwrap();
    append(&log, 1, 1, b"put").unwrap();
    if unlogged > 0 {
        log.assign(Batch { keyspaces: &[KeyspaceId(9)], ops: unlogged, body: b"" }).unwrap();
    }
    let batch = Batch { keyspaces: &[KeyspaceId(1), KeyspaceId(300)], ops: 2, body: b"two" };
    log.append(batch).unwrap();
    log.sync(log.last()).unwrap();
    append(&log, 1, 1, b"after").unwrap();
    medium.content("log-0-0000000001").unwrap()
}

/// A segment of a fenced lane, with an unlogged batch between two batches; each has a group of its own.
fn fenced_segment() -> Vec<u8> {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let store = StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
    let (log, ..) = open_with(&device, Options { store, ..fenced(1) }, &|_| None).unwrap();
    append(&log, 1, 1, b"put").unwrap();
    log.assign(Batch { keyspaces: &[KeyspaceId(9)], ops: 300, body: b"" }).unwrap();
    let batch = Batch { keyspaces: &[KeyspaceId(1), KeyspaceId(300)], ops: 2, body: b"two" };
    log.append(batch).unwrap();
    medium.content("log-1-0000000001").unwrap()
}

#[test]
fn a_segment_of_a_fenced_lane_has_exactly_the_golden_bytes_and_replays() {
    let text = include_str!("../../golden/segment_fenced.hex");
    let (expected, got) = (golden(text), fenced_segment());
    let at = expected.iter().zip(&got).position(|(expected, got)| expected != got);
    assert!(expected == got, "{} and {} bytes, {at:?}", expected.len(), got.len());
    let medium = MemoryMedium::new();
    medium.insert("log-1-0000000001", expected).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(medium);
    let store = StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
    let options = Options { store, ..fenced(1) };
    let (log, recovery, replayed) = open_with(&medium, options, &|_| Some(Seqno::ZERO)).unwrap();
    assert_eq!(replayed, [(1, b"put".to_vec()), (302, b"two".to_vec())]);
    assert_eq!((log.last().get(), recovery.torn), (303, None));
}

const PLAIN: &str = include_str!("../../golden/segment.hex");
const GAP: &str = include_str!("../../golden/segment_gap.hex");

#[test]
fn a_segment_has_exactly_the_golden_bytes() {
    for (text, unlogged) in [(PLAIN, 0), (GAP, 300)] {
        let (expected, got) = (golden(text), segment(unlogged));
        let at = expected.iter().zip(&got).position(|(expected, got)| expected != got);
        assert!(
            expected == got,
            "{} and {} bytes, first difference at {at:?}",
            expected.len(),
            got.len()
        );
    }
}

/// This version reads any log of format versions 1 and 2.
#[test]
fn the_golden_segments_replay() {
    for (text, gap) in [(PLAIN, 0), (GAP, 300)] {
        let medium = MemoryMedium::new();
        medium.insert("log-0-0000000001", golden(text)).unwrap();
        let medium: Arc<dyn Medium> = Arc::new(medium);
        let store = StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
        let (log, recovery, replayed) =
            open_with(&medium, Options { store, ..options() }, &|_| Some(Seqno::ZERO)).unwrap();
        let expected =
            [(1, b"put".to_vec()), (2 + gap, b"two".to_vec()), (4 + gap, b"after".to_vec())];
        assert_eq!(replayed, expected);
        assert_eq!((log.last().get(), recovery.torn), (4 + gap, None));
    }
}

#[test]
fn the_page_of_a_device_has_exactly_the_golden_bytes() {
    let header = crate::device::DeviceHeader {
        store: StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
        device: 0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110,
    };
    let expected = golden(include_str!("../../golden/log-device.hex"));
    assert_eq!(header.encode(), expected);
    assert_eq!(crate::device::DeviceHeader::decode(&expected).unwrap(), header);
}

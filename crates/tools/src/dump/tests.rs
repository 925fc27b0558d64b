use base::ErrorKind;

use super::*;

/// An entry: key, value, expiry.
type Read = (Vec<u8>, Vec<u8>, u64);

fn keyspace(name: &str, options: &[(&str, &str)]) -> DumpedKeyspace {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    DumpedKeyspace { name: name.to_owned(), options: options.iter().map(owned).collect() }
}

/// Two keyspaces, one of them with options, and one without entries.
fn small() -> Vec<u8> {
    let mut writer = DumpWriter::new(Vec::new()).unwrap();
    writer.keyspace(&keyspace("default", &[])).unwrap();
    writer.entry(b"apple", b"red", 0).unwrap();
    writer.entry(b"session", b"ada", 1_700_000_000_000).unwrap();
    writer.keyspace(&keyspace("empty", &[("hashed", "keep"), ("base-filter-bits", "3")])).unwrap();
    let (bytes, keyspaces, entries) = writer.finish().unwrap();
    assert_eq!((keyspaces, entries), (2, 2));
    bytes
}

fn read(bytes: &[u8]) -> base::Result<Vec<(DumpedKeyspace, Vec<Read>)>> {
    let mut reader = DumpReader::new(bytes)?;
    let mut all = Vec::new();
    loop {
        match reader.next_item() {
            Ok(Some(DumpItem::Keyspace(keyspace))) => all.push((keyspace, Vec::new())),
            Ok(Some(DumpItem::Entry { key, value, expiry_unix_ms })) => {
                let entry = (key.to_vec(), value.to_vec(), expiry_unix_ms);
                all.last_mut().unwrap().1.push(entry);
            }
            Ok(None) => return Ok(all),
            Err(error) => {
                assert!(reader.next_item().is_err(), "a read after an error succeeded");
                return Err(error);
            }
        }
    }
}

#[test]
fn golden_bytes() {
    let hex: String = small().iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = include_str!("../../golden/dump.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
}

#[test]
fn entries_of_many_frames_and_long_values_are_read_back() {
    let mut writer = DumpWriter::new(Vec::new()).unwrap();
    writer.keyspace(&keyspace("k", &[("merge-operator", "terrace.i64-add.1")])).unwrap();
    let mut expected = Vec::new();
    for number in 0..3000u32 {
        let value = match number {
            1500 => vec![7; 3 << 20],
            _ => vec![b'v'; (number % 700) as usize],
        };
        let entry = (number.to_be_bytes().to_vec(), value, u64::from(number % 3));
        writer.entry(&entry.0, &entry.1, entry.2).unwrap();
        expected.push(entry);
    }
    let (bytes, ..) = writer.finish().unwrap();
    let found = read(&bytes).unwrap();
    assert!(found.len() == 1 && found[0].1 == expected);
    assert_eq!(found[0].0.options, [("merge-operator".to_owned(), "terrace.i64-add.1".to_owned())]);
}

#[test]
fn a_dump_that_ends_early_is_refused_at_every_length() {
    let bytes = small();
    assert_eq!(read(&bytes).unwrap().len(), 2);
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        assert!(error.to_string().contains("not complete"), "{len}: {error}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(read(&longer).unwrap_err().to_string().contains("more bytes"));
}

#[test]
fn every_flipped_bit_is_refused() {
    let bytes = small();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(read(&damaged).is_err(), "byte {at}, bit {bit}");
        }
    }
}

/// The frames of a dump, with prefix and checksum.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), &bytes[frame::HEADER_BYTES..]);
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        let (frame, after) = rest.split_at(frame::PREFIX_BYTES + len + frame::CHECKSUM_BYTES);
        frames.push(frame);
        rest = after;
    }
    frames
}

#[test]
fn frames_that_are_missing_repeated_or_exchanged_are_refused() {
    let bytes = small();
    let frames = frames(&bytes);
    assert_eq!(frames.len(), 6);
    let dump = |frames: &[&[u8]]| [&bytes[..frame::HEADER_BYTES], &frames.concat()].concat();
    for at in 0..frames.len() {
        let mut changed = frames.clone();
        changed.remove(at);
        assert!(read(&dump(&changed)).is_err(), "without frame {at}");
        let mut changed = frames.clone();
        changed.insert(at, frames[at]);
        assert!(read(&dump(&changed)).is_err(), "frame {at} twice");
        for other in at + 1..frames.len() {
            let mut changed = frames.clone();
            changed.swap(at, other);
            assert!(read(&dump(&changed)).is_err(), "frames {at} and {other} exchanged");
        }
    }
}

#[test]
fn other_files_and_newer_versions_are_told_apart_from_damage() {
    let error = read(b"key\tvalue\nkey 2\tvalue 2\n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(read(b"k\tv\n").unwrap_err().kind(), ErrorKind::Invalid);
    assert!(!DumpReader::<&[u8]>::is_dump(b"key\tvalue") && DumpReader::<&[u8]>::is_dump(&small()));
    let mut newer = small();
    newer[8] = 2;
    let checksum = base::crc32c(&newer[..12]);
    newer[12..16].copy_from_slice(&checksum.to_le_bytes());
    let error = read(&newer).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("version"), "{error}");
}

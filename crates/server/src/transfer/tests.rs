//! Dump files of Redis, as it writes them and damaged.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::sink::{Sink, SourceKey};
use super::*;
use crate::collection::score_of;
use crate::value::Kind;

/// The keys of a source as text.
#[derive(Default)]
struct Listed {
    keys: BTreeMap<String, Vec<String>>,
    current: Option<(SourceKey, Vec<String>)>,
    skipped: Vec<&'static str>,
    /// Of every byte, those of long strings too.
    digest: DefaultHasher,
}

fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= 64 => text.to_owned(),
        _ => format!("{} bytes", bytes.len()),
    }
}

impl Sink for Listed {
    fn begin(&mut self, key: SourceKey) -> Result<(), Stopped> {
        (key.database, &key.name, key.kind.name(), key.expiry).hash(&mut self.digest);
        self.current = Some((key, Vec::new()));
        Ok(())
    }

    fn element(&mut self, member: &[u8], payload: &[u8]) -> Result<(), Stopped> {
        (member, payload).hash(&mut self.digest);
        let (key, elements) = self.current.as_mut().unwrap();
        let member = shown(member);
        elements.push(match key.kind {
            Kind::Hash => format!("{member}={}", shown(payload)),
            Kind::SortedSet => format!("{member}:{}", score_of(payload).unwrap()),
            _ => member,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stopped> {
        let (key, mut elements) = self.current.take().unwrap();
        if key.kind != Kind::List {
            elements.sort();
        }
        let expiry = if key.expiry > 0 { format!(" until {}", key.expiry) } else { String::new() };
        let name = format!("{} {} {}{expiry}", key.database, key.kind.name(), shown(&key.name));
        self.keys.insert(name, elements);
        Ok(())
    }

    fn skipped(&mut self, kind: &'static str) {
        self.skipped.push(kind);
    }

    fn progress(&mut self, _done: u64) {}
}

fn parse(file: &[u8]) -> Result<Listed, Stopped> {
    let mut listed = Listed::default();
    rdb::parse(file, &mut listed)?;
    Ok(listed)
}

const MODERN: &[u8] = include_bytes!("../../tests/data/redis-7.0-packed.rdb");
const LARGE: &[u8] = include_bytes!("../../tests/data/redis-7.0-large.rdb");

#[test]
fn a_dump_of_redis_7_with_packed_collections_is_read() {
    let listed = parse(MODERN).unwrap();
    let keys: Vec<_> =
        listed.keys.iter().map(|(key, elements)| format!("{key} {elements:?}")).collect();
    let expected = include_str!("../../tests/data/redis-7.0-packed.txt");
    assert_eq!(keys.join("\n") + "\n", expected);
    assert_eq!(listed.skipped, ["function", "stream"]);
}

#[test]
fn a_dump_of_redis_7_with_large_collections_is_read() {
    let listed = parse(LARGE).unwrap();
    let numbers = |name: &str| listed.keys.get(name).map_or(0, Vec::len);
    for (name, count) in [
        ("0 hash h", 600),
        ("0 set s", 600),
        ("0 set i", 600),
        ("0 zset z", 600),
        ("0 list l", 600),
    ] {
        assert_eq!(numbers(name), count, "{name} of {:?}", listed.keys.keys());
    }
    let list = &listed.keys["0 list l"];
    assert_eq!((list[0].as_str(), list[599].as_str()), ("element-1", "element-600"));
    assert!(listed.keys["0 hash h"].contains(&"field-7=value-7".to_owned()));
    assert!(listed.keys["0 zset z"].contains(&"member-7:7.5".to_owned()));
    assert!(listed.keys["0 zset z"].contains(&"least:-inf".to_owned()));
    assert_eq!(listed.keys["0 string compressible"], ["5000 bytes"]);
}

/// The encodings of Redis before 7.0: ziplists, a zipmap, and a quicklist of ziplists.
#[test]
fn dumps_of_older_versions_are_read() {
    for (file, key, elements) in [
        (
            &include_bytes!("../../tests/data/hash-ziplist.rdb")[..],
            "0 hash hash",
            vec!["f1=v1", "f2=v2"],
        ),
        (include_bytes!("../../tests/data/hash-zipmap.rdb"), "0 hash hash", vec!["f1=v1", "f2=v2"]),
        (
            include_bytes!("../../tests/data/zset-ziplist.rdb"),
            "0 zset zset",
            vec!["one:1", "two:2"],
        ),
        (include_bytes!("../../tests/data/list-quicklist.rdb"), "0 list list", vec!["7"]),
    ] {
        let listed = parse(file).unwrap();
        assert_eq!(listed.keys[key], elements, "{key}");
    }
    let all = parse(include_bytes!("../../tests/data/encodings.rdb")).unwrap();
    assert_eq!(
        all.keys["0 set set_zipped_3"],
        ["1000000000", "2000000000", "3000000000", "4000000000", "5000000000", "6000000000"]
    );
    assert_eq!(all.keys["0 list list"].len(), 24);
    assert_eq!(all.keys["0 string compressible"].len(), 1);
}

/// Every file of `file` with one byte wrong.
fn damaged(file: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let places = (0..file.len()).flat_map(|at| [1_u8, 0x80, 0xff].map(|flipped| (at, flipped)));
    places.map(|(at, flipped)| {
        let mut damaged = file.to_vec();
        damaged[at] ^= flipped;
        (at, damaged)
    })
}

#[test]
fn a_damaged_dump_with_a_checksum_is_an_error() {
    for end in 0..MODERN.len() {
        assert!(parse(&MODERN[..end]).is_err(), "cut off at {end}");
    }
    for (at, file) in damaged(MODERN) {
        assert!(parse(&file).is_err(), "byte {at}");
    }
}

/// A wrong byte of a text is another text, and nothing shows it; but no byte of the file is left unread.
#[test]
fn a_damaged_dump_without_a_checksum_is_an_error_or_other_data() {
    let file = include_bytes!("../../tests/data/encodings.rdb");
    for end in 0..file.len() {
        assert!(parse(&file[..end]).is_err(), "cut off at {end}");
    }
    let good = parse(file).unwrap();
    let same: Vec<_> = damaged(file)
        .filter(|(_, file)| {
            parse(file).is_ok_and(|read| read.digest.finish() == good.digest.finish())
        })
        .map(|(at, _)| at)
        .collect();
    // The distance of a reference in a compressed run of one letter: another one gives the same text.
    assert_eq!(same, [0xf9]);
}

#[test]
fn absurd_lengths_take_no_memory() {
    let start = b"REDIS0010";
    // A string of 2^60 bytes; one of 59 MiB of which nothing follows; a packed one that says it is long.
    for rest in [
        &b"\0\x81\x10\0\0\0\0\0\0\0"[..],
        b"\0\x80\x03\xb0\0\0",
        b"\0\xc3\x01\x80\x03\xb0\0\0a",
        b"\x04\x01k\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x0b\x01k\x0c\x08\0\0\0\xff\xff\xff\xff\0\0\0\0",
        b"\x11\x01k\x07\0\0\0\0\0\0\xf0",
    ] {
        assert!(parse(&[start, rest].concat()).is_err(), "{rest:?}");
    }
    for head in [&b"REDIS0012"[..], b"REDIS0000", b"NOTREDIS1", b"REDIS"] {
        assert!(parse(head).is_err());
    }
}

#[test]
fn sources_are_addresses() {
    for (text, address) in [
        ("redis://localhost", "localhost:6379"),
        ("redis://10.0.0.1:7000/", "10.0.0.1:7000"),
        ("redis://:p%40ss@[::1]:7000/3", "[::1]:7000"),
        ("redis://alice:pw@host", "host:6379"),
        ("rediss://alice:pw@host", "host:6379"),
    ] {
        let source: Source = text.parse().unwrap();
        assert_eq!(source.is_encrypted(), text.starts_with("rediss:"));
        assert!(format!("{source:?}").contains(address), "{source:?}");
        assert!(!format!("{source:?}").contains("p@ss"));
    }
    for wrong in
        ["", "localhost", "redis://", "redis://:6379", "redis://h/x", "http://h", "redis://%zz@h"]
    {
        assert!(wrong.parse::<Source>().is_err(), "{wrong}");
    }
}

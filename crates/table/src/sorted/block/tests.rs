use super::*;
use crate::sorted::block_builder::BlockBuilder;
use base::{ErrorKind, Rng};
use std::cmp::Reverse;
use std::collections::BTreeMap;

type Model = BTreeMap<(Vec<u8>, Reverse<Trailer>), Vec<u8>>;

fn model(rng: &mut Rng) -> Model {
    let entries = 1 + rng.below(100);
    let spread = 1 + rng.below(4);
    let alphabet = 1 + rng.below(3);
    let bytes = |rng: &mut Rng, most: u64| -> Vec<u8> {
        (0..rng.below(most)).map(|_| b'a' + rng.below(alphabet) as u8).collect()
    };
    (0..entries)
        .map(|_| {
            // Lengths around 15 cross from nibbles to varints.
            let mut key = bytes(rng, 20 * spread);
            key.push(b'k');
            let seqno = Seqno::new(if rng.one_in(9) { Seqno::MAX.get() } else { rng.below(50) });
            let kind = if rng.one_in(4) { EntryKind::Delete } else { EntryKind::Put };
            let value = if kind == EntryKind::Put { bytes(rng, 40) } else { Vec::new() };
            ((key, Reverse(Trailer::new(seqno, kind))), value)
        })
        .collect()
}

/// `model` under the stored keys of a hashed keyspace.
fn hashed(model: &Model, hash_key: &HashKey) -> Model {
    let stored = |key: &[u8]| [&hash_key.hash(key).to_be_bytes(), key].concat();
    let entries = model.iter();
    entries.map(|((key, trailer), value)| ((stored(key), *trailer), value.clone())).collect()
}

fn build(model: &Model, is_compact: bool) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    builder.clear();
    if is_compact {
        builder.be_compact();
    }
    for ((key, trailer), value) in model {
        // A staged entry that is dropped leaves no trace.
        let last = [&[0xff; HASH_BYTES], &b"zzz"[..]].concat();
        builder.stage(&last, Seqno::new(3), EntryKind::Put, value);
        builder.drop_staged();
        builder.stage(key, trailer.0.seqno(), trailer.0.kind().unwrap(), value);
        builder.keep(key);
    }
    let mut raw = builder.entries().to_vec();
    builder.put_tail(&mut raw);
    assert_eq!(raw.len(), builder.raw_bytes());
    raw
}

fn at_position<'a>(
    position: &'a BlockPosition,
    block: Block<'a>,
) -> Option<(&'a [u8], Trailer, &'a [u8])> {
    position.entry().map(|entry| (position.key(), entry.trailer, block.value(entry)))
}

#[test]
fn searches_and_iteration_agree_with_a_map() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..450 {
        let plain = model(&mut rng);
        // Sorted blocks, and compact ones of whole hashes and of hashes that many keys share.
        let hash_key = [None, Some(HashKey::new([7; 16])), Some(HashKey::weak(round as u8 / 8))];
        let hash_key = hash_key[round % 3];
        let model = hash_key.map_or_else(|| plain.clone(), |hash_key| hashed(&plain, &hash_key));
        let raw = build(&model, hash_key.is_some());
        assert!(Block::parse(&raw, None).is_ok() == hash_key.is_none());
        let block = Block::parse(&raw, hash_key).unwrap();
        assert_eq!(block.count(), model.len());
        let first = &model.keys().next().unwrap().0;
        assert_eq!(block.first_head().unwrap(), head_of(first).to_be_bytes());
        let entries: Vec<(&[u8], Trailer, &[u8])> =
            model.iter().map(|((key, trailer), value)| (&key[..], trailer.0, &value[..])).collect();
        let mut position = BlockPosition::default();
        position.first(block).unwrap();
        for expected in &entries {
            assert_eq!(at_position(&position, block), Some(*expected), "seed {seed} round {round}");
            position.next(block).unwrap();
        }
        assert_eq!(position.entry().map(|entry| entry.trailer), None);
        for expected in entries.iter().rev() {
            assert!(position.prev(block).unwrap());
            assert_eq!(at_position(&position, block), Some(*expected), "seed {seed} round {round}");
        }
        assert!(!position.prev(block).unwrap());
        position.last(block).unwrap();
        assert_eq!(at_position(&position, block), entries.last().copied());
        for _ in 0..100 {
            let pick = rng.below(entries.len() as u64) as usize;
            let mut key = entries[pick].0.to_vec();
            if rng.one_in(3) {
                key.pop();
            } else if rng.one_in(3) {
                key.push(b'a' + rng.below(12) as u8);
            }
            let at = Trailer::seek(Seqno::new(rng.below(60)));
            let first = entries
                .iter()
                .find(|(other, trailer, _)| (*other, Reverse(*trailer)) >= (&key[..], Reverse(at)));
            assert_eq!(position.seek(block, &key, at).unwrap(), first.is_some());
            assert_eq!(at_position(&position, block), first.copied(), "seed {seed} round {round}");
            let expected = first.filter(|(other, ..)| *other == &key[..]);
            let found = block.get(&key, at).unwrap();
            assert_eq!(
                found.map(|entry| (entry.trailer, block.value(&entry))),
                expected.map(|(_, trailer, value)| (*trailer, *value)),
                "seed {seed} round {round} key {key:?}"
            );
        }
    }
}

#[test]
fn a_damaged_block_never_panics() {
    let (mut rng, seed) = Rng::from_env();
    println!("seed {seed}");
    let model = model(&mut rng);
    let hash_key = HashKey::new([7; 16]);
    for is_compact in [false, true] {
        let raw = match is_compact {
            true => build(&hashed(&model, &hash_key), true),
            false => build(&model, false),
        };
        damage_never_panics(&raw, hash_key);
    }
}

fn damage_never_panics(raw: &[u8], hash_key: HashKey) {
    let try_all = |raw: &[u8]| -> Result<()> {
        visit_block(raw, Some(hash_key), |_, _, _| {})?;
        let block = Block::parse(raw, Some(hash_key))?;
        let mut position = BlockPosition::default();
        position.first(block)?;
        while position.next(block)? {}
        while position.prev(block)? {}
        position.seek(block, b"bak", Trailer::seek(Seqno::new(9)))?;
        block.get(b"bak", Trailer::seek(Seqno::new(9))).map(drop)?;
        block.get(b"a key of hashes", Trailer::seek(Seqno::new(9))).map(drop)
    };
    try_all(raw).unwrap();
    for at in 0..raw.len() {
        for bit in 0..8 {
            let mut damaged = raw.to_vec();
            damaged[at] ^= 1 << bit;
            let _ = try_all(&damaged);
        }
        let _ = try_all(&raw[..at]);
    }
}

/// The entries of another keyspace, or a wrong hash key: damage, not absent keys.
#[test]
fn a_compact_block_is_not_read_with_another_hash_key() {
    let (mut rng, _) = Rng::from_env();
    let (right, wrong) = (HashKey::new([7; 16]), HashKey::new([8; 16]));
    let mut model = Model::new();
    for number in 0..100u64 {
        model.insert(
            (
                rng.next_u64().to_le_bytes().to_vec(),
                Reverse(Trailer::new(Seqno::new(number), EntryKind::Put)),
            ),
            vec![1; 20],
        );
    }
    let raw = build(&hashed(&model, &right), true);
    visit_block(&raw, Some(right), |_, _, _| {}).unwrap();
    assert_eq!(
        visit_block(&raw, Some(wrong), |_, _, _| {}).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(visit_block(&raw, None, |_, _, _| {}).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// An entry with a value of 240 bytes and a seqno near the block's base: 5.3 bytes besides key and value.
#[test]
fn an_entry_of_a_compact_block_takes_a_little_more_than_five_bytes() {
    let mut builder = BlockBuilder::default();
    builder.be_compact();
    for number in 0..128u64 {
        let key = [&[0; HASH_BYTES], &number.to_be_bytes()[..], &[7; 8]].concat();
        builder.stage(&key, Seqno::new(1000 + number % 8), EntryKind::Put, &[1; 240]);
        builder.keep(&key);
    }
    let spare = builder.raw_bytes() - 128 * 256 - TRAILER_BYTES;
    assert_eq!(spare, 128 * 5 + 15 * 2, "lengths of 1 and 2, a word of 1, a tag; 15 offsets");
}

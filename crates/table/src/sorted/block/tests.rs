use super::*;
use crate::sorted::block_builder::BlockBuilder;
use base::Rng;
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

fn build(model: &Model) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    builder.clear();
    for ((key, trailer), value) in model {
        // A staged entry that is dropped leaves no trace.
        builder.stage(b"zzz", Seqno::new(3), EntryKind::Put, value);
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
    for round in 0..300 {
        let model = model(&mut rng);
        let raw = build(&model);
        let block = Block::parse(&raw).unwrap();
        assert_eq!(block.count(), model.len());
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
    let raw = build(&model);
    let try_all = |raw: &[u8]| -> Result<()> {
        visit_block(raw, |_, _, _| {})?;
        let block = Block::parse(raw)?;
        let mut position = BlockPosition::default();
        position.first(block)?;
        while position.next(block)? {}
        while position.prev(block)? {}
        position.seek(block, b"bak", Trailer::seek(Seqno::new(9)))?;
        block.get(b"bak", Trailer::seek(Seqno::new(9))).map(drop)
    };
    try_all(&raw).unwrap();
    for at in 0..raw.len() {
        for bit in 0..8 {
            let mut damaged = raw.clone();
            damaged[at] ^= 1 << bit;
            let _ = try_all(&damaged);
        }
        let _ = try_all(&raw[..at]);
    }
}

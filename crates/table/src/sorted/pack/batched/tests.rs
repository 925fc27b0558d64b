use base::{Error, Rng, Seqno};

use super::super::super::fit::Padding;
use super::*;
use crate::codec::{BlockCompressor, Compressor, SoftPool, decompress};
use crate::page::PAYLOAD_BYTES;

type Entry = (Vec<u8>, Trailer, Vec<u8>);

fn entry(number: usize, value: Vec<u8>) -> Entry {
    let trailer = Trailer::new(Seqno::new(9), base::EntryKind::Put);
    (format!("{number:016}").into_bytes(), trailer, value)
}

fn whole(codec: Codec, account: &Account) -> Option<Packer> {
    let compressor = Compressor::new(codec, 6, None, account).ok()?;
    Some(Packer::whole(compressor, account))
}

/// The payloads and decoded entries of the blocks that `packer` makes of `entries`.
fn pack(packer: &mut Packer, entries: &[Entry]) -> (Vec<Vec<u8>>, Vec<Entry>) {
    let (mut payloads, mut found) = (Vec::new(), Vec::new());
    let mut emit = |packed: PackedBlock<'_>| {
        let payload = packed.payload.joined().to_vec();
        let raw = decompress(packed.codec, None, &payload, packed.raw_bytes).unwrap();
        let block = Block::parse(&raw, None).unwrap();
        let mut position = BlockPosition::default();
        position.first(block).unwrap();
        assert_eq!(position.key(), packed.first_key);
        while let Some(entry) = position.entry() {
            let value = block.value(entry).to_vec();
            found.push((position.key().to_vec(), entry.trailer, value));
            position.next(block).unwrap();
        }
        assert_eq!(packed.last.0, found.last().unwrap().0);
        assert_eq!(packed.hashes.len(), block.count(), "the keys differ");
        payloads.push(payload);
        Ok(())
    };
    for (key, trailer, value) in entries {
        packer.add(key, *trailer, value, &mut emit).unwrap();
    }
    packer.finish(&mut emit).unwrap();
    (payloads, found)
}

fn part_padding(Padding { pages, bytes, .. }: Padding) -> f64 {
    bytes as f64 / (pages as f64 * PAYLOAD_BYTES as f64)
}

/// Values whose compressibility drifts, and jumps now and then.
fn drifting(rng: &mut Rng, count: usize) -> Vec<Entry> {
    (0..count)
        .map(|number| {
            let phase = (number / 3000) % 3;
            let noise = 40 + phase * 90 + (number % 3000) / 40;
            let mut value = vec![b'a' + (number % 7) as u8; 400];
            rng.fill(&mut value[..noise]);
            entry(number, value)
        })
        .collect()
}

/// Same entries, same blocks; and the padding stays near that of packing with every size known.
#[test]
fn blocks_of_a_pool_are_whole_deterministic_and_well_filled() {
    let account = Account::unlimited("test");
    let pool = SoftPool::new(2, &account).unwrap();
    let entries = drifting(&mut Rng::new(7), 20_000);
    for codec in [Codec::Deflate, Codec::Zstd] {
        let Some(mut exact) = whole(codec, &account) else { continue };
        pack(&mut exact, &entries);
        let packed = || {
            let packer = whole(codec, &account).unwrap();
            let mut packer = packer.compressing_with(&pool, 6, &account);
            assert!(packer.batched.is_some());
            let (payloads, found) = pack(&mut packer, &entries);
            assert!(found == entries);
            (payloads, packer.padding())
        };
        let ((first, padding), (second, _)) = (packed(), packed());
        assert!(first == second, "{codec:?}: the same blocks each time");
        let (part, exact) = (part_padding(padding), part_padding(exact.padding()));
        println!("{codec:?}: padding {part:.3}, with sizes known {exact:.3}");
        assert!(part < exact + 0.06, "{codec:?}: {part} {exact}");
    }
}

#[test]
fn entries_of_any_length_are_packed() {
    let account = Account::unlimited("test");
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let pool = SoftPool::new(1, &account).unwrap();
    for round in 0..20 {
        let most = 1 << (4 + rng.below(14));
        let entries: Vec<_> = (0..200)
            .map(|number| {
                let mut value = vec![7; rng.below(most) as usize];
                let noise = rng.below(value.len() as u64 + 1) as usize;
                rng.fill(&mut value[..noise]);
                entry(number, value)
            })
            .collect();
        let packer = whole(Codec::Deflate, &account).unwrap();
        let mut packer = packer.compressing_with(&pool, 6, &account);
        assert!(pack(&mut packer, &entries).1 == entries, "round {round}");
        assert_eq!(packer.pages_in_flight(), 0);
    }
}

/// Fails at its `left`th call.
#[derive(Debug)]
struct Failing(usize);

struct FailingStream {
    left: usize,
    compressor: BlockCompressor,
    blocks: VecDeque<Arc<Vec<u8>>>,
}

impl FailingStream {
    fn call(&mut self) -> Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return Err(Error::retry("engine").got("a lost link")),
        }
        Ok(())
    }
}

impl BlockEngine for Failing {
    fn stream(&self, codec: Codec, level: i32, account: &Account) -> Option<Box<dyn BlockStream>> {
        let compressor = BlockCompressor::new(codec, level, account).ok()?;
        Some(Box::new(FailingStream { left: self.0, compressor, blocks: VecDeque::new() }))
    }

    fn decompress(&self, _: Codec, _: &[u8], _: usize) -> Option<Vec<u8>> {
        None
    }
}

impl BlockStream for FailingStream {
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> Result<()> {
        self.call()?;
        self.blocks.push_back(Arc::clone(raw));
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<u8>> {
        self.call()?;
        self.compressor.compress(&self.blocks.pop_front().unwrap())
    }
}

#[test]
fn an_engine_that_fails_at_any_call_costs_no_entry() {
    let account = Account::unlimited("test");
    let entries = drifting(&mut Rng::new(3), 6000);
    for calls in (0..90).step_by(7) {
        let packer = whole(Codec::Deflate, &account).unwrap();
        let mut packer = packer.compressing_with(&Failing(calls), 6, &account);
        assert!(pack(&mut packer, &entries).1 == entries, "{calls}");
        assert!(packer.batched.as_ref().unwrap().has_failed);
    }
}

#[test]
fn without_memory_or_for_other_codecs_the_packer_compresses() {
    let pool = SoftPool::new(1, &Account::unlimited("test")).unwrap();
    let account = Account::unlimited("test");
    account.set_cap(FLIGHT_BYTES);
    let packer = whole(Codec::Deflate, &account).unwrap();
    assert!(packer.compressing_with(&pool, 6, &account).batched.is_none());
    let account = Account::unlimited("test");
    assert!(Packer::lz4(&account).compressing_with(&pool, 6, &account).batched.is_none());
}

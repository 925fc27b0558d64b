use super::super::block::{Block, BlockPosition};
use super::*;
use crate::dictionary::Dictionary;
use crate::page::PAYLOAD_BYTES;
use base::{Account, Rng, Seqno};

use std::sync::Arc;

struct Out {
    /// Codec, payload bytes and pages of each block.
    blocks: Vec<(Codec, usize, usize)>,
    entries: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    keys: usize,
}

fn pack(packer: &mut Packer, entries: &[(Vec<u8>, Trailer, Vec<u8>)]) -> Out {
    pack_with(packer, entries, None)
}

fn pack_with(
    packer: &mut Packer,
    entries: &[(Vec<u8>, Trailer, Vec<u8>)],
    dictionary: Option<&Dictionary>,
) -> Out {
    let mut out = Out { blocks: Vec::new(), entries: Vec::new(), keys: 0 };
    let mut emit = |packed: PackedBlock<'_>| {
        let raw = crate::codec::decompress(
            packed.codec,
            dictionary.filter(|_| packed.dictionary.0 > 0),
            &packed.payload.joined(),
            packed.raw_bytes,
        )
        .unwrap();
        let block = Block::parse(&raw, None).unwrap();
        let mut position = BlockPosition::default();
        position.first(block).unwrap();
        assert_eq!(position.key(), packed.first_key);
        while let Some(entry) = position.entry() {
            let value = block.value(entry).to_vec();
            out.entries.push((position.key().to_vec(), entry.trailer, value));
            position.next(block).unwrap();
        }
        let (key, trailer, _) = out.entries.last().unwrap();
        assert_eq!((&key[..], *trailer), packed.last);
        out.keys += packed.hashes.len();
        out.blocks.push((packed.codec, packed.payload.len(), run_pages(packed.payload.len())));
        Ok(())
    };
    for (key, trailer, value) in entries {
        packer.add(key, *trailer, value, &mut emit).unwrap();
    }
    packer.finish(&mut emit).unwrap();
    out
}

/// `count` entries with values of `value_bytes` bytes, half of them noise.
fn half_compressible(
    rng: &mut Rng,
    count: u64,
    value_bytes: usize,
) -> Vec<(Vec<u8>, Trailer, Vec<u8>)> {
    let trailer = |seqno| Trailer::new(Seqno::new(seqno), EntryKind::Put);
    (0..count)
        .map(|number| {
            let mut value = vec![b'x'; value_bytes];
            rng.fill(&mut value[..value_bytes / 2]);
            (format!("{number:016}").into_bytes(), trailer(number), value)
        })
        .collect()
}

fn packers() -> Vec<Packer> {
    let account = Account::unlimited("test");
    let mut packers = vec![Packer::stored(&account), Packer::lz4(&account)];
    for codec in [Codec::Zstd, Codec::Deflate] {
        let compressor = Compressor::new(codec, 1, None, &account);
        packers.extend(compressor.ok().map(|it| Packer::whole(it, &account)));
    }
    packers
}

/// The bounds that the format promises, for values of one size. Varying sizes leave less padding.
#[test]
fn padding_and_compressions_stay_within_their_bounds() {
    let mut rng = Rng::new(1);
    for (value_bytes, padding_max) in
        [(16, 0.02), (100, 0.03), (256, 0.05), (512, 0.05), (1024, 0.11), (2048, 0.15)]
    {
        for mut packer in packers() {
            let count = 700_000 / (value_bytes as u64 + 40);
            let entries = half_compressible(&mut rng, count, value_bytes);
            let out = pack(&mut packer, &entries);
            assert!(out.entries == entries);
            let pages = packer.padding().pages as f64;
            let empty = packer.padding().bytes as f64;
            let part = empty / (pages * PAYLOAD_BYTES as f64);
            let exact = !matches!(packer.fit, Fit::Whole(..));
            let name = if exact { "exact" } else { "whole" };
            // Without compression the same entries are twice as long, and there is no promise.
            let stored = matches!(packer.fit, Fit::Stored);
            let padding_max = if stored { 0.26 } else { padding_max };
            // The padding of the last page is arbitrary.
            let padding_max = padding_max + 1.0 / out.blocks.len() as f64;
            assert!(part <= padding_max, "{name} {value_bytes}: {part}");
            let each = packer.compressions() as f64 / pages;
            assert!(each <= if exact { 1.0 } else { 1.1 }, "{name} {value_bytes}: {each}");
        }
    }
}

#[test]
fn entries_of_any_size_round_trip() {
    let (mut rng, seed) = Rng::from_env();
    for mut packer in packers() {
        for round in 0..20 {
            let mut number = 0;
            let mut entries = Vec::new();
            let biggest = 1 << rng.below(18);
            for _ in 0..rng.below(400) {
                // Some keys have many versions.
                number += rng.below(2);
                let mut value = vec![0; rng.below(biggest) as usize];
                if rng.one_in(2) {
                    rng.fill(&mut value);
                }
                let seqno = Seqno::new(10_000 - entries.len() as u64);
                let kind = if value.is_empty() { EntryKind::Delete } else { EntryKind::Put };
                let key =
                    format!("{number:0width$}", width = 5 + (number % 30) as usize).into_bytes();
                entries.push((number, key, Trailer::new(seqno, kind), value));
            }
            // Keys of different lengths, ordered as bytes.
            entries.sort_by(|a, b| a.1.cmp(&b.1).then(b.2.cmp(&a.2)));
            let entries: Vec<_> = entries.into_iter().map(|(_, k, t, v)| (k, t, v)).collect();
            let out = pack(&mut packer, &entries);
            assert!(out.entries == entries, "seed {seed} round {round}");
            for (codec, bytes, pages) in out.blocks {
                assert!(codec != Codec::None || bytes <= pages * PAYLOAD_BYTES);
            }
            let mut keys: Vec<_> = entries.iter().map(|(key, ..)| key).collect();
            keys.dedup();
            assert!(out.keys >= keys.len(), "seed {seed} round {round}");
        }
    }
}

/// One entry that is most of the block limit, followed by many that compress to almost nothing:
/// proportional steps would remove only a few of those at a time.
#[test]
fn a_block_with_one_dominant_entry_is_cut_in_few_steps() {
    let mut rng = Rng::new(6);
    let mut entries = half_compressible(&mut rng, 20 * 301, 20);
    for (number, (_, _, value)) in entries.iter_mut().enumerate() {
        match number % 301 {
            0 => {
                value.resize(4096, 0);
                rng.fill(value);
            }
            _ => value.fill(b'x'),
        }
    }
    for mut packer in packers() {
        let out = pack(&mut packer, &entries);
        assert!(out.entries == entries);
        let (blocks, compressions) = (out.blocks.len() as u64, packer.compressions());
        // A long value and the short ones after it take two pages.
        assert!(blocks <= 24 || matches!(packer.fit, Fit::Stored), "{blocks} blocks");
        assert!(compressions < 15 * blocks, "{compressions} of {blocks} blocks");
    }
}

/// Memory of zstd grows with its level and with its input.
#[test]
#[cfg(feature = "zstd")]
fn a_long_entry_is_stored_uncompressed_if_memory_is_short() {
    for (cap, is_compressed) in [(6 << 20, false), (24 << 20, true)] {
        let account = Account::unlimited("test");
        account.set_cap(cap);
        let compressor = Compressor::new(Codec::Zstd, 22, None, &account).unwrap();
        let mut packer = Packer::whole(compressor, &account);
        let mut entries = half_compressible(&mut Rng::new(4), 50, 200);
        entries[20].2 = vec![7; 700_000];
        let out = pack(&mut packer, &entries);
        assert!(out.entries == entries);
        let longest = out.blocks.iter().map(|(_, bytes, _)| *bytes).max().unwrap();
        assert_eq!(longest < 700_000, is_compressed, "{cap}");
    }
}

/// With a dictionary, zstd takes more memory than for the input alone. The charge covers it, or the
/// assertion in the compressor fails.
#[test]
#[cfg(feature = "zstd")]
fn zstd_memory_with_a_dictionary_is_charged() {
    let mut rng = Rng::new(5);
    let unlimited = Account::unlimited("test");
    let mut content = vec![0; 16 << 10];
    rng.fill(&mut content);
    let dictionary = Dictionary::new(DictionaryId(1), &content, &unlimited).unwrap();
    let dictionary = Arc::new(dictionary);
    for level in [3, 9, 13, 19, 22] {
        let account = Account::unlimited("test");
        let with = Some(Arc::clone(&dictionary));
        let compressor = Compressor::new(Codec::Zstd, level, with, &account).unwrap();
        let mut packer = Packer::whole(compressor, &account);
        let mut entries = half_compressible(&mut rng, 12, 200);
        let lengths = [60_000, 120_000, 131_000, 250_000, 255_000, 500_000, 510_000, 1_040_000];
        for ((_, _, value), length) in entries.iter_mut().zip(lengths) {
            value.resize(length, 7);
        }
        let out = pack_with(&mut packer, &entries, Some(&dictionary));
        assert!(out.entries == entries);
    }
}

/// Incompressible data is stored uncompressed. Well compressible data stops at the bound on the bytes
/// that a read decompresses.
#[test]
fn incompressible_and_highly_compressible_entries_are_packed() {
    let mut rng = Rng::new(3);
    let mut entries = half_compressible(&mut rng, 500, 200);
    for (_, _, value) in &mut entries {
        rng.fill(value);
    }
    let out = pack(&mut Packer::lz4(&Account::unlimited("test")), &entries);
    assert!(out.blocks.iter().all(|(codec, _, pages)| (*codec, *pages) == (Codec::None, 1)));
    for (_, _, value) in &mut entries {
        value.fill(0);
    }
    let out = pack(&mut Packer::lz4(&Account::unlimited("test")), &entries);
    assert_eq!(out.blocks.len(), (500 * 207usize).div_ceil(BLOCK_BYTES_MAX));
}

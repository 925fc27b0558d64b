use super::*;
use base::Rng;

/// Text of words, runs of zeros and noise: matches that start, end and cross anywhere.
fn source(rng: &mut Rng, length: usize) -> Vec<u8> {
    let words = [&b"terrace"[..], b"page", b"trailer ", b"aaaaaaaa", &[0; 40], b"ab"];
    let mut out = Vec::new();
    while out.len() < length {
        match rng.below(4) {
            0 => {
                let mut noise = vec![0; rng.below(60) as usize];
                rng.fill(&mut noise);
                out.extend_from_slice(&noise);
            }
            _ => out.extend_from_slice(words[rng.below(words.len() as u64) as usize]),
        }
    }
    out.truncate(length);
    out
}

/// Feeds the encoder pieces of random sizes, sometimes takes a piece back, and compares size and
/// content at the end with what a decoder makes of it.
#[test]
fn any_pieces_and_rollbacks_give_a_block_of_the_foretold_size() {
    let (mut rng, seed) = Rng::from_env();
    let mut encoder = Encoder::new();
    for round in 0..300 {
        let length = rng.below(20_000) as usize;
        let whole = source(&mut rng, length);
        let mut fed = Vec::new();
        let mut from = 0;
        encoder.reset();
        while from < whole.len() {
            let piece = (1 + rng.below(500) as usize).min(whole.len() - from);
            if rng.one_in(4) {
                let (mark, kept) = (encoder.mark(), fed.len());
                let unwanted = rng.below(300) as usize;
                fed.extend(source(&mut rng, unwanted));
                encoder.advance(&fed);
                fed.truncate(kept);
                encoder.rollback(mark);
            }
            fed.extend_from_slice(&whole[from..from + piece]);
            encoder.advance(&fed);
            from += piece;
        }
        let tail = source(&mut rng, TAIL_BYTES_MIN + round % 30);
        let foretold = encoder.size(fed.len(), tail.len());
        let mut block = vec![1; round % 3];
        encoder.finish(&fed, &tail, &mut block);
        assert_eq!(block.len(), foretold, "seed {seed} round {round}");
        let expected = [whole, tail].concat();
        let raw = decompress(&block, expected.len()).unwrap();
        assert!(raw == expected, "seed {seed} round {round}");
    }
}

/// Pieces cost little against compressing the same bytes at once.
#[test]
fn the_ratio_is_that_of_a_one_shot_compressor() {
    let mut rng = Rng::new(1);
    let (mut encoder, mut ours, mut theirs) = (Encoder::new(), Vec::new(), Vec::new());
    let (mut ours_total, mut theirs_total) = (0, 0);
    for _ in 0..50 {
        let whole = source(&mut rng, 8000);
        encoder.reset();
        for end in (0..=whole.len()).step_by(100) {
            encoder.advance(&whole[..end]);
        }
        encoder.finish(&whole, &[1; TAIL_BYTES_MIN], &mut ours);
        ours_total += ours.len();
        compress(&whole, &mut theirs).unwrap();
        theirs_total += theirs.len() + TAIL_BYTES_MIN;
    }
    assert!(ours_total * 100 <= theirs_total * 103, "{ours_total} against {theirs_total}");
}

#[test]
fn a_damaged_payload_is_an_error_or_other_bytes_and_never_longer() {
    let mut rng = Rng::new(2);
    let raw = source(&mut rng, 3000);
    let mut payload = Vec::new();
    compress(&raw, &mut payload).unwrap();
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Ok(other) = decompress(&damaged, raw.len()) {
            assert!(other.len() <= raw.len());
        }
        if let Ok(other) = decompress(&payload[..at], raw.len()) {
            assert!(other.len() < raw.len());
        }
    }
}

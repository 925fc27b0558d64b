use super::*;
use base::Rng;

/// Text of words, runs of zeros and noise, so that matches start, end and cross anywhere.
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

/// Feeds the encoder pieces of random sizes, sometimes rolls a piece back, and compares size and content
/// at the end with a decoder's output.
#[test]
fn pieces_and_rollbacks_give_a_block_of_the_predicted_size() {
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
        let predicted = encoder.size(fed.len(), tail.len());
        let mut block = vec![1; round % 3];
        encoder.finish(&fed, &tail, &mut block);
        assert_eq!(block.len(), predicted, "seed {seed} round {round}");
        let expected = [whole, tail].concat();
        let raw = decompress(&block, expected.len()).unwrap();
        assert!(raw == expected, "seed {seed} round {round}");
    }
}

/// Compression in pieces costs little over compression of the same bytes at once.
#[test]
fn the_ratio_is_close_to_that_of_a_one_shot_compressor() {
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
fn a_damaged_payload_never_decompresses_to_more_bytes() {
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

/// Up to 300 bytes of noise, each repeated: as a whole, in a run of one byte, or with a short period.
fn stretches(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < length {
        let mut noise = vec![0; 1 + rng.below(300) as usize];
        rng.fill(&mut noise);
        let period = [noise.len(), 1, 3][rng.below(3) as usize].min(noise.len());
        let (repeated, times) = (noise[noise.len() - period..].to_vec(), 300 / period);
        out.extend(noise);
        (0..times).for_each(|_| out.extend_from_slice(&repeated));
    }
    out.truncate(length);
    out
}

#[test]
fn the_decoder_for_long_matches_agrees_with_the_general_one() {
    let (mut rng, seed) = Rng::from_env();
    let mut long = 0;
    for round in 0..200 {
        let bytes = 1 + rng.below(20_000) as usize;
        let raw = if round % 4 == 0 { source(&mut rng, bytes) } else { stretches(&mut rng, bytes) };
        let mut payload = Vec::new();
        compress(&raw, &mut payload).unwrap();
        long += u32::from(long::is_long(&payload));
        // The decoder for long matches decompresses any payload.
        assert!(long::decompress(&payload, raw.len()).unwrap() == raw, "seed {seed} round {round}");
        assert!(decompress(&payload, raw.len()).unwrap() == raw, "seed {seed} round {round}");
        assert!(long::decompress(&payload, raw.len() - 1).is_err(), "seed {seed} round {round}");
        // On a damaged payload both decoders return the same bytes, or an error.
        let at = rng.below(payload.len() as u64) as usize;
        payload[at] ^= 1 << rng.below(8);
        if let Ok(ours) = long::decompress(&payload, raw.len()) {
            let theirs = lz4_flex::block::decompress(&payload, raw.len()).unwrap();
            assert!(ours == theirs, "seed {seed} round {round}");
        }
        payload.truncate(at);
        let _ = (decompress(&payload, raw.len()), long::decompress(&payload, raw.len()));
    }
    assert!(long > 50, "seed {seed}: {long}");
}

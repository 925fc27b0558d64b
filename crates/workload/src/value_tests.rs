use super::*;
use base::Rng;

fn made(ratio: f64, key: &[u8], epoch: u8, len: usize) -> Vec<u8> {
    let mut value = vec![7; 3];
    Values::new(ratio).unwrap().write(key, epoch, len, &mut value);
    value
}

/// Values of every small length, and of lengths around the unit, verify against their own key and no other,
/// at every ratio.
#[test]
fn a_value_verifies_against_its_own_key_only() {
    for ratio in [0.0, 0.01, 0.33, 0.5, 0.99, 1.0] {
        for len in (0..300).chain(1000..1060).chain([2047, 2048, 2049, 100_000]) {
            let value = made(ratio, b"key", 3, len);
            assert_eq!(value.len(), len);
            assert!(Values::verify(b"key", &value), "ratio {ratio}, length {len}");
            assert_eq!(Values::epoch(&value), (len > 0).then_some(3));
            if len >= 5 {
                assert!(!Values::verify(b"kez", &value), "ratio {ratio}, length {len}");
            }
        }
    }
    assert!(Values::new(1.01).is_err());
    assert!(Values::new(-0.1).is_err());
    assert!(Values::new(f64::NAN).is_err());
}

/// A changed byte is detected wherever it lies: in the stamp, a piece, a repetition or the last unit.
#[test]
fn every_flipped_bit_is_detected() {
    let (mut rng, seed) = Rng::from_env();
    for ratio in [0.0, 0.3, 0.5, 0.7, 1.0] {
        for len in [8, 9, 100, 400, 1024, 1500, 4000] {
            let value = made(ratio, b"some key", 9, len);
            for at in 0..len {
                let mut damaged = value.clone();
                damaged[at] ^= 1 << rng.below(8);
                let place = format!("ratio {ratio}, byte {at} of {len}, TERRACE_SEED={seed}");
                assert!(!Values::verify(b"some key", &damaged), "{place}");
            }
        }
    }
}

#[test]
fn a_shifted_or_truncated_value_is_detected() {
    let value = made(0.5, b"k", 1, 400);
    assert!(!Values::verify(b"k", &value[1..]));
    assert!(!Values::verify(b"k", &value[..399]));
    assert_ne!(value, made(0.5, b"k", 2, 400), "epochs differ");
}

/// A page full of values compresses to the given ratio, up to the overhead of framing.
#[cfg(feature = "zstd")]
#[test]
fn a_codec_reaches_the_compression_ratio() {
    for (ratio, len) in [(0.25, 400), (0.5, 100), (0.5, 400), (0.5, 4000), (0.75, 1000), (1.0, 400)]
    {
        let mut page = Vec::new();
        for number in 0u32..1000 {
            page.extend(made(ratio, &number.to_le_bytes(), 0, len));
            if page.len() >= 4096 {
                break;
            }
        }
        let reached = zstd::bulk::compress(&page, 1).unwrap().len() as f64 / page.len() as f64;
        assert!((reached - ratio).abs() < 0.08, "asked {ratio} at {len} bytes, got {reached:.3}");
    }
}

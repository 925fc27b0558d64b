//! The DEFLATE codec: one raw stream (RFC 1951) per block, without the header and checksum of zlib, because
//! pages have checksums of their own.
//!
//! It compares with stores that use zlib, and hardware compresses it. Zstandard compresses more in less
//! time.

use base::{Account, Charge, Error, Result};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use parking_lot::Mutex;

/// Memory of a compression state: a window of 32 KiB twice, hash chains, and symbols that wait for their
/// codes, bytes.
const STATE_BYTES: u64 = 384 << 10;

/// The levels that a writer may use.
const LEVELS: std::ops::RangeInclusive<i32> = 1..=9;

/// Bytes that a stream may take besides nine bits for each byte.
const STREAM_OVERHEAD: usize = 64;

/// Compresses the blocks of one writer.
pub(crate) struct Compressor {
    state: Compress,
    _charge: Charge,
}

impl Compressor {
    pub(crate) fn new(level: i32, account: &Account) -> Result<Self> {
        if !LEVELS.contains(&level) {
            return Err(Error::invalid("deflate level")
                .expected(format_args!("{LEVELS:?}"))
                .got(level));
        }
        let charge = account.charge(STATE_BYTES)?;
        let level = Compression::new(level.unsigned_abs());
        Ok(Self { state: Compress::new(level, false), _charge: charge })
    }

    /// As [`super::Compressor::compress`].
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        // Room for the longest stream: at level 1 a literal may take nine bits. The library panics at that
        // level if it runs out of room, and a reset leaves a block open.
        out.reserve(raw.len() + raw.len() / 8 + STREAM_OVERHEAD);
        self.state.reset();
        let status = self
            .state
            .compress_vec(raw, out, FlushCompress::Finish)
            .map_err(|error| Error::retry("deflate compression").caused_by(error).never_heals())?;
        if status != Status::StreamEnd {
            return Err(Error::retry("deflate compression").got("a stream too long").never_heals());
        }
        let is_smaller = out.len() <= raw.len();
        if !is_smaller {
            out.clear();
        }
        Ok(is_smaller)
    }
}

/// Decompression states that are not in use: a state takes 40 KiB, and at most [`IDLE_MAX`] idle ones are
/// kept.
static IDLE: Mutex<Vec<Decompress>> = Mutex::new(Vec::new());

const IDLE_MAX: usize = 16;

/// Decompresses `payload` into `raw_bytes` bytes.
///
/// # Errors
/// `Corrupt` if the payload is no whole stream, ends early, or has more bytes.
pub(crate) fn decompress(payload: &[u8], raw_bytes: usize) -> Result<Vec<u8>> {
    let idle = IDLE.lock().pop();
    let mut state = idle.unwrap_or_else(|| Decompress::new(false));
    // One byte more, so that a stream that is too long shows.
    let mut raw = Vec::with_capacity(raw_bytes + 1);
    let status = state.decompress_vec(payload, &mut raw, FlushDecompress::Finish);
    let read = state.total_in();
    state.reset(false);
    let mut idle = IDLE.lock();
    if idle.len() < IDLE_MAX {
        idle.push(state);
    }
    drop(idle);
    let damaged = || {
        let expected = format_args!("a stream of {raw_bytes} bytes once decompressed").to_string();
        Error::corrupt("deflate payload").expected(expected)
    };
    match status {
        Ok(Status::StreamEnd) if raw.len() == raw_bytes && read == payload.len() as u64 => Ok(raw),
        Ok(_) => {
            Err(damaged().got(format_args!("{} bytes from {read} of {}", raw.len(), payload.len())))
        }
        Err(error) => Err(damaged().caused_by(error)),
    }
}

#[cfg(test)]
mod tests {
    use base::{ErrorKind, Rng};

    use super::*;

    fn compressor(level: i32) -> Compressor {
        Compressor::new(level, &Account::unlimited("test")).unwrap()
    }

    #[test]
    fn blocks_round_trip_at_every_level_and_noise_is_not_compressed() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let mut out = vec![9];
        for level in LEVELS {
            let mut compressor = compressor(level);
            let mut noise = vec![0; 1 << 20];
            rng.fill(&mut noise);
            assert!(!compressor.compress(&noise, &mut out).unwrap());
            for round in 0..40 {
                let most = if round == 0 { 1 << 20 } else { 20_000 };
                let mut raw = vec![b'x'; 1 + rng.below(most) as usize];
                let noise = rng.below(raw.len() as u64 + 1) as usize;
                rng.fill(&mut raw[..noise]);
                if compressor.compress(&raw, &mut out).unwrap() {
                    assert!(out.len() <= raw.len());
                    assert_eq!(decompress(&out, raw.len()).unwrap(), raw, "round {round}");
                } else {
                    assert!(out.is_empty() && noise * 10 > raw.len() * 9 || raw.len() < 64);
                }
            }
        }
        for level in [0, 10, -1] {
            let error = Compressor::new(level, &Account::unlimited("test")).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    /// Every prefix, every flipped bit, and foreign bytes: an error or a wrong value of the right length, and
    /// never more bytes than asked for.
    #[test]
    fn damaged_streams_are_errors_or_of_the_stated_length() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let raw: Vec<u8> = (0..3000_u32).map(|at| (at % 7) as u8 ^ (at / 100) as u8).collect();
        let mut out = Vec::new();
        assert!(compressor(6).compress(&raw, &mut out).unwrap());
        for end in 0..out.len() {
            assert_eq!(decompress(&out[..end], raw.len()).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let longer = [&out[..], &[0]].concat();
        assert!(decompress(&longer, raw.len()).is_err());
        assert!(decompress(&out, raw.len() - 1).is_err());
        for bit in 0..out.len() * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = decompress(&out, raw.len()) {
                assert_eq!(found.len(), raw.len());
            }
            out[bit / 8] ^= 1 << (bit % 8);
        }
        for _ in 0..5000 {
            let mut noise = vec![0; rng.below(200) as usize];
            rng.fill(&mut noise);
            let found = decompress(&noise, 500);
            assert!(found.map_or(500, |it| it.len()) == 500);
        }
    }
}

//! De-duplication of real files: each is cut into chunks by its content (`FastCDC`), and the fingerprint of
//! each chunk is looked up, and inserted if it is new.
//!
//! One thread; memory for one chunk. Symbolic links are not followed, and special files are left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use base::{Error, Result};
use fastcdc::v2020::StreamCDC;
use serde::Serialize;

use crate::figures::ratio;
use crate::{Engine, Latencies, LatencySummary, Store};

/// Bytes of a fingerprint: a cryptographic hash, cut.
const KEY_BYTES: usize = 20;

/// The range of mean chunk lengths that the chunker takes, bytes.
const CHUNK_BYTES_MIN: u64 = 256;
const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// The result of a de-duplication. Field names are an interface that scripts parse.
#[derive(Clone, Debug, Serialize)]
pub struct DedupReport {
    /// `wan`.
    pub bench: &'static str,
    /// The directory.
    pub from: PathBuf,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Chunks, and those that were found.
    pub chunks: u64,
    /// See `chunks`.
    pub found: u64,
    /// Found chunks by all chunks.
    pub hit_share: f64,
    /// Bytes of the chunks that were found, which need not be stored or sent again.
    pub duplicate_bytes: u64,
    /// Wrong answers: a fingerprint that leads to a chunk of another length. Must be 0.
    pub wrong: u64,
    /// Wall time, reading and chunking included, seconds.
    pub seconds: f64,
    /// The rate of the stream.
    pub megabits_per_second: f64,
    /// Latency of an insert, microseconds.
    pub insert_us: LatencySummary,
    /// Latency of a lookup, microseconds.
    pub lookup_us: LatencySummary,
}

/// Refuses a mean length of chunks out of the range of the cutter.
pub(super) fn check_chunk_bytes(chunk_bytes: u64) -> Result<()> {
    if (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return Ok(());
    }
    Err(Error::invalid("chunk size, bytes")
        .expected(format_args!("{CHUNK_BYTES_MIN}..={CHUNK_BYTES_MAX}"))
        .got(chunk_bytes))
}

/// Cuts the files below `dir` into chunks of `chunk_bytes` bytes on average, and looks each up in `engine`.
///
/// # Errors
/// `Invalid` if `chunk_bytes` is out of its range; `Io` for a file that cannot be read; the store's.
pub fn run_dedup(engine: &Engine, dir: &Path, chunk_bytes: u64) -> Result<DedupReport> {
    check_chunk_bytes(chunk_bytes)?;
    let mean = chunk_bytes as usize;
    let (mut inserts, mut lookups) = (Latencies::new()?, Latencies::new()?);
    let (mut files, mut bytes, mut chunks) = (0, 0, 0);
    let (mut found, mut duplicate_bytes, mut wrong) = (0, 0, 0);
    let start = Instant::now();
    // Directories that are left; its length is bounded by the number of directories.
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let failed = |error| Error::io("list", dir.display(), error);
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            if kind.is_dir() {
                left.push(path);
                continue;
            }
            if !kind.is_file() {
                continue;
            }
            files += 1;
            let file = File::open(&path).map_err(|e| Error::io("open", path.display(), e))?;
            for chunk in StreamCDC::new(file, mean / 4, mean, mean * 4) {
                let chunk = chunk
                    .map_err(|e| Error::io("read", path.display(), std::io::Error::other(e)))?;
                let digest = blake3::hash(&chunk.data);
                let key = digest.as_bytes().first_chunk::<KEY_BYTES>();
                let key = key.ok_or_else(|| base::broken_invariant!("a digest has 32 bytes"))?;
                let length = (chunk.data.len() as u32).to_be_bytes();
                let mut is_right = true;
                let began = Instant::now();
                let is_found = engine.get(key, &mut |value| is_right = value.ends_with(&length))?;
                lookups.record(began.elapsed());
                if is_found {
                    found += 1;
                    duplicate_bytes += chunk.data.len() as u64;
                    wrong += u64::from(!is_right);
                } else {
                    let mut pointer = [0; 12];
                    let at = u64::to_be_bytes(bytes).into_iter().chain(length);
                    pointer.iter_mut().zip(at).for_each(|(to, from)| *to = from);
                    let began = Instant::now();
                    engine.put(key, &pointer, false)?;
                    inserts.record(began.elapsed());
                }
                chunks += 1;
                bytes += chunk.data.len() as u64;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    engine.flush()?;
    Ok(DedupReport {
        bench: "wan",
        from: dir.to_owned(),
        files,
        bytes,
        chunks,
        found,
        hit_share: ratio(found as f64, chunks as f64).unwrap_or_default(),
        duplicate_bytes,
        wrong,
        seconds,
        megabits_per_second: ratio(bytes as f64 * 8.0 / 1e6, seconds).unwrap_or_default(),
        insert_us: inserts.summary(),
        lookup_us: lookups.summary(),
    })
}

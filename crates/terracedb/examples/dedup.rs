//! A de-duplicating store of files: each file is cut into chunks by its content, and a chunk that any file
//! had before is stored once.
//!
//! Fingerprints of chunks are in a hashed keyspace, a window: it keeps the newest of them, and evicts the
//! oldest unread, so memory and space are bounded however much is stored. A chunk whose fingerprint was
//! evicted is stored again, which costs space and loses nothing. Chunks and file lists are in ordered
//! keyspaces, and one batch writes a chunk and its fingerprint.
//!
//! ```sh
//! cargo run --example dedup                    # a made-up directory
//! cargo run --release --example dedup -- DIR   # the files below DIR
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use fastcdc::v2020::StreamCDC;
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::stats::format_bytes;
use terracedb::{Db, Keyspace, KeyspaceOptions, WriteBatch};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Mean length of a chunk, bytes; a chunk is at least a quarter and at most four times as long.
const CHUNK_BYTES: usize = 4096;

/// Bytes of fingerprints that the store keeps: at 40 bytes each, those of 6 GB of chunks.
const WINDOW_BYTES: u64 = 64 << 20;

/// The store: which chunks there are, their bytes, and the chunks of each file.
struct Archive {
    db: Db,
    /// Fingerprint of a chunk -> its number.
    fingerprints: Keyspace,
    /// Number of a chunk -> its bytes.
    chunks: Keyspace,
    /// Path of a file -> the numbers of its chunks.
    files: Keyspace,
    /// The number of the next chunk.
    next: u64,
}

/// Counts of one run.
#[derive(Default)]
struct Counts {
    files: u64,
    bytes: u64,
    duplicate_bytes: u64,
}

impl Archive {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::builder(path).memory(64 << 20).open()?;
        let window = HashedPolicy::Window { bytes: WINDOW_BYTES, discard: Discard::Fifo };
        let window = KeyspaceOptions::new().hashed(window);
        let fingerprints = db.open_or_create_keyspace_opt("fingerprints", &window)?;
        let chunks = db.open_or_create_keyspace("chunks")?;
        let files = db.open_or_create_keyspace("files")?;
        let next = match chunks.iter()?.next_back() {
            Some(last) => u64::from_be_bytes(last?.0[..].try_into()?) + 1,
            None => 0,
        };
        Ok(Self { db, fingerprints, chunks, files, next })
    }

    /// Stores the file at `path`, and only those of its chunks that no file had before.
    fn store(&mut self, path: &Path, counts: &mut Counts) -> Result<()> {
        let mut numbers = Vec::new();
        for chunk in
            StreamCDC::new(File::open(path)?, CHUNK_BYTES / 4, CHUNK_BYTES, CHUNK_BYTES * 4)
        {
            let data = chunk?.data;
            let fingerprint = blake3::hash(&data);
            counts.bytes += data.len() as u64;
            let number = match self.fingerprints.get(fingerprint.as_bytes())? {
                Some(number) => {
                    counts.duplicate_bytes += data.len() as u64;
                    u64::from_be_bytes(number[..].try_into()?)
                }
                None => {
                    let number = self.next;
                    self.next += 1;
                    let mut batch = WriteBatch::new();
                    batch.put(&self.chunks, number.to_be_bytes(), &data)?;
                    batch.put(&self.fingerprints, fingerprint.as_bytes(), number.to_be_bytes())?;
                    self.db.write(&batch)?;
                    number
                }
            };
            numbers.extend_from_slice(&number.to_be_bytes());
        }
        self.files.put(path.as_os_str().as_encoded_bytes(), &numbers)?;
        counts.files += 1;
        Ok(())
    }

    /// The content of the file that was stored under `path`; `None` if there is none.
    fn load(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let Some(numbers) = self.files.get(path.as_os_str().as_encoded_bytes())? else {
            return Ok(None);
        };
        let keys: Vec<_> = numbers.chunks(8).collect();
        let mut content = Vec::new();
        for chunk in self.chunks.multi_get(&keys)? {
            content.extend_from_slice(&chunk?.ok_or("a chunk of a file is missing")?);
        }
        Ok(Some(content))
    }
}

/// The regular files below `dir`, in order.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => left.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                // Symbolic links and special files are not stored.
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Two versions of a text, the second with a line more at its start, and a copy of the first.
fn make_up_files(dir: &Path) -> Result<()> {
    let line = |n: u64| format!("{n}: {:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n << 17);
    let text: String = (0..20_000).map(line).collect();
    fs::create_dir_all(dir.join("copy"))?;
    fs::write(dir.join("one.txt"), &text)?;
    fs::write(dir.join("copy/one.txt"), &text)?;
    let mut second = File::create(dir.join("two.txt"))?;
    second.write_all(b"A line that shifts all others.\n")?;
    second.write_all(text.as_bytes())?;
    Ok(())
}

fn main() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (from, is_made_up) = match std::env::args_os().nth(1) {
        Some(dir) => (PathBuf::from(dir), false),
        None => (scratch.path().join("files"), true),
    };
    if is_made_up {
        make_up_files(&from)?;
    }
    let path = scratch.path().join("store");
    let mut archive = Archive::open(&path)?;
    let mut counts = Counts::default();
    let files = files_below(&from)?;
    for file in &files {
        archive.store(file, &mut counts)?;
    }
    let Counts { files: stored, bytes, duplicate_bytes } = counts;
    println!(
        "{stored} files of {}: {} were duplicates",
        format_bytes(bytes),
        format_bytes(duplicate_bytes)
    );

    // The store outlives the process; every file comes back as it was.
    drop(archive);
    let archive = Archive::open(&path)?;
    for file in &files {
        let content = archive.load(file)?.ok_or("a file is missing")?;
        assert!(content == fs::read(file)?, "{} changed", file.display());
    }
    assert!(archive.load(Path::new("none"))?.is_none());
    if is_made_up {
        // The copy is found whole, and of the shifted text all but the chunks around the new line.
        assert!(duplicate_bytes * 100 > bytes * 60, "{duplicate_bytes} of {bytes}");
    }
    Ok(())
}

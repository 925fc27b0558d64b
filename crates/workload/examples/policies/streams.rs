//! Streams of keys to compare policies on: zipfian ones, one of them with scans in between, and the traces in
//! a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use base::{Result, Rng, key_hash};
use terrace_workload::Zipf;
use terrace_workload::trace::{Access, Format};

/// A stream of keys.
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) keys: Vec<u64>,
}

impl Stream {
    /// The number of distinct keys.
    pub(crate) fn footprint(&self) -> usize {
        self.keys.iter().collect::<HashSet<_>>().len()
    }
}

/// The files of the public traces.
const TRACES: [(&str, Format); 5] = [
    ("OLTP.lis.zst", Format::Lis),
    ("P3.lis.zst", Format::Lis),
    ("scarab-recs.trace.xz", Format::U64Be),
    ("web07.trace.xz", Format::U32),
    ("cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral),
];

/// All streams. The first argument names the directory of the traces.
pub(crate) fn all() -> Result<Vec<Stream>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let mut streams = Vec::new();
    for skew in [0.8, 0.99, 1.1] {
        streams.push(Stream { name: format!("zipfian {skew}"), keys: zipfian(skew)? });
    }
    streams.push(Stream {
        name: "zipfian 0.99 and scans".to_owned(),
        keys: with_scans(zipfian(0.99)?),
    });
    for (name, format) in TRACES {
        match directory.as_ref().map(|directory| directory.join(name)) {
            Some(path) if path.exists() => {
                streams.push(Stream { name: name.to_owned(), keys: keys_of(&path, format)? });
            }
            _ => println!("skipped: {name}, for it is not in the directory given"),
        }
    }
    Ok(streams)
}

/// Two million reads of 200,000 keys.
fn zipfian(skew: f64) -> Result<Vec<u64>> {
    let (zipf, mut rng) = (Zipf::new(200_000, skew)?, Rng::new(1));
    Ok((0..2_000_000).map(|_| key_hash(&zipf.draw(&mut rng).to_le_bytes())).collect())
}

/// `keys`, mixed with as many keys that are read once, in scans of 20,000.
fn with_scans(keys: Vec<u64>) -> Vec<u64> {
    let mut scanned = 0u64;
    let mut scan = || {
        scanned += 1;
        key_hash(&(scanned << 32).to_le_bytes())
    };
    let chunks = keys.chunks(20_000);
    chunks
        .flat_map(|keys| {
            keys.iter().copied().chain(keys.iter().map(|_| scan())).collect::<Vec<_>>()
        })
        .collect()
}

fn keys_of(path: &Path, format: Format) -> Result<Vec<u64>> {
    let (mut trace, mut access) = (format.open(path)?, Access::default());
    let mut keys = Vec::new();
    while trace.next(&mut access)? {
        keys.push(key_hash(&access.key));
    }
    Ok(keys)
}

//! Counters without reading them first: an operand is written as it comes, and merged when the key
//! is read or compacted. Also an operator of one's own.
//!
//! ```sh
//! cargo run --example merge
//! ```

use std::error::Error;
use std::sync::Arc;
use std::thread;

use terracedb::operators::I64Add;
use terracedb::{Db, KeyspaceOptions, MergeOperator};

/// Keeps the longest of what it is given.
#[derive(Debug)]
struct Longest;

impl Longest {
    /// What is kept in the store: another meaning takes another name.
    const NAME: &'static str = "example.longest.1";
}

impl MergeOperator for Longest {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all = base.iter().chain(operands);
        all.copied().max_by_key(|operand| operand.len()).map(<[u8]>::to_vec)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let builder = Db::builder(directory.path()).memory(64 << 20);
    let db = builder.merge_operator(Arc::new(Longest)).open()?;
    let counting = KeyspaceOptions::new().merge_operator(I64Add::NAME);
    let visits = db.keyspace_with("visits", &counting)?;
    let words = db.keyspace_with("words", &KeyspaceOptions::new().merge_operator(Longest::NAME))?;

    // No thread waits for another, and none reads.
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..5000).try_for_each(|_| visits.merge("home", 1i64.to_le_bytes())))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    let count = visits.get("home")?.unwrap_or_default();
    assert_eq!(count[..], 20_000i64.to_le_bytes());

    for word in ["lamp", "lighthouse", "lantern"] {
        words.merge("l", word)?;
    }
    assert_eq!(words.get("l")?.as_deref(), Some(&b"lighthouse"[..]));

    db.compact()?;
    let entries: u64 = db.statistics().keyspaces.iter().map(|it| it.table_entries).sum();
    println!("20,003 operands became {entries} values");
    assert_eq!(entries, 2);
    Ok(())
}

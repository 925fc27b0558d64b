//! Merge operators: counters that are incremented without a read. A write adds an operand, and operands
//! are combined when the key is read or compacted. Also shows a custom merge operator.
//!
//! ```sh
//! cargo run --example merge
//! ```

use std::error::Error;
use std::sync::Arc;
use std::thread;

use terracedb::operators::I64Add;
use terracedb::operators::MergeOperator;
use terracedb::{Db, KeyspaceOptions};

/// Keeps the longest of base value and operands.
#[derive(Debug)]
struct Longest;

impl Longest {
    /// The store records this name; an operator that computes something else needs another name.
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
    let visits = db.create_keyspace_opt("visits", &counting)?;
    let words =
        db.create_keyspace_opt("words", &KeyspaceOptions::new().merge_operator(Longest::NAME))?;

    // No thread reads the counter or waits for another thread.
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
    println!("compaction combined 20,003 operands into {entries} values");
    assert_eq!(entries, 2);
    Ok(())
}

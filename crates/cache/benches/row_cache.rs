//! Times the row cache: `cargo bench -p terrace-cache --bench row_cache`.
//!
//! In processor time: hits by one and by two threads, misses, the cost for a put, and fills that evict other
//! rows. Instructions per hit: run `valgrind --tool=callgrind` with `-- hits 16` at two values of
//! `TERRACE_GETS`, and divide the difference. Figures: docs/ledger.md.

use base::{Account, Result, Rng, Seqno, key_hash};
use rustix::time::{ClockId, clock_gettime};
use terrace_cache::rows::{Row, RowFrom};
use terrace_cache::{RowCache, RowOwner};

const VALUE: [u8; 400] = [7; 400];

/// Bytes of a row and its index entry.
const ROW_BYTES: u64 = 470;

fn main() -> Result<()> {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |case: &str| only.is_empty() || only.iter().any(|name| name == case);
    for mib in [16u64, 512] {
        if !only.is_empty() && !only.contains(&mib.to_string()) {
            continue;
        }
        let cache = RowCache::new(&Account::unlimited("rows"), mib << 20)?;
        let owner = cache.owner();
        let rows = (mib << 20) / ROW_BYTES;
        (0..rows).for_each(|row| fill(&cache, &owner, row));
        if wanted("hits") {
            for threads in [1, 2] {
                time(&cache, &owner, &format!("hit, {threads} threads"), threads, |rng| {
                    rng.below(rows)
                });
            }
        }
        if wanted("misses") {
            time(&cache, &owner, "miss", 1, |rng| rows + rng.below(rows));
        }
        if wanted("puts") {
            let mut rng = Rng::new(5);
            let start = processor_seconds();
            for _ in 0..gets() {
                cache.invalidate(owner.hash(rng.next_u64()));
            }
            report("invalidate another key", mib, start, gets());
        }
        if wanted("fills") {
            let start = processor_seconds();
            (rows..2 * rows).for_each(|row| fill(&cache, &owner, row));
            report("fill that pushes another out", mib, start, rows);
        }
        println!("{:?}", cache.statistics());
    }
    Ok(())
}

/// Number of operations of each kind; `TERRACE_GETS` overrides it.
fn gets() -> u64 {
    let gets = std::env::var("TERRACE_GETS").ok().and_then(|text| text.parse().ok());
    gets.unwrap_or(4_000_000)
}

fn key(row: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key.iter_mut().zip(row.to_be_bytes()).for_each(|(to, from)| *to = from);
    key
}

fn fill(cache: &RowCache, owner: &RowOwner, row: u64) {
    let key = key(row);
    let hash = owner.hash(key_hash(&key));
    let (seqno, as_of) = (Seqno::new(1), Seqno::new(1));
    let row = Row {
        key: &key,
        value: &VALUE,
        packed: false,
        seqno,
        as_of,
        expiry: 0,
        from: RowFrom::Device,
    };
    if let Some(vacancy) = cache.vacancy(owner, hash) {
        let _ = cache.fill(owner, hash, vacancy, row);
    }
}

fn processor_seconds() -> f64 {
    if std::env::var_os("TERRACE_GETS").is_some() {
        // Instruction counts need no clock, and callgrind does not support this one.
        return 0.0;
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn report(what: &str, mib: u64, start: f64, count: u64) {
    let each = (processor_seconds() - start) * 1e9 / count as f64;
    println!("{what:30} {mib:4} MiB: {each:5.0} ns");
}

fn time(
    cache: &RowCache,
    owner: &RowOwner,
    what: &str,
    threads: u64,
    next: impl Fn(&mut Rng) -> u64 + Sync,
) {
    let (seconds, found) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let next = &next;
                scope.spawn(move || {
                    let (mut rng, mut value) = (Rng::new(thread), Vec::with_capacity(512));
                    let start = processor_seconds();
                    let mut found = 0u64;
                    for _ in 0..gets() {
                        let key = key(next(&mut rng));
                        let hash = owner.hash(key_hash(&key));
                        let hit = cache.get(owner, &key, hash, Seqno::new(1), &mut value);
                        found += u64::from(hit.is_some());
                    }
                    (processor_seconds() - start, found)
                })
            })
            .collect();
        let each = threads.into_iter().filter_map(|thread| thread.join().ok());
        each.fold((0.0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    });
    let gets = gets() * threads;
    println!("{what:30} {:5.0} ns, {found} of {gets} found", seconds * 1e9 / gets as f64);
}

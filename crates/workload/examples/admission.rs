//! The hits that admission control of the SCM tier loses, and the writes that it saves, against admitting all
//! pages: `cargo run --release -p terrace-workload --example admission [-- TRACES]`.
//!
//! Both tiers run as in a store (`cache::PageCache` over `cache::ScmTier`, DRAM first), with one step of
//! background work after each access, on a clock that advances by 100 us per access. Every key is a page. SCM
//! has 1, 5, 10 and 25 % of the footprint, DRAM a quarter of that. Only the second half of a stream counts.
//! Each stream runs once more with half of the bytes that admission wrote as its write budget, to find the
//! fullest window of sixty seconds. docs/reproduction.md has the figures.

#[path = "policies/streams.rs"]
mod streams;

use std::sync::Arc;
use std::time::Duration;

use base::{Account, Clock, ManualClock, Result};
use cache::scm::Admission;
use cache::{PageCache, PageKey, PageKind, Placement, ScmHit, ScmOptions, ScmTier};
use media::scm::{Region, Scm};

use streams::Stream;

const PERCENTS: [usize; 4] = [1, 5, 10, 25];
const PAGE: u64 = 4096;
const ACCESS: Duration = Duration::from_micros(100);

/// The smallest tier: a set of slots, its map, its first page, and as much again.
const SLOTS_MIN: usize = 64;

/// The result of a run, over the second half of its stream.
#[derive(Clone, Copy, Default)]
struct RunResult {
    accesses: u64,
    hits: u64,
    bytes: u64,
    /// The most that a window of sixty seconds wrote, as a fraction of its budget.
    fullest: f64,
}

fn main() -> Result<()> {
    println!(
        "| keys | SCM | hits % | admitting all | of its hits | writes a 1000 | admitting all \
         | of its bytes | fullest minute, of its budget |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for stream in &streams::all()? {
        let footprint = stream.footprint();
        for percent in PERCENTS {
            row(stream, percent, (footprint * percent / 100).max(SLOTS_MIN))?;
        }
    }
    Ok(())
}

fn row(stream: &Stream, percent: usize, slots: usize) -> Result<()> {
    let chosen = run(stream, slots, Admission::Chosen, None)?;
    let all = run(stream, slots, Admission::All, None)?;
    let seconds = ACCESS.as_secs_f64() * chosen.accesses as f64;
    let budget = (chosen.bytes as f64 / seconds / 2.0).max(PAGE as f64) as u64;
    let bounded = run(stream, slots, Admission::Chosen, Some(budget))?;
    let ratio = |of: RunResult| 100.0 * of.hits as f64 / of.accesses as f64;
    let writes = |of: RunResult| 1000.0 * of.bytes as f64 / PAGE as f64 / of.accesses as f64;
    println!(
        "| {} | {percent} % | {:.2} | {:.2} | {:.3} | {:.1} | {:.1} | {:.3} | {:.3} |",
        stream.name,
        ratio(chosen),
        ratio(all),
        chosen.hits as f64 / all.hits.max(1) as f64,
        writes(chosen),
        writes(all),
        chosen.bytes as f64 / all.bytes.max(1) as f64,
        bounded.fullest,
    );
    Ok(())
}

fn run(
    stream: &Stream,
    slots: usize,
    admission: Admission,
    write_budget: Option<u64>,
) -> Result<RunResult> {
    let account = Account::unlimited("admission");
    let placement = Placement::DramFirst;
    let options = ScmOptions { placement, write_budget, admission, id: 1, ..ScmOptions::default() };
    // The slots and their map.
    let bytes = (slots + slots / 256 + 18) as u64 * PAGE;
    let scm = Scm::Mapped(Region::anonymous(bytes)?);
    let clock = Arc::new(ManualClock::default());
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let tier = Arc::new(ScmTier::open(scm, options, &account, &time)?);
    // A frame takes a little more than its page.
    let dram = (slots / 4) as u64 * (PAGE + 128);
    let cache = PageCache::new(&account, dram.max(64 * PAGE))?;
    cache.set_lower_tier(&tier);
    let (mut hits, mut start) = (0, (0, 0));
    let mut seconds = vec![0u64; 1];
    let half = stream.keys.len() / 2;
    for (number, key) in stream.keys.iter().enumerate() {
        if number == half {
            start = (hits, tier.statistics().bytes_written);
        }
        hits += u64::from(ask(&cache, &tier, PageKey { file: *key, page: 0 }));
        tier.step(&cache);
        if write_budget.is_some() {
            seconds.resize(clock.monotonic().as_secs() as usize + 1, 0);
            if let Some(second) = seconds.last_mut() {
                *second = tier.statistics().bytes_written;
            }
        }
        clock.advance(ACCESS);
    }
    let whole = |budget: u64| {
        let from = |end: usize| end.checked_sub(60).and_then(|at| seconds.get(at)).copied();
        let window = |(end, bytes): (usize, &u64)| bytes - from(end).unwrap_or(0);
        let most = seconds.iter().enumerate().map(window).max().unwrap_or(0);
        most as f64 / (60 * budget) as f64
    };
    Ok(RunResult {
        accesses: (stream.keys.len() - half) as u64,
        hits: hits - start.0,
        bytes: tier.statistics().bytes_written - start.1,
        fullest: write_budget.map_or(0.0, whole),
    })
}

/// Reads a page, and returns whether one of the tiers had it.
fn ask(cache: &PageCache, tier: &ScmTier, key: PageKey) -> bool {
    if cache.get(key, PageKind::Data).is_some() {
        return true;
    }
    match tier.find(key, PageKind::Data) {
        Some(ScmHit::InPlace(page)) => {
            if !page.is_verified {
                tier.verified(&page);
            }
            true
        }
        Some(ScmHit::Read(_)) => true,
        None => {
            let _ = cache.insert(key, PageKind::Data, &[]);
            false
        }
    }
}

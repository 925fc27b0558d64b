//! The bypass of a tier that is slower than flash, with a simulated clock.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, Rng};
use media::{Medium, MemoryMedium};

use super::Placement;
use super::tests::{MIB, blocks, content, key, memory, options, skewed, timed, upper_tier};
use crate::{PageCache, PageKind};

/// Reads that advance the clock: 100 us from flash, `tier_micros` from the tier. Returns the number of reads
/// from the tier, and the time of all reads, microseconds.
fn timed_reads(cache: &PageCache, clock: &ManualClock, tier_micros: u64, reads: u64) -> [u64; 2] {
    let (tier, began) = (cache.lower_tier().unwrap(), clock.monotonic());
    let (mut rng, mut hits) = (Rng::new(reads), 0);
    for _ in 0..reads {
        let key = key(skewed(&mut rng, 3000));
        if cache.get(key, PageKind::Data).is_none() {
            let found = tier.find(key, PageKind::Data);
            let took = Duration::from_micros(if found.is_some() { tier_micros } else { 100 });
            clock.advance(took);
            match found {
                Some(_) => tier.read_took(took),
                None => tier.flash_took(took),
            }
            if found.is_none() {
                drop(cache.insert(key, PageKind::Data, &content(key)));
            }
            hits += u64::from(found.is_some());
        }
        tier.step(cache);
    }
    let took = clock.monotonic().saturating_sub(began);
    [hits, took.as_micros() as u64]
}

#[test]
fn readers_bypass_a_slow_tier_until_it_is_fast_again() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let clock = Arc::new(ManualClock::default());
    let scm = blocks(&medium, 16 * MIB);
    let tier = timed(scm, options(Placement::DramFirst), &(Arc::clone(&clock) as _));
    let cache = upper_tier(&tier, 2 * MIB);
    let run = |micros, reads| timed_reads(&cache, &clock, micros, reads);
    run(10, 30_000);
    let [fast, _] = run(10, 20_000);
    assert!(fast > 3000 && !tier.is_slow() && tier.statistics().passed == 0, "{fast}");
    run(5000, 8000);
    assert!(tier.is_slow());
    // Once the tier is known to be slow, most reads take the time of flash, and a few keep measuring the
    // tier.
    let before = tier.statistics();
    let [slow, took] = run(5000, 20_000);
    let after = tier.statistics();
    let passed = after.passed - before.passed;
    assert!(slow > 0 && slow * 5000 * 20 < took && passed > fast / 4, "{slow} {passed} {took}");
    assert!(after.refused.slow > before.refused.slow, "{after:?}");
    // The measuring reads take 1/64 of the time, and a few dozen of them decide.
    let rounds = (0..100).take_while(|_| tier.is_slow()).map(|_| run(10, 20_000)[1]).sum::<u64>();
    assert!(!tier.is_slow() && rounds < 10_000_000, "{rounds} us");
    let [again, _] = run(10, 20_000);
    assert!(again > fast / 2, "{again} of {fast}");
}

/// Readers of a tier that has every page never read flash, so its latency would stay unknown.
#[test]
fn a_slow_tier_without_misses_is_compared_with_flash() {
    let (clock, flash) = (Arc::new(ManualClock::default()), Duration::from_micros(100));
    let tier = timed(memory(16 * MIB), options(Placement::ByKind), &(Arc::clone(&clock) as _));
    let cache = upper_tier(&tier, 2 * MIB);
    for page in 0..1000 {
        drop(cache.insert(key(page), PageKind::Data, &content(key(page))));
        while tier.step(&cache) {}
    }
    let mut reads = 0;
    while !tier.is_slow() {
        let found = tier.find(key(reads % 1000), PageKind::Data).is_some();
        let took = if found { Duration::from_millis(2) } else { flash };
        clock.advance(took);
        if found {
            tier.read_took(took)
        } else {
            tier.flash_took(took)
        }
        tier.step(&cache);
        reads += 1;
        assert!(reads < 50_000, "{:?}", tier.bypass);
    }
}

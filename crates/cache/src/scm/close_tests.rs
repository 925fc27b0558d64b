//! Closing a tier with a write budget.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use base::limits::PAGE_BYTES;
use media::{Medium, MemoryMedium};

use super::reference::FoundIn;
use super::tests::{blocks, fill, key, look, options, timed, upper_tier};
use super::*;
use crate::PageKind;

const KIND: PageKind = PageKind::Data;

/// Pages that come back from flash push others out until the second has no budget left. The stored map that
/// was written before then names overwritten slots.
#[test]
fn a_tier_closed_after_a_burst_of_writes_is_found_as_it_was() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let clock = Arc::new(ManualClock::default());
    let (slots, page) = (16, PAGE_BYTES as u64);
    let limited = ScmOptions {
        write_budget: Some(4 * page),
        admission: Admission::All,
        ..options(Placement::ScmFirst)
    };
    let open = || {
        let tier = timed(blocks(&medium, (slots + 2) * page), limited, &(Arc::clone(&clock) as _));
        let cache = upper_tier(&tier, 2 << 20);
        (tier, cache)
    };
    let (tier, cache) = open();
    let read = |pages: Range<u64>| {
        for page in pages {
            if look(&cache, key(page), KIND) == FoundIn::Nowhere {
                fill(&cache, key(page), KIND);
            }
            tier.step(&cache);
        }
    };
    let resident = || -> Vec<u64> {
        (0..3 * slots).filter(|page| tier.map.find(key(*page).hash()).is_some()).collect()
    };
    for _ in 0..2 {
        read(0..slots);
        // Without other writes the map is written.
        clock.advance(Duration::from_secs(1));
        tier.step(&cache);
    }
    assert_eq!(resident(), Vec::from_iter(0..slots));
    let refused = tier.statistics().refused.budget;
    read(slots..3 * slots);
    assert!(tier.statistics().refused.budget > refused);
    let before = resident();
    let written = before.iter().filter(|page| **page >= slots).count();
    assert!(before.len() == 16 && written > 8, "{before:?}");
    drop((cache, tier));
    let (tier, cache) = open();
    let found: Vec<u64> =
        (0..3 * slots).filter(|page| look(&cache, key(*page), KIND) == FoundIn::Scm).collect();
    let counts = tier.statistics();
    assert_eq!((found, counts.restored, counts.damaged), (before, slots, 0));
}

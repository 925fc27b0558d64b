//! Pages that verify as the page asked for, because they have its identity, but are another.

use std::sync::Arc;

use media::{Medium, MemoryMedium};

use super::tests::{MIB, account, blocks, content, fill, key, memory, options, tier, upper_tier};
use super::{Placement, ScmHit};
use crate::PageKind;

/// As after a crash that left a page of a diverged copy of the store: it verifies as the page that was asked
/// for.
#[test] // I8
fn the_tag_tells_a_page_from_one_of_the_same_name() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    for scm in [memory(8 * MIB), blocks(&medium, 8 * MIB)] {
        let tier = tier(scm, options(Placement::ScmFirst));
        let cache = upper_tier(&tier, 2 * MIB);
        fill(&cache, key(7), PageKind::Data);
        tier.step(&cache);
        let slot = tier.map.find(key(7).hash()).unwrap();
        let mut others = content(key(7));
        others[1] ^= 4;
        let mut writer = tier.backing.writer(&account(), 1).unwrap();
        writer.write(&tier.backing, tier.layout.page_of(slot), &others, || {}).unwrap();
        writer.finish().unwrap();
        let (mut is_scrubbed, mut damaged) = (false, 1);
        match tier.find(key(7), PageKind::Data) {
            None => {}
            Some(ScmHit::InPlace(page)) => panic!("{page:?}"),
            Some(ScmHit::Read(read)) => {
                assert!(read.may_be(&content(key(7))) && !read.may_be(&others));
                damaged = 0;
            }
        }
        assert_eq!(tier.statistics().damaged, damaged);
        let scrubbed = tier.scrub(key(7), |_| {
            is_scrubbed = true;
            true
        });
        assert_eq!((scrubbed, is_scrubbed), ((damaged == 0).then_some(false), false));
        assert_eq!(tier.statistics().damaged, 1);
        assert!(tier.find(key(7), PageKind::Data).is_none());
    }
}

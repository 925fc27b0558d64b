//! A tier that lost its memory: nothing that was read there counts, and the tier turns off.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use base::Reclaim;
use media::scm::Scm;
use tempfile::TempDir;

use super::tests::{MIB, content, fill, key, look, options, tier, upper_tier};
use super::*;
use crate::{PageCache, PageKind};

const KIND: PageKind = PageKind::Data;

/// A tier in a file, filled with pages, and the file, to cut it.
struct Cut {
    tier: Arc<ScmTier>,
    cache: PageCache,
    file: File,
    _folder: TempDir,
}

/// `None` if the system has no file system in memory.
fn cut() -> Option<Cut> {
    let shm = Path::new("/dev/shm");
    if cfg!(miri) || !shm.is_dir() {
        println!("skipped: there is no /dev/shm");
        return None;
    }
    let folder = tempfile::tempdir_in(shm).unwrap();
    let place = folder.path().to_str().unwrap().parse().unwrap();
    let scm = Scm::open(&place, 8 * MIB, b"TERRASCM").unwrap();
    let tier = tier(scm, options(Placement::ScmFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    for page in 0..500 {
        fill(&cache, key(page), KIND);
        tier.step(&cache);
    }
    // Verifies the pages in the tier, and takes them out of DRAM.
    cache.reclaim(u64::MAX);
    for page in 0..500 {
        look(&cache, key(page), KIND);
    }
    let file = OpenOptions::new().write(true).open(folder.path().join("terrace.scm")).unwrap();
    Some(Cut { tier, cache, file, _folder: folder })
}

impl Cut {
    /// Pages that the tier holds and has verified.
    fn pages(&self) -> Vec<u64> {
        let is_below = |page: &u64| self.tier.peek(key(*page)).is_some();
        (0..500).filter(is_below).collect()
    }

    fn cut(&self) {
        self.file.set_len(0).unwrap();
    }

    fn is_off(&self) -> bool {
        let statistics = self.tier.statistics();
        assert_eq!(statistics.damaged, 0, "a loss is no damage");
        self.tier.failure().is_some()
    }
}

#[test]
fn peek_of_lost_memory_returns_nothing() {
    let Some(it) = cut() else { return };
    let pages = it.pages();
    assert!(pages.len() > 100, "{}", pages.len());
    assert_eq!(*it.tier.peek(key(pages[0])).unwrap(), content(key(pages[0])));
    it.cut();
    assert!(it.tier.peek(key(pages[0])).is_none() && it.is_off());
}

#[test]
fn lost_memory_is_no_hit() {
    let Some(it) = cut() else { return };
    let page = it.pages()[0];
    it.cut();
    // The map still finds the page; the loss shows only when its memory is read.
    match it.tier.find(key(page), KIND) {
        Some(ScmHit::InPlace(found)) => {
            assert_ne!(*found.page, content(key(page)));
            assert!(found.page.is_lost());
        }
        other => assert!(other.is_none() && it.is_off(), "{other:?}"),
    }
    assert!(it.tier.find(key(page), KIND).is_none() && it.is_off());
}

#[test]
fn pages_in_lost_memory_are_not_promoted() {
    let Some(it) = cut() else { return };
    drop(it.tier.pending.take_promotions());
    let pages: Vec<u64> = it.pages().into_iter().take(40).collect();
    let (first, second) = pages.split_at(20);
    let promote = |pages: &[u64]| {
        assert!(pages.iter().all(|page| it.tier.pending.promote(key(*page), KIND)));
        it.tier.step(&it.cache);
        pages.iter().filter(|page| it.cache.peek(key(**page)).is_some()).count()
    };
    assert_eq!(promote(first), 20);
    it.cut();
    assert_eq!(promote(second), 0);
    assert!(it.is_off());
}

#[test]
fn a_scrub_of_lost_memory_reports_no_result() {
    let Some(it) = cut() else { return };
    let page = it.pages()[0];
    let is_right = |bytes: &[u8]| *bytes == content(key(page));
    assert_eq!(it.tier.scrub(key(page), is_right), Some(true));
    it.cut();
    assert_eq!(it.tier.scrub(key(page), is_right), None);
    assert!(it.is_off());
}

#[test]
fn writes_into_lost_memory_turn_the_tier_off() {
    let Some(it) = cut() else { return };
    it.cut();
    for page in 1000..1100 {
        fill(&it.cache, key(page), KIND);
        it.tier.step(&it.cache);
    }
    assert!(it.is_off());
}

#[test]
fn reading_lost_memory_fails_at_open() {
    let Some(it) = cut() else { return };
    it.cut();
    let read = it.tier.backing.read(0, <[u8]>::to_vec);
    assert!(read.unwrap_err().to_string().contains("its file was cut"));
}

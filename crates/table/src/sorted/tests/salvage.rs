//! Salvage reads the readable parts of a damaged table, and reports the lost ones.

use super::damage::{everything, with_content};
use super::*;
use crate::sorted::salvage::{LostKeys, RangeDeletesFound, SalvageReport, Salvaged, salvage};
use crate::{Fragment, Header, PageKind, RangeDelete, RangeDeletes};

/// The items of a salvage.
struct Left {
    versions: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    lost: Vec<LostKeys>,
    ranges: Vec<RangeDelete>,
    report: SalvageReport,
}

impl Left {
    fn of(medium: &Arc<dyn Medium>) -> Self {
        let (mut versions, mut lost, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        let account = Account::unlimited("test");
        let mut visit = |salvaged: Salvaged<'_>| {
            match salvaged {
                Salvaged::Version { key, trailer, value } => {
                    versions.push((key.to_vec(), trailer, value.to_vec()));
                }
                Salvaged::Lost(keys) => lost.push(keys),
                Salvaged::RangeDelete(Fragment { start, end, seqnos }) => {
                    ranges.extend(seqnos.iter().map(|seqno| RangeDelete {
                        start: start.clone(),
                        end: end.clone(),
                        seqno: *seqno,
                    }));
                }
            }
            Ok(())
        };
        let report =
            salvage(&**medium, STORE, TABLE, &NoDictionaries, None, &account, &mut visit).unwrap();
        assert_eq!(account.used(), 0);
        assert_eq!(report.versions, versions.len() as u64);
        assert_eq!(report.lost_ranges, lost.len() as u64);
        Self { versions, lost, ranges, report }
    }

    /// Every version is present, or its key lies in a range reported lost; there is no other version.
    fn check(&self, model: &Model, location: &str) {
        let mut left = self.versions.iter().peekable();
        for ((key, trailer), value) in model {
            if left.next_if(|it| it.0 == *key && it.1 == trailer.0 && it.2 == *value).is_some() {
                continue;
            }
            let covers = |lost: &LostKeys| {
                lost.after.as_ref().is_none_or(|after| after <= key)
                    && lost.before.as_ref().is_none_or(|before| key <= before)
            };
            assert!(self.lost.iter().any(covers), "{location}: `{}`", key.escape_ascii());
        }
        assert!(left.next().is_none(), "{location}: something that was never written");
    }
}

#[test]
fn an_undamaged_table_is_salvaged_completely() {
    let codecs = codecs();
    for codec in codecs {
        let (model, content) = everything(codec);
        let left = Left::of(&with_content(content));
        left.check(&model, "whole");
        assert!(left.lost.is_empty() && left.report.lost_pages == 0);
        assert_eq!(left.report.range_deletes, RangeDeletesFound::All);
        assert_eq!(RangeDeletes::build(left.ranges).seqnos().len(), 3);
    }
}

/// Whichever page is damaged, all versions on other pages come back, and the keys on it are reported.
#[test]
fn a_damaged_page_costs_only_its_own_versions() {
    let (model, content) = everything(Codec::Lz4);
    let clean = open(&with_content(content.clone())).unwrap();
    let footer = *clean.footer();
    for page in 0..footer.pages {
        let mut damaged = content.clone();
        damaged[page as usize * PAGE_BYTES + 77] ^= 4;
        let header = Header::parse(&content[page as usize * PAGE_BYTES..][..PAGE_BYTES]).unwrap();
        let left = Left::of(&with_content(damaged));
        let location = format!("page {page} ({})", header.kind.name());
        left.check(&model, &location);
        let lost = model.len() - left.versions.len();
        let is_data = header.kind == PageKind::Data;
        assert_eq!((lost > 0, left.lost.len()), (is_data, usize::from(is_data)), "{location}");
        assert!(lost <= 2048, "{location}: {lost} are more than a block has");
        if let [range] = &left.lost[..] {
            assert!(range.pages.contains(&page), "{location}: {range:?}");
        }
        assert_eq!(left.report.range_deletes, RangeDeletesFound::All, "{location}");
        assert_eq!(RangeDeletes::build(left.ranges).seqnos().len(), 3, "{location}");
    }
}

/// With both footers and all but one part of either tail copy lost, the rest gives the range deletes, or
/// whether there were any.
#[test]
fn range_deletes_are_found_without_a_footer() {
    let (_, content) = everything(Codec::Lz4);
    let footer = *open(&with_content(content.clone())).unwrap().footer();
    let pages = footer.range_deletes..footer.pages - 2;
    let found = |lost: &dyn Fn(u32) -> bool| {
        let mut damaged = content.clone();
        for page in
            pages.clone().filter(|page| lost(*page)).chain([footer.pages - 2, footer.pages - 1])
        {
            damaged[page as usize * PAGE_BYTES + 77] ^= 4;
        }
        Left::of(&with_content(damaged)).report.range_deletes
    };
    let Footer { range_deletes, top, copy, .. } = footer;
    let copy = copy.unwrap();
    assert_eq!(found(&|_| false), RangeDeletesFound::All);
    assert_eq!(found(&|page| page == range_deletes), RangeDeletesFound::All);
    assert_eq!(found(&|page| page == range_deletes || page == copy), RangeDeletesFound::Lost);
    // The top level alone is not enough: the page before it is lost.
    assert_eq!(found(&|page| page != top), RangeDeletesFound::Unknown);
    assert_eq!(found(&|page| page != copy), RangeDeletesFound::All);
    assert_eq!(found(&|_| true), RangeDeletesFound::Unknown);
}

/// Any number of damaged pages, without a footer, or with the end cut off.
#[test] // I8
fn salvage_returns_every_block_that_verifies() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (model, content) = everything(Codec::Lz4);
    let pages = (content.len() / PAGE_BYTES) as u64;
    for round in 0..150 {
        let mut damaged = content.clone();
        let flips = if rng.one_in(3) { 2 * pages } else { 6 };
        for _ in 0..rng.below(flips) {
            let at = rng.below(content.len() as u64) as usize;
            damaged[at] ^= 1 << rng.below(8);
        }
        match rng.below(4) {
            0 => damaged.truncate(rng.below(content.len() as u64) as usize),
            1 => {
                let tail = damaged.len() - PAGE_BYTES * (1 + rng.below(5) as usize);
                damaged[tail..].fill(0);
            }
            _ => {}
        }
        let left = Left::of(&with_content(damaged));
        left.check(&model, &format!("seed {seed} round {round}"));
    }
    for content in [Vec::new(), vec![0; 100], vec![0; 5 * PAGE_BYTES]] {
        let left = Left::of(&with_content(content));
        assert!(left.versions.is_empty() && left.lost.len() == 1);
        assert_eq!(left.report.range_deletes, RangeDeletesFound::Unknown);
    }
}

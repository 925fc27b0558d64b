use super::super::filter::filter_bytes;
use super::super::meta_builder::{MetaBuilder, NextBlock};
use super::*;
use crate::page::seal_page;
use base::limits::PAGE_BYTES;
use base::{Codec, DictionaryId, EntryKind, PageSeed, Seqno, StoreId, TableId};

fn page(builder: &mut MetaBuilder) -> Box<[u8; PAGE_BYTES]> {
    let mut content = Vec::new();
    builder.encode(&mut content).unwrap();
    let header = Header {
        kind: PageKind::Meta,
        codec: Codec::None,
        number: 0,
        dictionary: DictionaryId(0),
        payload_bytes: content.len() as u32,
        raw_bytes: content.len() as u32,
        straddle: None,
    };
    let mut page = Box::new([0; PAGE_BYTES]);
    seal_page(&mut page, PageSeed::new(StoreId(1), TableId(1)), 0, &header, &content);
    page
}

fn partition(width: u8, pages_of: impl Fn(usize) -> usize) -> MetaBuilder {
    let mut builder = MetaBuilder::new(width, Layout::Sorted);
    builder.start(100);
    for block in 0..50usize {
        let key = format!("key{block:03}").into_bytes();
        let separator = Separator { key, trailer: None };
        let hashes: Vec<u64> = (0..20).map(|i| base::hash64(block as u64, &[i])).collect();
        let first_key = separator.key.clone();
        let next = NextBlock {
            first_key: &first_key,
            pages: pages_of(block),
            hashes: &hashes,
            marks: None,
        };
        assert!(builder.fits(&separator, next));
        builder.add((block > 0).then_some(separator), next);
    }
    builder
}

#[test]
fn filter_separators_and_pages_are_read_in_place() {
    for (runs, width) in [(false, 8), (true, 8), (false, 12), (true, 5), (true, 0)] {
        let pages_of = |block: usize| if runs && block % 10 == 3 { 4 } else { 1 };
        let page = page(&mut partition(width, pages_of));
        let meta = MetaPage::parse(&*page).unwrap();
        let mut first = 100;
        for block in 0..50 {
            let pages = pages_of(block) as u32;
            assert_eq!(meta.block_pages(block).unwrap(), (first, pages));
            first += pages;
            let key = format!("key{block:03}x");
            let at = Trailer::new(Seqno::new(1), EntryKind::Put);
            assert_eq!(meta.search(key.as_bytes(), at).unwrap(), block);
            assert!((0..20).all(|i| meta.may_contain(base::hash64(block as u64, &[i]))));
        }
        assert_eq!(meta.data_pages(), (100, first - 100));
        assert_eq!(meta.filter_bytes(), filter_bytes(1000, width));
        assert!(meta.block_pages(50).is_err());
    }
}

#[test]
fn a_block_of_many_keys_gets_the_widest_filter_that_fits() {
    let mut builder = MetaBuilder::new(FILTER_BITS_MAX, Layout::Sorted);
    builder.start(0);
    let hashes: Vec<u64> = (0..2048)
        .map(|number: u64| base::hash64(1, &[number as u8, (number >> 8) as u8]))
        .collect();
    builder.add(None, NextBlock { first_key: b"key", pages: 1, hashes: &hashes, marks: None });
    let page = page(&mut builder);
    let meta = MetaPage::parse(&*page).unwrap();
    assert_eq!(meta.filter_bytes(), filter_bytes(2048, 15));
    assert!(hashes.iter().all(|hash| meta.may_contain(*hash)));
}

#[test]
fn a_damaged_metadata_page_never_panics() {
    let clean = page(&mut partition(8, |block| 1 + block % 2));
    for at in 0..PAGE_BYTES {
        let mut page = clean.clone();
        page[at] ^= 0xff;
        let Ok(meta) = MetaPage::parse(&*page) else { continue };
        for block in 0..meta.blocks().min(60) {
            let _ = (meta.block_pages(block), meta.separator(block));
            let _ = meta.search(format!("key{block:03}").as_bytes(), Trailer::from_word(9));
        }
        let _ = meta.may_contain(7);
    }
}

/// A partition with bins: blocks of one page, of several, of many, and within a bin.
fn with_bins(is_listed: bool) -> MetaBuilder {
    let layout = Layout::decode(20).unwrap();
    let mut builder = MetaBuilder::new(3, layout);
    builder.start(100);
    for block in 0..200u64 {
        let within = is_listed && block % 20 == 9;
        let bin = if within { block - 1 } else { block } * 64;
        let mut first_key = (bin << 44).to_be_bytes().to_vec();
        first_key.extend(block.to_be_bytes());
        let pages = if is_listed && block == 50 { 40 } else { 1 + block as usize % 3 };
        let next = NextBlock { first_key: &first_key, pages, hashes: &[block], marks: None };
        let separator = Separator { key: first_key.clone(), trailer: None };
        assert!(builder.fits(&separator, next));
        builder.add((block > 0).then_some(separator), next);
    }
    builder
}

#[test]
fn bins_lead_to_their_blocks() {
    for is_listed in [false, true] {
        let page = page(&mut with_bins(is_listed));
        let meta = MetaPage::parse(&*page).unwrap();
        meta.check(Layout::decode(20).unwrap()).unwrap();
        assert!(meta.check(Layout::Sorted).is_err());
        let (mut at, mut expected, mut before) = (Some(0), 100, None);
        let mut number = 0u64;
        while let Some(block) = at {
            let (first, pages) = meta.block_pages(block).unwrap();
            assert_eq!((first, meta.before(block).unwrap()), (expected, before));
            let mut key = meta.separator(block).unwrap().map(|it| it.key).unwrap_or_default();
            let trailer = Trailer::new(Seqno::new(1), EntryKind::Put);
            assert_eq!(meta.search(&key, trailer).unwrap(), block);
            key.extend([0; 20]);
            assert_eq!(meta.search(&key, trailer).unwrap(), block, "block {number}");
            (at, before) = (meta.after(block).unwrap(), Some(block));
            (expected, number) = (first + pages, number + 1);
        }
        assert_eq!((meta.blocks(), before), (number as usize, meta.last().ok()));
        assert_eq!(meta.data_pages(), (100, expected - 100));
    }
}

/// Whatever a page with bins states, its blocks lie in the partition, and a walk of them ends.
#[test]
fn a_damaged_metadata_page_with_bins_never_panics() {
    for is_listed in [false, true] {
        let clean = page(&mut with_bins(is_listed));
        let mut refused = 0;
        for at in (0..1400 * 8).step_by(3) {
            let mut page = clean.clone();
            page[at / 8] ^= 1 << (at % 8);
            let Ok(meta) = MetaPage::parse(&*page) else { continue };
            let (first, pages) = meta.data_pages();
            refused += usize::from(meta.check(Layout::decode(20).unwrap()).is_err());
            let (mut next, mut walked) = (Some(0), 0);
            while let Some(block) = next {
                if let Ok((start, count)) = meta.block_pages(block) {
                    assert!(count > 0 && start >= first && start + count <= first + pages);
                }
                let _ = (meta.separator(block), meta.before(block), meta.first_bin(block));
                let Ok(after) = meta.after(block) else { break };
                assert!(after.is_none_or(|after| after > block));
                (next, walked) = (after, walked + 1);
            }
            assert!(walked <= pages);
            for key in [&[][..], &[9; 9], &[0xff; 12]] {
                let trailer = Trailer::from_word(9);
                if let Ok(block) = meta.search(key, trailer) {
                    assert!(block < pages as usize);
                }
            }
            let _ = (meta.last(), meta.may_contain(7));
        }
        assert!(refused > 300, "{refused}");
    }
}

//! Rebuilt metadata pages have the same separators as the stored ones.

use super::damage::{everything, with_content};
use super::tail::resealed;
use super::*;
use crate::page::{Header, payload};

#[test]
fn a_rebuilt_metadata_page_leads_to_the_same_blocks() {
    for codec in codecs() {
        let (_, content) = everything(codec);
        let table = open(&with_content(content.clone())).unwrap();
        let (top, account) = (table.top().unwrap(), Account::unlimited("test"));
        assert!(top.partitions() > 1);
        for number in 0..top.partitions() {
            let page = top.partition(number).unwrap().meta_page;
            let rebuilt = table.rebuilt_meta(page, &account).unwrap();
            verify_page(table.seed(), page, &rebuilt[..]).unwrap();
            let rebuilt = MetaPage::parse(&rebuilt[..]).unwrap();
            let stored = MetaPage::parse(&content[page as usize * PAGE_BYTES..][..PAGE_BYTES]);
            let stored = stored.unwrap();
            assert_eq!(rebuilt.data_pages(), stored.data_pages());
            assert_eq!(rebuilt.blocks(), stored.blocks());
            let after = |block: &usize| stored.after(*block).unwrap();
            for block in std::iter::successors(Some(0), after) {
                assert_eq!(rebuilt.after(block).unwrap(), stored.after(block).unwrap());
                assert_eq!(rebuilt.block_pages(block).unwrap(), stored.block_pages(block).unwrap());
                assert_eq!(rebuilt.separator(block).unwrap(), stored.separator(block).unwrap());
            }
            assert!((0..1000).all(|hash| rebuilt.may_contain(hash)), "it has no filter");
            assert!(table.rebuilt_meta(page - 1, &account).is_err(), "no metadata page");
        }
        assert!(table.rebuilt_meta(table.footer().top, &account).is_err(), "no partition's");
        assert_eq!(account.used(), 0);
    }
}

/// If a block is lost too, its keys are unknown.
#[test]
fn a_metadata_page_is_not_rebuilt_from_damaged_blocks() {
    let (_, mut content) = everything(Codec::Lz4);
    let table = open(&with_content(content.clone())).unwrap();
    let account = Account::unlimited("test");
    let partition = table.top().unwrap().partition(1).unwrap();
    content[(partition.first_page as usize + 1) * PAGE_BYTES + 99] ^= 1;
    let table = open(&with_content(content)).unwrap();
    let error = table.rebuilt_meta(partition.meta_page, &account).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt);
    let first = table.top().unwrap().partition(0).unwrap().meta_page;
    table.rebuilt_meta(first, &account).unwrap();
}

/// Two blocks are interchanged under valid checksums: the page is damage, whichever of them comes first.
#[test]
fn a_metadata_page_is_not_rebuilt_from_blocks_out_of_order() {
    let (_, mut content) = everything(Codec::None);
    let table = open(&with_content(content.clone())).unwrap();
    let partition = table.top().unwrap().partition(1).unwrap();
    let (one, other) = (partition.first_page, partition.first_page + 1);
    let stored = [one, other].map(|page| {
        let bytes = &content[page as usize * PAGE_BYTES..][..PAGE_BYTES];
        let header = Header::parse(bytes).unwrap();
        assert_eq!((header.kind, header.run_pages()), (crate::PageKind::Data, 1));
        payload(bytes, &header).unwrap().to_vec()
    });
    resealed(&mut content, STORE, one, |payload| payload.clone_from(&stored[1]));
    resealed(&mut content, STORE, other, |payload| payload.clone_from(&stored[0]));
    let table = open(&with_content(content)).unwrap();
    let error = table.rebuilt_meta(partition.meta_page, &Account::unlimited("test")).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt);
    assert!(error.to_string().contains("order of versions"), "{error}");
}

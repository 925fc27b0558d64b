//! The tail is there twice: whatever is left of the two copies, together they are one.

use super::damage::{everything, with_content};
use super::*;
use crate::page::{Header, payload, seal_page};
use media::{Fault, Faulty, OpKind, Rule};

/// `content` with a byte of each of `pages` flipped.
fn flipped(content: &[u8], pages: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut content = content.to_vec();
    for page in pages {
        content[page as usize * PAGE_BYTES + 100] ^= 2;
    }
    content
}

/// Puts page `page` of `content` anew, its payload changed and its checksum right under `store`.
fn resealed(content: &mut [u8], store: StoreId, page: u32, change: impl Fn(&mut Vec<u8>)) {
    let bytes = &mut content[page as usize * PAGE_BYTES..][..PAGE_BYTES];
    let header = Header::parse(bytes).unwrap();
    let mut stored = payload(bytes, &header).unwrap().to_vec();
    change(&mut stored);
    let seed = base::PageSeed::new(store, TABLE);
    let len = stored.len() as u32;
    let header = Header { payload_bytes: len, raw_bytes: len, ..header };
    seal_page(bytes.first_chunk_mut().unwrap(), seed, page, &header, &stored);
}

fn damages(table: &Table) -> Vec<u32> {
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    report.listed.iter().map(|damage| damage.page).collect()
}

/// A table whose tail is longer than what is read of it at first.
fn long_tail() -> Vec<u8> {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    let account = Account::unlimited("test");
    let mut writer = Writer::create(&shared, spec(Codec::Lz4), &account).unwrap();
    writer.add(b"key", put(1), b"value").unwrap();
    for number in 0..200 {
        let key = |end| format!("{number:0400}{end}").into_bytes();
        writer.add_range_delete(&key("a"), &key("b"), &[Seqno::new(9)]).unwrap();
    }
    writer.finish().unwrap();
    memory.content(&crate::file_name(TABLE)).unwrap()
}

/// Of each pair of pages one may be lost, whichever it is.
#[test]
fn one_page_of_each_pair_is_enough() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for content in [everything(Codec::Lz4).1, long_tail()] {
        one_page_of_each_pair(&mut rng, &content);
    }
}

fn one_page_of_each_pair(rng: &mut Rng, content: &[u8]) {
    let clean = open(&with_content(content.to_vec())).unwrap();
    let footer = *clean.footer();
    let (copy, last) = (footer.copy.unwrap(), footer.pages - 1);
    let pairs: Vec<_> = (footer.range_deletes..copy).chain([last - 1]).collect();
    for page in 0..footer.pages {
        let twin = footer.twin(page);
        assert_eq!(twin.is_some(), page >= footer.range_deletes, "page {page}");
        assert_eq!(twin.and_then(|twin| footer.twin(twin)), twin.map(|_| page));
    }
    assert_eq!(footer.twin(footer.pages), None);
    for round in 0..60 {
        let lost: Vec<u32> = pairs
            .iter()
            .filter_map(|page| match (rng.below(3), footer.twin(*page).unwrap()) {
                (0, _) => None,
                (1, twin) => Some(twin),
                _ => Some(*page),
            })
            .collect();
        let place = format!("round {round}, without {lost:?}");
        let medium = with_content(flipped(content, lost.iter().copied()));
        let table = open(&medium).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(table.footer() == clean.footer() && table.properties() == clean.properties());
        assert!(table.range_deletes() == clean.range_deletes(), "{place}");
        // What opening did not read is found by a check.
        let read_by_copy = lost.iter().any(|page| (copy..last - 1).contains(page) || *page == last);
        assert_eq!(table.tail_damage().is_some(), read_by_copy, "{place}");
        let (mut found, mut told) = (damages(&table), lost.clone());
        found.sort_unstable();
        told.sort_unstable();
        assert_eq!(found, told, "{place}");
    }
}

/// A table that lost both pages of a pair says which page was read last.
#[test]
fn a_pair_that_is_lost_costs_the_table() {
    let (_, content) = everything(Codec::Lz4);
    let footer = *open(&with_content(content.clone())).unwrap().footer();
    for page in footer.copy.unwrap()..footer.pages {
        let lost = [page, footer.twin(page).unwrap()];
        let error = open(&with_content(flipped(&content, lost))).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt, "{error}");
        assert!(
            lost.iter().any(|page| error.to_string().contains(&format!("page {page}"))),
            "{error}"
        );
    }
}

/// A last page that is whole and another's is told as that, and never passed over.
#[test]
fn a_foreign_footer_is_not_passed_over_for_its_copy() {
    let (_, mut content) = everything(Codec::None);
    let last = (content.len() / PAGE_BYTES) as u32 - 1;
    resealed(&mut content, StoreId(9), last, |footer| {
        footer[16..32].copy_from_slice(&9u128.to_le_bytes());
    });
    let error = open(&with_content(content)).unwrap_err().to_string();
    assert!(error.contains("table identity") && error.contains("of store"), "{error}");
}

/// A file that lost its last page, or has one too many, has a footer where none belongs.
#[test]
fn a_footer_in_the_wrong_place_is_none() {
    let (_, content) = everything(Codec::Lz4);
    for cut in 1..4 {
        let error = open(&with_content(content[..content.len() - cut * PAGE_BYTES].to_vec()));
        assert_eq!(error.unwrap_err().kind(), base::ErrorKind::Corrupt, "cut by {cut}");
        let mut longer = content.clone();
        longer.resize(content.len() + cut * PAGE_BYTES, 0);
        let error = open(&with_content(longer)).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt, "longer by {cut}");
    }
}

/// Copies that differ, each with a checksum that matches, are found by a check.
#[test]
fn a_check_compares_the_copies() {
    let (_, content) = everything(Codec::Lz4);
    let clean = open(&with_content(content.clone())).unwrap();
    assert!(damages(&clean).is_empty());
    let footer = *clean.footer();
    for page in [footer.range_deletes, footer.properties, footer.pages - 2] {
        let mut changed = content.clone();
        resealed(&mut changed, STORE, page, |stored| *stored.last_mut().unwrap() ^= 1);
        let table = open(&with_content(changed)).unwrap();
        assert_eq!(damages(&table), [footer.twin(page).unwrap()], "page {page}");
    }
}

/// A read that fails passes by being repeated; where it does not pass, the copy is read, and told.
#[test]
fn a_sector_that_cannot_be_read_costs_nothing() {
    for (times, told) in [(1, false), (2, false), (3, true)] {
        let device = Arc::new(Faulty::new(times));
        let medium: Arc<dyn Medium> = device.clone();
        let model: Model =
            [((b"key".to_vec(), Reverse(put(1))), b"value".to_vec())].into_iter().collect();
        write(&medium, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
        // The read of the whole tail, then the last page by itself.
        let rule = Rule::new(OpKind::Read, Fault::Io).purpose(Purpose::Meta).times(times);
        device.inject(rule).unwrap();
        let table = open(&medium).unwrap();
        assert_eq!(device.struck(), times);
        let damage = table.tail_damage().map(ToString::to_string);
        assert_eq!(damage.is_some(), told, "{damage:?}");
        assert!(Driver::new(&table).get(b"key", put(1)).unwrap().is_some());
    }
}

/// Checksums that match say nothing of what a file holds.
#[test]
fn entries_without_a_partition_and_partitions_without_an_end_are_damage() {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    let account = Account::unlimited("test");
    let mut writer = Writer::create(&shared, spec(Codec::Lz4), &account).unwrap();
    writer.add_range_delete(b"a", b"b", &[Seqno::new(9)]).unwrap();
    writer.finish().unwrap();
    let mut content = memory.content(&crate::file_name(TABLE)).unwrap();
    let footer = *open(&with_content(content.clone())).unwrap().footer();
    for page in [footer.properties, footer.twin(footer.properties).unwrap()] {
        resealed(&mut content, STORE, page, |stored| {
            let properties = Properties::decode(stored).unwrap();
            *stored = Properties { entries: 1, ..properties }.encode();
        });
    }
    let error = open(&with_content(content)).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt, "{error}");

    let (_, mut content) = everything(Codec::Lz4);
    let meta = open(&with_content(content.clone())).unwrap().partition(0).unwrap().meta_page;
    resealed(&mut content, STORE, meta, |stored| stored[4..8].fill(0xff));
    let bytes = content[meta as usize * PAGE_BYTES..][..PAGE_BYTES].to_vec();
    assert_eq!(MetaPage::parse(&bytes).unwrap_err().kind(), base::ErrorKind::Corrupt);
    let table = open(&with_content(content)).unwrap();
    assert!(table.keys_on(0).unwrap().is_some());
}

//! The tail exists twice: either copy of each page is enough.

use super::damage::{everything, with_content};
use super::*;
use crate::page::{Header, payload, seal_page};
use media::{Fault, Faulty, OpKind, Rule};

/// `content` with one byte of each of `pages` flipped.
fn flipped(content: &[u8], pages: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut content = content.to_vec();
    for page in pages {
        content[page as usize * PAGE_BYTES + 100] ^= 2;
    }
    content
}

/// Replaces page `page` of `content`: its payload changed, its checksum valid under `store`.
pub(super) fn resealed(
    content: &mut [u8],
    store: StoreId,
    page: u32,
    change: impl Fn(&mut Vec<u8>),
) {
    let bytes = &mut content[page as usize * PAGE_BYTES..][..PAGE_BYTES];
    let header = Header::parse(bytes).unwrap();
    let mut stored = payload(bytes, &header).unwrap().to_vec();
    change(&mut stored);
    let seed = base::PageSeed::new(store, TABLE);
    let len = stored.len() as u32;
    let header = Header { payload_bytes: len, raw_bytes: len, ..header };
    seal_page(bytes.first_chunk_mut().unwrap(), seed, page, &header, &stored);
}

pub(super) fn damages(table: &Table) -> Vec<u32> {
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    report.listed.iter().map(|damage| damage.page).collect()
}

/// A table with a tail longer than the first read.
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

/// One page of each pair may be lost, whichever it is.
#[test]
fn one_page_of_each_pair_suffices_to_open() {
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
        let location = format!("round {round}, without {lost:?}");
        let medium = with_content(flipped(content, lost.iter().copied()));
        let table = open(&medium).unwrap_or_else(|error| panic!("{location}: {error}"));
        assert!(table.footer() == clean.footer() && table.properties() == clean.properties());
        assert!(**table.range_deletes().unwrap() == **clean.range_deletes().unwrap(), "{location}");
        // A check finds the damaged pages that the open did not read.
        let read_by_copy = lost.iter().any(|page| (copy..last - 1).contains(page) || *page == last);
        assert_eq!(table.tail_damage().is_some(), read_by_copy, "{location}");
        let (mut found, mut expected) = (damages(&table), lost.clone());
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{location}");
    }
}

/// If both pages of a pair are lost, the error names the page that was read last.
#[test]
fn a_table_with_both_copies_of_a_page_lost_does_not_open() {
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

/// A last page that is sound but another table's is an error; its copy is not used.
#[test]
fn a_foreign_footer_is_refused_although_a_copy_exists() {
    let (_, mut content) = everything(Codec::None);
    let last = (content.len() / PAGE_BYTES) as u32 - 1;
    resealed(&mut content, StoreId(9), last, |footer| {
        footer[16..32].copy_from_slice(&9u128.to_le_bytes());
    });
    let error = open(&with_content(content)).unwrap_err().to_string();
    assert!(error.contains("table identity") && error.contains("of store"), "{error}");
}

/// A file without its last page, or with one too many, has a footer at the wrong page.
#[test]
fn a_footer_at_the_wrong_page_is_refused() {
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

/// A check finds copies that differ although both checksums match.
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

/// A failed read is repeated; if it keeps failing, the copy is read, and the damage is reported.
#[test]
fn an_unreadable_sector_in_the_tail_costs_nothing() {
    for (times, is_reported) in [(1, false), (2, false), (3, true)] {
        let device = Arc::new(Faulty::new(times));
        let medium: Arc<dyn Medium> = device.clone();
        let model: Model =
            [((b"key".to_vec(), Reverse(put(1))), b"value".to_vec())].into_iter().collect();
        write(&medium, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
        // The read of the whole tail, then the last page alone.
        let rule = Rule::new(OpKind::Read, Fault::Io).purpose(Purpose::Meta).times(times);
        device.inject(rule).unwrap();
        let table = open(&medium).unwrap();
        assert_eq!(device.struck(), times);
        let damage = table.tail_damage().map(ToString::to_string);
        assert_eq!(damage.is_some(), is_reported, "{damage:?}");
        assert!(Driver::new(&table).get(b"key", put(1)).unwrap().is_some());
    }
}

/// A matching checksum does not make the content consistent.
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

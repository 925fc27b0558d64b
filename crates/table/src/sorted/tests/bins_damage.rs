//! Damaged and wrong indexes of tables with bins: no answer is wrong, and a check finds them.

use super::bins::{bins_spec, content_of, stored_key};
use super::compact::{HASH_KEY, compact_content};
use super::damage::with_content;
use super::meta_builder::{MetaBuilder, NextBlock};
use super::separator::Separator;
use super::tail::{damages, resealed};
use super::*;
use base::ErrorKind;

/// A table of several partitions, with the blocks of a sorted table or compact ones.
fn sample(is_compact: bool) -> (Model, Vec<u8>) {
    let mut model = Model::new();
    for number in 0..9000u64 {
        let user = number.to_be_bytes();
        let hash = if is_compact { HASH_KEY.hash(&user) } else { key_hash(&user) };
        model.insert((stored_key(hash, &user), Reverse(put(1))), vec![number as u8; 60]);
    }
    let spec = bins_spec(Codec::None, 13, 10);
    let content = match is_compact {
        true => compact_content(spec, &model, HASH_KEY),
        false => content_of(spec, &model),
    };
    let table = open(&with_content(content.clone())).unwrap();
    assert!(table.properties().meta_pages > 2 && table.layout() != Layout::Sorted);
    (model, content)
}

/// All keys of `model` are found.
fn is_whole(table: &Arc<Table>, model: &Model, step: usize) {
    let mut driver = Driver::new(table);
    for ((key, at), value) in model.iter().step_by(step) {
        assert_eq!(driver.get(key, at.0).unwrap().unwrap().1, value);
    }
    assert_eq!(driver.meta_spans, 0);
}

/// Every byte of a metadata page: the open notices the flip, and rebuilds the page from the data.
#[test]
fn a_flipped_byte_of_an_index_page_costs_no_key() {
    [false, true].into_iter().for_each(flip_the_index);
}

fn flip_the_index(is_compact: bool) {
    let (model, mut content) = sample(is_compact);
    let clean = open(&with_content(content.clone())).unwrap();
    let partition = clean.partition(1).unwrap();
    assert!(clean.tail_damage().is_none());
    for at in 0..PAGE_BYTES {
        let at = partition.meta_page as usize * PAGE_BYTES + at;
        content[at] ^= 1 << (at % 8);
        let table = open(&with_content(content.clone())).unwrap();
        let error = table.tail_damage().unwrap();
        assert!(error.to_string().contains(&format!("page {}", partition.meta_page)), "{error}");
        is_whole(&table, &model, 999);
        if at.is_multiple_of(512) {
            assert_eq!(damages(&table), [partition.meta_page]);
        }
        content[at] ^= 1 << (at % 8);
    }
}

/// If a data page is lost too, the partition's index cannot be rebuilt: its keys fail, and no others.
#[test]
fn a_lost_index_and_a_lost_data_page_cost_their_partition() {
    [false, true].into_iter().for_each(lose_index_and_data);
}

fn lose_index_and_data(is_compact: bool) {
    let (model, mut content) = sample(is_compact);
    let partition = open(&with_content(content.clone())).unwrap().partition(1).unwrap();
    for page in [partition.first_page + 2, partition.meta_page] {
        content[page as usize * PAGE_BYTES + 77] ^= 1;
    }
    let table = open(&with_content(content)).unwrap();
    let mut driver = Driver::new(&table);
    let (mut found, mut failed) = (0, 0);
    for ((key, at), value) in &model {
        match driver.get(key, at.0) {
            Ok(read) => {
                assert_eq!(read.unwrap().1, value);
                found += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let top = table.top().unwrap();
                assert_eq!(top.search(key, at.0).unwrap(), 1);
                failed += 1;
            }
        }
    }
    assert!(found > 3000 && failed > 1000, "{found} {failed}");
}

/// The content with the index of partition 1 replaced: `bins` changes the first bins of its pages.
fn with_index(content: &[u8], bits: u8, bins: impl Fn(&mut Vec<u64>)) -> Vec<u8> {
    let table = open(&with_content(content.to_vec())).unwrap();
    let partition = table.partition(1).unwrap();
    let pinned = table.pinned().unwrap();
    let meta = pinned.get(1).unwrap();
    let mut first: Vec<u64> =
        (0..meta.blocks()).map(|block| meta.first_bin(block).unwrap().unwrap().bin).collect();
    bins(&mut first);
    let layout = Layout::decode(bits).unwrap();
    let mut builder = MetaBuilder::new(0, layout);
    builder.start(partition.first_page);
    for (block, bin) in first.iter().enumerate() {
        let first_key = (bin << (64 - u32::from(bits))).to_be_bytes();
        let separator = Separator { key: first_key.to_vec(), trailer: None };
        let next = NextBlock { first_key: &first_key, pages: 1, hashes: &[], marks: None };
        builder.add((block > 0).then_some(separator), next);
    }
    let mut content = content.to_vec();
    let mut index = Vec::new();
    builder.encode(&mut index).unwrap();
    resealed(&mut content, STORE, partition.meta_page, |payload| payload.clone_from(&index));
    content
}

/// An index with a valid checksum and wrong bins, as a bug of a writer would make it: a check finds it,
/// and lookups that reach a page other than the one described fail.
#[test]
fn a_wrong_index_is_found_by_a_check_and_not_believed_by_lookups() {
    [false, true].into_iter().for_each(shift_the_index);
}

fn shift_the_index(is_compact: bool) {
    let (model, content) = sample(is_compact);
    is_whole(&open(&with_content(with_index(&content, 13, |_| {}))).unwrap(), &model, 1);
    let shifted = with_index(&content, 13, |bins| {
        // Every page but the first seems to begin where the one after it does.
        let last = *bins.last().unwrap();
        bins.remove(1);
        bins.push(last + 1);
    });
    let table = open(&with_content(shifted)).unwrap();
    assert!(table.tail_damage().is_none());
    // Not only the digest of the file, which a writer with such a bug would state right.
    let partition = table.partition(1).unwrap();
    let found = damages(&table);
    assert!(found.iter().any(|page| (partition.first_page..partition.meta_page).contains(page)));
    let mut driver = Driver::new(&table);
    let (mut failed, mut absent) = (0, 0);
    for ((key, at), value) in &model {
        match driver.get(key, at.0) {
            Ok(Some(found)) => assert_eq!(found.1, value),
            // The first page's own bin is right, so a lookup cannot tell.
            Ok(None) => absent += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains("bin index"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 1000 && absent < 60, "{failed} {absent}");
    let mut cursor = TableCursor::new(Arc::clone(&table));
    cursor.seek_first();
    let mut walked = Ok(true);
    while matches!(walked, Ok(true)) {
        walked = driver.step(&mut cursor);
        cursor.next();
    }
    assert_eq!(walked.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Bins of other bits than the table's: the page counts as damaged, and is rebuilt.
#[test]
fn wrong_bin_bits_are_found_at_open_and_by_a_check() {
    [false, true].into_iter().for_each(change_the_bin_bits);
}

fn change_the_bin_bits(is_compact: bool) {
    let (model, content) = sample(is_compact);
    let halved = with_index(&content, 12, |bins| bins.iter_mut().for_each(|bin| *bin /= 2));
    let table = open(&with_content(halved)).unwrap();
    let error = table.tail_damage().unwrap().to_string();
    assert!(error.contains("layout of a partition"), "{error}");
    is_whole(&table, &model, 1);
    assert_eq!(damages(&table), [table.partition(1).unwrap().meta_page]);
    // A table with properties that lie about its bins.
    let mut content = content;
    let footer = *table.footer();
    for page in [footer.properties, footer.properties + footer.copy.unwrap() - footer.range_deletes]
    {
        resealed(&mut content, STORE, page, |payload| {
            let mut properties = Properties::decode(payload).unwrap();
            assert_eq!(properties.bin_bits, 13);
            properties.bin_bits = 57;
            *payload = properties.encode();
        });
    }
    let error = open(&with_content(content)).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.to_string().contains("bin bits"),
        "{error}"
    );
}

/// A salvage needs no index, and a lost data page costs its keys.
#[test]
fn a_salvage_reads_the_blocks_without_the_index() {
    [false, true].into_iter().for_each(salvage_blocks);
}

fn salvage_blocks(is_compact: bool) {
    let (model, mut content) = sample(is_compact);
    let table = open(&with_content(content.clone())).unwrap();
    for number in 0..3 {
        let page = table.partition(number).unwrap().meta_page as usize;
        content[page * PAGE_BYTES + 9] ^= 1;
    }
    content[5 * PAGE_BYTES + 9] ^= 1;
    let (mut found, account) = (Vec::new(), Account::unlimited("test"));
    let medium = with_content(content);
    let mut visit = |salvaged: Salvaged<'_>| {
        if let Salvaged::Version { key, trailer, value } = salvaged {
            found.push(((key.to_vec(), Reverse(trailer)), value.to_vec()));
        }
        Ok(())
    };
    let report =
        salvage(&*medium, STORE, TABLE, &NoDictionaries, None, &account, &mut visit).unwrap();
    assert!(found.is_sorted() && found.iter().all(|(version, value)| model[version] == *value));
    let lost = model.len() - found.len();
    assert!((10..80).contains(&lost) && report.lost_pages == 4, "{lost} {report:?}");
}

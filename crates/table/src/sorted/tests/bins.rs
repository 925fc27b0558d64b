//! Tables with bins: against a map for any hash, and the space and reads that they promise.

use base::KeyRange;

use super::damage::with_content;
use super::model::{agrees_with, model};
use super::*;
use crate::Bounds;
use crate::page::PAYLOAD_BYTES;

/// A key that begins with `hash`.
pub(super) fn stored_key(hash: u64, key: &[u8]) -> Vec<u8> {
    [&hash.to_be_bytes()[..], key].concat()
}

pub(super) fn bins_spec(codec: Codec, bits: u8, filter_bits: u8) -> Spec {
    Spec { layout: Layout::decode(bits).unwrap(), filter_bits, ..spec(codec) }
}

/// The versions of `model` under keys that begin with their hash by `hash`.
fn hashed(model: &Model, hash: impl Fn(&[u8]) -> u64) -> Model {
    let entries = model.iter();
    entries.map(|((key, at), value)| ((stored_key(hash(key), key), *at), value.clone())).collect()
}

/// The file of a table of `model`.
pub(super) fn content_of(spec: Spec, model: &Model) -> Vec<u8> {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    let account = Account::unlimited("test");
    write(&shared, spec, model, &account).unwrap();
    assert_eq!(account.used(), 0);
    memory.content(&crate::file_name(TABLE)).unwrap()
}

/// A hash of 8 bits, one hash for all keys, and a whole one; bins longer than 16 pages and empty ones;
/// every codec, and any number of bins and filter bits.
#[test]
fn reads_of_tables_with_bins_agree_with_a_map() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (mut long_bins, mut splits) = (0, 0);
    for round in 0..24usize {
        let plain = model(&mut rng);
        let bits = [1, 6, 8, 12, 20, 56][rng.below(6) as usize];
        let model = hashed(&plain, |key| match round % 3 {
            0 => key_hash(key),
            1 => key_hash(key) << 56,
            _ => 0x7777_7777_7777_7777,
        });
        let filter_bits = [0, 1, 8, 13][rng.below(4) as usize];
        let codec = codecs()[round % codecs().len()];
        let table = open(&with_content(content_of(bins_spec(codec, bits, filter_bits), &model)));
        let table = table.unwrap_or_else(|error| panic!("round {round}: {error}"));
        agrees_with(&mut rng, &table, &model);
        bounds_are_kept(&mut rng, &table, &model);
        let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "round {round}: {}", report.listed[0]);
        let (long, split) = bins_of(&table);
        (long_bins, splits) = (long_bins + long, splits + split);
    }
    assert!(long_bins > 0 && splits > 0, "{long_bins} {splits}");
}

/// Cursors with bounds see the keys inside them, in both directions.
fn bounds_are_kept(rng: &mut Rng, table: &Arc<Table>, model: &Model) {
    let keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    let mut some = || {
        let mut key = keys[rng.below(keys.len() as u64) as usize].clone();
        key.truncate(1 + rng.below(key.len() as u64) as usize);
        key
    };
    for _ in 0..6 {
        let (first, end) = (some(), some());
        let inside = || keys.iter().filter(|key| first <= ***key && ***key < end);
        let bounds =
            Bounds { first: Some(Bytes::from(first.clone())), end: Some(Bytes::from(end.clone())) };
        let mut driver = Driver::new(table);
        let mut cursor = TableCursor::with_bounds(Arc::clone(table), bounds);
        cursor.seek_first();
        for expected in inside() {
            assert!(driver.step(&mut cursor).unwrap());
            assert_eq!(cursor.key(), &***expected);
            cursor.next();
        }
        assert!(!driver.step(&mut cursor).unwrap());
        cursor.seek_last();
        for expected in inside().rev() {
            assert!(driver.step(&mut cursor).unwrap());
            assert_eq!(cursor.key(), &***expected);
            cursor.prev();
        }
        assert!(!driver.step(&mut cursor).unwrap());
    }
}

/// The number of bins of more than 16 pages, and of blocks that begin within a bin.
fn bins_of(table: &Table) -> (usize, usize) {
    let (mut pages, mut splits) = (BTreeMap::<u64, u32>::new(), 0);
    for number in 0..table.top().unwrap().partitions() {
        let pinned = table.pinned().unwrap();
        let meta = pinned.get(number).unwrap();
        let mut before = None;
        let after = |block: &usize| meta.after(*block).unwrap();
        for block in std::iter::successors(Some(0), after) {
            let bin = meta.first_bin(block).unwrap().map(|it| it.bin);
            *pages.entry(bin.unwrap()).or_default() += meta.block_pages(block).unwrap().1;
            splits += usize::from(before == bin);
            before = bin;
        }
    }
    (pages.values().filter(|pages| **pages > 16).count(), splits)
}

/// A bin of several pages is read with one read. A bin of a hundred pages is cut within, and a read needs
/// one part. So does one with an entry of 50 pages among others.
#[test]
fn a_read_in_a_bin_of_any_length_needs_one_read() {
    for (entries, blocks, longest) in [(30u64, 1, 0), (300, 20, 0), (30, 20, 200_000)] {
        let mut model = Model::new();
        for number in 0..entries {
            let mut value = vec![0; 1000];
            Rng::new(number).fill(&mut value);
            model.insert(
                (stored_key(5 << 50, &number.to_be_bytes()), Reverse(put(7))),
                value.clone(),
            );
            model.insert((stored_key((number + 9) << 55, b"other"), Reverse(put(7))), value);
        }
        if longest > 0 {
            let key = stored_key(5 << 50, &15u64.to_be_bytes());
            model.insert((key, Reverse(put(7))), vec![9; longest]);
        }
        let content = content_of(bins_spec(Codec::None, 10, 8), &model);
        let table = open(&with_content(content)).unwrap();
        let (long, splits) = bins_of(&table);
        assert_eq!(long, usize::from(blocks > 1));
        assert!(if blocks == 1 { splits == 0 } else { (1..blocks).contains(&splits) }, "{splits}");
        let mut driver = Driver::new(&table);
        for ((key, at), value) in &model {
            let before = driver.data_spans;
            assert_eq!(driver.get(key, at.0).unwrap().unwrap().1, value);
            assert_eq!(driver.data_spans - before, 1);
        }
        assert_eq!(driver.meta_spans, 0);
        assert_eq!(driver.get(&stored_key(5 << 50, b"none"), put(9)).unwrap(), None);
    }
}

/// Sizes of entries, encoded: all equal, uniform, or lognormal, around `mean` bytes.
fn sizes(kind: &str, mean: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut sizes: Vec<f64> = (0..count)
        .map(|_| match kind {
            "fixed" => 1.0,
            "uniform" => 0.5 + rng.unit(),
            _ => {
                let (radius, angle) = ((-2.0 * rng.unit().max(1e-12).ln()).sqrt(), rng.unit());
                (radius * (std::f64::consts::TAU * angle).cos()).exp()
            }
        })
        .collect();
    let scale = (mean * count) as f64 / sizes.iter().sum::<f64>();
    sizes.iter_mut().for_each(|size| *size = (*size * scale).round().max(30.0));
    sizes.into_iter().map(|size| size as usize).collect()
}

/// The bits of index per entry, and the pages per lookup of a present key, are within 5 % and 1 % of the
/// figures of a model of bins that are aligned to pages: entries of 64 to 1024 bytes, 64 bins a page.
#[test]
fn the_index_takes_the_bits_per_entry_that_the_model_predicts() {
    let mut rng = Rng::new(1);
    for (mean, kind, bits, reads) in [
        (64, "fixed", 0.131, 1.0),
        (64, "uniform", 0.132, 1.0),
        (256, "fixed", 0.546, 1.0),
        (256, "uniform", 0.537, 1.0),
        (256, "lognormal", 0.559, 1.0008),
        (512, "fixed", 1.15, 1.0),
        (512, "uniform", 1.10, 1.0),
        (512, "lognormal", 1.19, 1.0071),
        (1024, "fixed", 2.61, 1.0),
        (1024, "uniform", 2.34, 1.0001),
        (1024, "lognormal", 2.56, 1.043),
    ] {
        // As many bytes as give 64 bins a page.
        let pages = 4096;
        let count = pages * PAYLOAD_BYTES / mean;
        let mut hashes: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let bytes = (count * mean) as u64;
        let layout = Layout::bins(bytes, b"", None);
        assert_eq!(layout.encode(), 18);
        let spec = Spec { layout, filter_bits: 0, ..spec(Codec::None) };
        let medium = medium();
        let mut writer = Writer::create(&medium, spec, &Account::unlimited("test")).unwrap();
        let value = vec![7; 1 << 20];
        for (hash, size) in hashes.iter().zip(sizes(kind, mean, count, &mut rng)) {
            // Besides its value an entry takes about 11 bytes, most of them for what remains of its key.
            let value = &value[..size.saturating_sub(if size < 138 { 10 } else { 11 })];
            writer.add(&stored_key(*hash, b"k"), put(9), value).unwrap();
        }
        let properties = writer.finish().unwrap().properties;
        let found = properties.block_bytes as f64 / properties.entries as f64;
        assert!((found / mean as f64 - 1.0).abs() < 0.04, "{mean} {kind}: {found}");
        let table = open(&medium).unwrap();
        let top = table.footer().properties - table.footer().top;
        assert_eq!(top, 1, "the top level is short");
        let index = properties.meta_bytes as f64 * 8.0 / properties.entries as f64;
        // Scaled to the entry size of the model, because the entries of this table differ a little from it.
        let index = index * mean as f64 / found;
        println!("{mean} {kind}: {index:.3} bits, {bits} predicted");
        assert!((index / bits - 1.0).abs() < 0.05, "{mean} {kind}: {index} bits, {bits} predicted");
        let mut driver = Driver::new(&table);
        let (mut needed, mut lookups) = (0, 0);
        for hash in hashes.iter().step_by(17) {
            let key = stored_key(*hash, b"k");
            let mut read = PointRead::new(Arc::clone(&table), &key, key_hash(&key), put(9));
            let Step::Need(span) = read.step(None).unwrap() else { panic!("no page") };
            assert!(!span.meta, "the index is in memory");
            let Step::Ready(found) = read.step(Some(driver.fetch(span).unwrap())).unwrap() else {
                panic!("a second read")
            };
            assert!(found.is_some());
            (needed, lookups) = (needed + span.pages, lookups + 1);
        }
        let found = f64::from(needed) / f64::from(lookups);
        println!("{mean} {kind}: {found:.4} pages, {reads} predicted");
        assert!((found - reads).abs() < 0.012, "{mean} {kind}: {found} pages, {reads} predicted");
    }
}

/// The index and the filter are charged as pinned memory while the table is open, and no more.
#[test]
fn metadata_pages_are_charged_while_the_table_is_open() {
    let mut model = Model::new();
    for number in 0..20_000u64 {
        let hash = key_hash(&number.to_le_bytes());
        model.insert((stored_key(hash, b"k"), Reverse(put(1))), vec![3; 30]);
    }
    let medium = with_content(content_of(bins_spec(Codec::None, 14, 12), &model));
    let account = Account::unlimited("tables");
    let open = |account: &Account| {
        Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), account)
    };
    let table = open(&account).unwrap();
    let meta_bytes = table.properties().meta_bytes;
    assert!(meta_bytes > 30_000 && table.properties().meta_pages > 5);
    assert_eq!(account.used(), table.pinned_bytes());
    assert!((meta_bytes..meta_bytes + 3000).contains(&table.pinned_bytes()));
    drop(table);
    assert_eq!(account.used(), 0);
    let budget = base::Budget::new(20 << 10);
    assert!(open(&budget.account("tables")).unwrap_err().is_retryable(), "memory is short");
    assert_eq!(budget.used(), 0);
    let table = open(&account).unwrap();
    let driver = &mut Driver::new(&table);
    let absent = (0..4000u64).map(|number| stored_key(key_hash(&[number as u8, 7, 3]), b"no"));
    absent.for_each(|key| assert_eq!(driver.get(&key, put(9)).unwrap(), None));
    assert_eq!((driver.meta_spans, driver.data_spans), (0, 0), "a filter of 12 bits");
}

/// Trimming gives back the memory of partitions that the live ranges do not meet. Every key is still found,
/// through the page cache where its metadata page is gone.
#[test]
fn trimmed_metadata_pages_give_their_memory_back() {
    let mut model = Model::new();
    for number in 0..20_000u64 {
        let hash = key_hash(&number.to_le_bytes());
        model.insert((stored_key(hash, b"k"), Reverse(put(1))), vec![3; 30]);
    }
    let medium = with_content(content_of(bins_spec(Codec::None, 14, 12), &model));
    let account = Account::unlimited("tables");
    let table = Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), &account);
    let table = table.unwrap();
    let (whole, filters) = (table.pinned_bytes(), table.pinned_filter_bytes());
    assert!(table.has_filters() && filters > 30_000 && filters < whole);
    table.trim(&[KeyRange::all()]).unwrap();
    assert_eq!(table.pinned_bytes(), whole);
    let mut old_cursor = TableCursor::new(Arc::clone(&table));
    let quarters = [KeyRange::new(b"", Some(&[0x40])), KeyRange::new(&[0x80], Some(&[0xc0]))];
    table.trim(&quarters).unwrap();
    assert!(account.used() > table.pinned_bytes(), "the cursor keeps what it had");
    let driver = &mut Driver::new(&table);
    old_cursor.seek_first();
    assert!(driver.step(&mut old_cursor).unwrap());
    drop(old_cursor);
    assert_eq!(account.used(), table.pinned_bytes());
    let part = table.pinned_bytes() as f64 / whole as f64;
    assert!((0.4..0.75).contains(&part), "two quarters, rounded to partitions: {part}");
    assert!(table.pinned_filter_bytes() < filters * 3 / 4);
    for (key, _) in model.keys() {
        driver.meta_spans = 0;
        assert!(driver.get(key, put(9)).unwrap().is_some());
        let is_live = quarters.iter().any(|range| range.holds(key));
        assert!(!is_live || driver.meta_spans == 0, "a live key needs its data page only");
    }
    let mut cursor = TableCursor::new(Arc::clone(&table));
    let mut found = 0;
    cursor.seek_first();
    while driver.step(&mut cursor).unwrap() && cursor.trailer().is_some() {
        found += 1;
        cursor.next();
    }
    assert_eq!(found, model.len());
    table.trim(&[]).unwrap();
    assert_eq!(table.pinned_filter_bytes(), 0);
    assert!(driver.get(&model.keys().next().unwrap().0, put(9)).unwrap().is_some());
}

/// A probe of the pinned filters answers as a read does: yes for every key, no for nearly all others. It says
/// nothing about a hash with which a partition begins, a partition that was given back, and a table that
/// pins no filters.
#[test]
fn pinned_filters_answer_by_hash() {
    let mut model = Model::new();
    for number in 0..20_000u64 {
        let hash = key_hash(&number.to_le_bytes());
        // An eighth of the range of hashes: partitions are not where evenly spread hashes lead to.
        for hash in [hash, hash >> 3 | 0x6000_0000_0000_0000] {
            model.insert((stored_key(hash, b"k"), Reverse(put(1))), vec![3; 8]);
        }
    }
    let hash_of = |key: &[u8]| u64::from_be_bytes(key[..8].try_into().unwrap());
    let medium = with_content(content_of(bins_spec(Codec::None, 14, 12), &model));
    let table = open(&medium).unwrap();
    let filters = table.pinned_filters().unwrap();
    let ask = |filters: &PinnedFilters, key: &[u8]| {
        filters.probe(hash_of(key), key_hash(key)).map(|probe| probe.may_contain())
    };
    assert!(model.keys().all(|(key, _)| ask(&filters, key) == Some(true)));
    let absent = |number: u64| stored_key(key_hash(&number.to_be_bytes()), b"no");
    let admitted = (0..20_000).filter(|number| ask(&filters, &absent(*number)) == Some(true));
    assert!(admitted.count() < 40, "5 are expected of 12 bits");
    let top = table.top().unwrap();
    assert!(top.partitions() > 12);
    for number in 0..top.partitions() - 1 {
        let separator = top.separators().get(number).unwrap().key;
        let mut begins = [0; 8];
        begins.iter_mut().zip(&separator).for_each(|(to, from)| *to = *from);
        assert_eq!(ask(&filters, &begins), None, "two partitions may have it");
        let after = (u64::from_be_bytes(begins) + 1).to_be_bytes();
        assert!(ask(&filters, &after).is_some());
    }
    let half = [KeyRange::new(&[0x80], None)];
    table.trim(&half).unwrap();
    let trimmed = table.pinned_filters().unwrap();
    assert_eq!(ask(&trimmed, &stored_key(0x1234 << 48, b"k")), None);
    assert!(model.keys().all(|(key, _)| key[0] < 0x80 || ask(&trimmed, key) == Some(true)));
    assert!(ask(&filters, &stored_key(0x1234 << 48, b"k")).is_some(), "it keeps what it had");
    let unfiltered = with_content(content_of(bins_spec(Codec::None, 14, 0), &model));
    assert!(open(&unfiltered).unwrap().pinned_filters().is_none());
    let sorted = with_content(content_of(spec(Codec::None), &model));
    assert!(open(&sorted).unwrap().pinned_filters().is_none());
}

#[test]
fn a_table_with_bins_takes_no_short_keys_and_no_copied_blocks() {
    let (medium, account) = (medium(), Account::unlimited("test"));
    let mut writer = Writer::create(&medium, bins_spec(Codec::Lz4, 6, 8), &account).unwrap();
    let error = writer.add(b"seven b", put(1), b"").unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Invalid);
    writer.add(b"eight by", put(1), b"").unwrap();
    writer.finish().unwrap();
    let table = open(&medium).unwrap();
    assert_eq!(table.footer().version, 4);
    let other = Spec { table: TableId(8), ..spec(Codec::Lz4) };
    for (layout, accepted) in [(Layout::Sorted, true), (table.layout(), false)] {
        let writer = Writer::create(&medium, Spec { layout, ..other.clone() }, &account).unwrap();
        let mut cursor = TableCursor::new(Arc::clone(&table));
        cursor.keep_stored(true);
        cursor.seek_first();
        assert!(Driver::new(&table).step(&mut cursor).unwrap());
        let block = cursor.raw_block().unwrap().unwrap();
        assert_eq!(writer.accepts(block), accepted);
    }
}

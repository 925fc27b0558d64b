//! Block passthrough: blocks that are copied from one table to another unchanged.

use super::block::{Block, BlockPosition};
use super::*;
use crate::Bounds;
use crate::codec::decompress;

fn next_table(codec: Codec) -> Spec {
    Spec { table: TableId(8), ..spec(codec) }
}

fn open_next(medium: &Arc<dyn Medium>) -> Arc<Table> {
    let (none, account) = (Arc::new(NoDictionaries), Account::unlimited("test"));
    Table::open(&**medium, STORE, TableId(8), None, None, none, &account).unwrap()
}

/// Rewrites `table` to `medium`: whole blocks if `pass` says so, single entries otherwise.
fn rewrite(
    table: &Arc<Table>,
    medium: &Arc<dyn Medium>,
    spec: Spec,
    mut pass: impl FnMut() -> bool,
) -> Summary {
    let mut writer = Writer::create(medium, spec, &Account::unlimited("test")).unwrap();
    let mut driver = Driver::new(table);
    let mut cursor = TableCursor::new(Arc::clone(table));
    cursor.keep_stored(true);
    cursor.seek_first();
    while driver.step(&mut cursor).unwrap() {
        if cursor.is_at_block_start()
            && pass()
            && let Some(block) = cursor.raw_block().unwrap()
        {
            let raw = decompress(block.codec(), None, block.payload(), block.raw_bytes()).unwrap();
            let mut position = BlockPosition::new();
            position.last(Block::parse(&raw, None).unwrap()).unwrap();
            assert_eq!(block.last().0, position.key());
            writer.add_block(block).unwrap();
            assert_eq!(writer.open_bytes(), 0);
            cursor.next_block();
            continue;
        }
        writer.add(cursor.key(), cursor.trailer().unwrap(), cursor.value_bytes()).unwrap();
        cursor.next();
    }
    writer.finish().unwrap()
}

/// However many blocks are copied unchanged, reads return the same.
#[test]
fn a_table_of_copied_blocks_reads_like_its_source() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for round in 0..12 {
        let model = model::model(&mut rng);
        let codec = codecs()[round % codecs().len()];
        let medium = medium();
        write(&medium, spec(codec), &model, &Account::unlimited("test")).unwrap();
        let table = open(&medium).unwrap();
        let one_in = 1 + rng.below(3);
        let summary = rewrite(&table, &medium, next_table(codec), || rng.one_in(one_in));
        let (before, after) = (table.properties(), &summary.properties);
        let facts = |it: &Properties| {
            let Properties { entries, deletes, keys, raw_bytes, seqno_min, seqno_max, .. } = it;
            (*entries, *deletes, *keys, *raw_bytes, *seqno_min, *seqno_max)
        };
        assert_eq!(facts(before), facts(after));
        assert_eq!((&before.first_key, before.end_key()), (&after.first_key, after.end_key()));
        if one_in == 1 && before.runs == 0 {
            assert_eq!((after.passed_blocks, after.compressions), (before.blocks, 0));
            assert_eq!(after.padding_bytes, before.padding_bytes);
            assert_eq!(after.data_pages, before.data_pages);
        }
        let next = open_next(&medium);
        assert_eq!(next.properties(), after);
        let report = next.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{}", report.listed[0]);
        let mut driver = Driver::new(&next);
        let mut cursor = TableCursor::new(Arc::clone(&next));
        cursor.seek_first();
        for ((key, trailer), value) in &model {
            assert!(driver.step(&mut cursor).unwrap());
            assert_eq!((cursor.key(), cursor.trailer()), (&key[..], Some(trailer.0)));
            assert!(cursor.value_bytes() == value);
            cursor.next();
        }
        assert!(!driver.step(&mut cursor).unwrap());
        for ((key, trailer), value) in model.iter().step_by(17) {
            let (found, bytes) = driver.get(key, trailer.0).unwrap().unwrap();
            assert!(found == trailer.0 && bytes == value);
        }
    }
}

fn some_blocks() -> (Arc<dyn Medium>, Arc<Table>) {
    let mut model = Model::new();
    for number in 0..1000u64 {
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(number))), vec![7; 50]);
    }
    let medium = medium();
    write(&medium, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    (medium, table)
}

#[test]
fn a_raw_block_is_returned_only_if_it_lies_inside_the_bounds() {
    let (_, table) = some_blocks();
    let mut driver = Driver::new(&table);
    let mut cursor = TableCursor::new(Arc::clone(&table));
    assert!(cursor.raw_block().unwrap().is_none(), "on no entry");
    cursor.seek_first();
    driver.step(&mut cursor).unwrap();
    assert!(cursor.raw_block().unwrap().is_none(), "not kept");
    cursor.keep_stored(true);
    cursor.next_block();
    assert!(driver.step(&mut cursor).unwrap() && cursor.is_at_block_start());
    let last = cursor.raw_block().unwrap().unwrap().last().0.to_vec();
    assert_eq!(
        cursor.raw_block().unwrap().unwrap().keys(),
        cursor.raw_block().unwrap().unwrap().entries()
    );
    cursor.next();
    driver.step(&mut cursor).unwrap();
    assert!(cursor.raw_block().unwrap().is_none() && !cursor.is_at_block_start());
    // Its last key is the first key outside the bounds.
    let bounds = Bounds { first: None, end: Some(last.into()) };
    let mut bounded = TableCursor::with_bounds(Arc::clone(&table), bounds);
    bounded.keep_stored(true);
    bounded.seek_first();
    driver.step(&mut bounded).unwrap();
    assert!(bounded.raw_block().unwrap().is_some());
    bounded.next_block();
    assert!(driver.step(&mut bounded).unwrap());
    assert!(bounded.raw_block().unwrap().is_none());
    bounded.next_block();
    assert!(!driver.step(&mut bounded).unwrap());
}

#[test]
fn a_writer_refuses_blocks_out_of_order_or_with_another_codec() {
    let (medium, table) = some_blocks();
    let mut driver = Driver::new(&table);
    let mut cursor = TableCursor::new(Arc::clone(&table));
    cursor.keep_stored(true);
    cursor.seek_first();
    driver.step(&mut cursor).unwrap();
    let account = Account::unlimited("test");
    let mut writer = Writer::create(&medium, next_table(Codec::Lz4), &account).unwrap();
    writer.add(b"00000000", put(1), b"").unwrap();
    let block = cursor.raw_block().unwrap().unwrap();
    // The block begins with an older version of the writer's last key, which is in order.
    writer.add_block(block).unwrap();
    let again = writer.add_block(block).unwrap_err();
    assert_eq!(again.kind(), base::ErrorKind::Invalid, "{again}");
    let summary = writer.finish().unwrap();
    assert_eq!(summary.properties.keys + 1, summary.properties.entries);
    assert!(open_next(&medium).check(&account, &mut |_, _| {}).unwrap().is_clean());
}

/// A block needs the dictionary that compressed it, and the table lists its dictionaries.
#[test]
#[cfg(feature = "zstd")]
fn a_block_with_a_foreign_codec_or_dictionary_is_refused() {
    use crate::{Dictionaries, Dictionary};

    #[derive(Debug)]
    struct One(Arc<Dictionary>);
    impl Dictionaries for One {
        fn get(&self, _: base::DictionaryId) -> Result<Arc<Dictionary>> {
            Ok(Arc::clone(&self.0))
        }
    }
    let (mut rng, account) = (Rng::new(2), Account::unlimited("test"));
    let mut words = vec![0; 2000];
    rng.fill(&mut words);
    let samples: Vec<&[u8]> = (0..500).map(|at| &words[at..at + 1000]).collect();
    let bytes = crate::train(&samples, 4 << 10, &account).unwrap();
    let dictionary =
        |id| Arc::new(Dictionary::new(base::DictionaryId(id), &bytes, &account).unwrap());
    let mut model = Model::new();
    for number in 0..300u64 {
        let value = words[number as usize..number as usize + 300].to_vec();
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(1))), value);
    }
    let medium = medium();
    let with = |id| Spec { dictionary: Some(dictionary(id)), ..spec(Codec::Zstd) };
    write(&medium, with(3), &model, &account).unwrap();
    let known = Arc::new(One(dictionary(3)));
    let table = Table::open(&*medium, STORE, TABLE, None, None, known, &account).unwrap();
    let mut cursor = TableCursor::new(Arc::clone(&table));
    cursor.keep_stored(true);
    cursor.seek_first();
    Driver::new(&table).step(&mut cursor).unwrap();
    let block = cursor.raw_block().unwrap().unwrap();
    assert_eq!(block.dictionary(), base::DictionaryId(3));
    for (other, accepted) in [
        (Spec { table: TableId(8), ..with(3) }, true),
        (Spec { table: TableId(9), ..with(4) }, false),
        (Spec { table: TableId(10), ..next_table(Codec::Zstd) }, false),
        (Spec { table: TableId(11), ..next_table(Codec::Lz4) }, false),
    ] {
        let mut writer = Writer::create(&medium, other, &account).unwrap();
        assert_eq!(writer.accepts(block), accepted);
        assert_eq!(writer.add_block(block).is_ok(), accepted);
        assert_eq!(writer.is_empty(), !accepted);
    }
}

//! Writes arbitrary entries to a table with every codec and layout. The entries read back and pass the
//! check, so packing, prefixes, indexes and codecs agree with their readers.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Codec, EntryKind, KeyspaceId, Seqno, StoreId, TableId, Trailer};
use libfuzzer_sys::fuzz_target;
use media::{Buf, Medium, MemoryMedium, Purpose};
use table::{
    HASH_BYTES, Layout, NoDictionaries, Pages, RangeDelete, RangeDeletes, Spec, Step, Table,
    TableCursor, Writer,
};

/// Repetitions of each value, so that inputs of a few bytes make blocks of several pages.
const REPEATS: usize = 32;

fuzz_target!(|input: (u8, u8, Vec<(Vec<u8>, Vec<u8>)>, Vec<(Vec<u8>, Vec<u8>, u8)>)| {
    let (choice, bins, entries, deletes) = input;
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate];
    let codec = codecs[usize::from(choice % 4)];
    // Any byte is a choice: 0 is a sorted table.
    let layout = Layout::decode(bins % 57).expect("at most 56 bits");
    let key_bytes_min = if layout == Layout::Sorted { 1 } else { HASH_BYTES };
    let repeats = if choice & 0x80 > 0 { REPEATS } else { 1 };
    let model: BTreeMap<Vec<u8>, Vec<u8>> = entries
        .into_iter()
        .filter(|(key, _)| key.len() >= key_bytes_min)
        .map(|(key, value)| (key, value.repeat(repeats)))
        .collect();
    if model.is_empty() {
        return;
    }
    let account = Account::unlimited("fuzz");
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (store, id) = (StoreId(7), TableId(1));
    let spec = Spec {
        store,
        table: id,
        keyspace: KeyspaceId(1),
        codec,
        level: 1,
        dictionary: None,
        filter_bits: choice >> 2 & 0xf,
        layout,
        purpose: Purpose::Flush,
        leave: table::Leave::Nothing,
    };
    let mut writer = Writer::create(&medium, spec, &account).expect("a table");
    let trailer = Trailer::new(Seqno::new(5), EntryKind::Put);
    for (key, value) in &model {
        writer.add(key, trailer, value).expect("an entry");
    }
    let deletes = RangeDeletes::build(deletes.into_iter().map(|(start, end, seqno)| {
        let seqno = Seqno::new(u64::from(seqno));
        RangeDelete { start: start.into(), end: end.into(), seqno }
    }));
    for fragment in deletes.iter() {
        let added = writer.add_range_delete(fragment.start, fragment.end, fragment.seqnos);
        added.expect("fragments are in order");
    }
    let summary = writer.finish().expect("a table");
    let bytes = Some(summary.file_bytes);
    let table = Table::open(&*medium, store, id, bytes, None, Arc::new(NoDictionaries), &account);
    let table = table.expect("what was written opens");
    assert_eq!(**table.range_deletes().expect("memory"), deletes);
    let report = table.check(&account, &mut |_, _| ()).expect("memory");
    assert!(report.is_clean(), "{report:?}");
    let mut cursor = TableCursor::new(Arc::clone(&table));
    cursor.seek_first();
    let mut left = model.iter();
    loop {
        let mut supplied = None;
        let valid = loop {
            match cursor.step(supplied.take()).expect("a whole table") {
                Step::Ready(valid) => break valid,
                Step::Need(span) => {
                    let at = u64::from(span.first) * PAGE_BYTES as u64;
                    let buf = Buf::pages(span.pages as usize);
                    let (buf, result) = table.file().read(at, buf, Purpose::Data);
                    result.expect("pages of the file");
                    supplied = Some(Pages::Run(buf));
                }
            }
        };
        let expected = left.next();
        assert_eq!(valid, expected.is_some());
        let Some((key, value)) = expected else { return };
        assert_eq!((cursor.key(), cursor.value_bytes()), (&key[..], &value[..]));
        cursor.next();
    }
});

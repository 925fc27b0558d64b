//! Reads arbitrary bytes as a value file with matching checksums: opens it, checks it, and reads and copies
//! the value that a pointer to each of its pages names.

#![no_main]

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Codec, KeyspaceId, StoreId, TableId};
use libfuzzer_sys::fuzz_target;
use media::{Buf, Medium, MemoryMedium, Purpose};
use table::{
    Header, Pages, Pointer, Step, ValueRead, Values, ValuesSpec, ValuesWriter, values_file_name,
};
use terrace_fuzz::{medium_of, seal_pages};

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(PAGE_BYTES).min(16 * PAGE_BYTES), 0);
    let Some((store, id)) = seal_pages(&mut file) else { return };
    let medium = medium_of(&values_file_name(id), file.clone());
    let account = Account::unlimited("fuzz");
    let Ok(values) = Values::open(&*medium, store, id, None, &account) else { return };
    assert_eq!(Values::store_of(&*medium, id).expect("it was opened"), store);
    let report = values.verify(&mut |_| ()).expect("memory");
    assert_eq!(report.pages, values.footer().pages);
    let copy: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = ValuesSpec {
        store: StoreId(1),
        file: TableId(1),
        keyspace: KeyspaceId(1),
        codec: Codec::Lz4,
        level: 0,
        purpose: Purpose::Compaction,
        leave: table::Leave::Nothing,
    };
    let mut writer = ValuesWriter::create(&copy, spec, &account).expect("memory");
    for (number, page) in (0..).zip(file.chunks_exact(PAGE_BYTES)) {
        let Ok(header) = Header::parse(page) else { continue };
        let key = page.get(25..28).unwrap_or_default();
        let pages = header.run_pages() as u32;
        let bytes = u64::from(header.raw_bytes).saturating_sub(4);
        let pointer = Pointer { file: id, page: number, pages, bytes, expiry: 0 };
        let _ = writer.copy(&values, key, pointer);
        let Ok(mut read) = ValueRead::new(Arc::clone(&values), pointer) else { continue };
        let Ok(Step::Need(span)) = read.step(key, None) else { panic!("pages come first") };
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let (buf, result) = values.file().read(at, Buf::pages(span.pages as usize), Purpose::Data);
        result.expect("pages within the file");
        match read.step(key, Some(Pages::Run(buf))) {
            Ok(Step::Ready(value)) => assert_eq!(value.len() as u64, bytes),
            Ok(Step::Need(_)) => panic!("one span is all it needs"),
            Err(_) => {}
        }
    }
});

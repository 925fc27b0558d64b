//! Tests of value files: written values are read back, and damage costs one value.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Codec, ErrorKind, KeyspaceId, Rng, StoreId, TableId};
use bytes::Bytes;
use media::{Medium, MemoryMedium, Purpose};

use super::*;
use crate::cut::Cut;
use crate::{Pages, Pointer, Step, verify_page};

const STORE: StoreId = StoreId(0x5702e);
const FILE: TableId = TableId(9);

fn spec(codec: Codec) -> ValuesSpec {
    let (keyspace, purpose) = (KeyspaceId(3), Purpose::Flush);
    ValuesSpec {
        store: STORE,
        file: FILE,
        keyspace,
        codec,
        level: 1,
        purpose,
        leave: crate::Leave::Nothing,
    }
}

fn codecs() -> &'static [Codec] {
    match cfg!(feature = "zstd") {
        true => &[Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate],
        false => &[Codec::None, Codec::Lz4, Codec::Deflate],
    }
}

/// Keys and values of many lengths, half of them compressible.
fn values(rng: &mut Rng) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lengths = [0, 1, 4000, 4050, 16_384, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20];
    let value = |(number, length): (usize, &usize)| {
        let mut value = vec![number as u8; *length];
        if number % 2 == 0 {
            rng.fill(&mut value);
        }
        (format!("key{number}").into_bytes(), value)
    };
    lengths.iter().enumerate().map(value).collect()
}

fn write(
    medium: &Arc<dyn Medium>,
    codec: Codec,
    values: &[(Vec<u8>, Vec<u8>)],
) -> (Vec<Pointer>, ValuesSummary) {
    let account = Account::unlimited("test");
    let mut writer = ValuesWriter::create(medium, spec(codec), &account).unwrap();
    let add = |(key, value): &(Vec<u8>, Vec<u8>)| writer.add(key, value, 7).unwrap();
    let pointers = values.iter().map(add).collect();
    let summary = writer.finish().unwrap();
    assert_eq!(account.used(), 0);
    (pointers, summary)
}

fn open(medium: &Arc<dyn Medium>) -> base::Result<Arc<Values>> {
    Values::open(&**medium, STORE, FILE, None, &Account::unlimited("test"))
}

fn read(values: &Arc<Values>, key: &[u8], pointer: Pointer) -> base::Result<Bytes> {
    let mut read = ValueRead::new(Arc::clone(values), pointer)?;
    let Step::Need(span) = read.step(key, None)? else { panic!("a read asks for pages first") };
    assert_eq!((span.first, span.pages, span.meta), (pointer.page, pointer.pages, false));
    let buf = media::Buf::pages(span.pages as usize);
    let at = u64::from(span.first) * PAGE_BYTES as u64;
    let (buf, result) = values.file().read(at, buf, Purpose::Data);
    result?;
    for (number, page) in (span.first..).zip(buf.chunks(PAGE_BYTES)) {
        verify_page(values.seed(), number, page)?;
    }
    match read.step(key, Some(Pages::Run(buf)))? {
        Step::Ready(value) => Ok(value),
        Step::Need(_) => panic!("a read needs one span"),
    }
}

#[test]
fn values_of_every_length_are_read_back_and_copied_unchanged() {
    for codec in codecs() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let written = values(&mut Rng::new(1));
        let (pointers, summary) = write(&medium, *codec, &written);
        assert_eq!(summary.values, written.len() as u64);
        let bytes: usize = written.iter().map(|(_, value)| value.len()).sum();
        assert_eq!(summary.value_bytes, bytes as u64);
        let file = open(&medium).unwrap();
        let account = Account::unlimited("test");
        let copy: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let mut writer = ValuesWriter::create(&copy, spec(*codec), &account).unwrap();
        let mut copied = Vec::new();
        for ((key, value), pointer) in written.iter().zip(&pointers) {
            assert_eq!((pointer.bytes, pointer.expiry), (value.len() as u64, 7));
            assert!(read(&file, key, *pointer).unwrap() == *value);
            assert!(file.value(key, *pointer, Purpose::Scrub).unwrap() == *value);
            let error = read(&file, b"other", *pointer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(
                writer
                    .copy(&file, b"other", Pointer { page: u32::MAX - pointer.pages, ..*pointer })
                    .unwrap_err()
                    .kind(),
                ErrorKind::Corrupt
            );
            copied.push(writer.copy(&file, key, *pointer).unwrap());
        }
        // Values are not compressed again: the copy equals the original in every byte.
        assert_eq!((copied, writer.finish().unwrap()), (pointers, summary));
        let report = file.verify(&mut |_| {}).unwrap();
        assert_eq!((report.values, report.damages), (written.len() as u64, 0));
    }
}

/// Memory of zstd grows with its level and with its input.
#[test]
#[cfg(feature = "zstd")]
fn a_value_is_stored_uncompressed_if_memory_is_short() {
    let value: Vec<u8> = (0..700_000u32).map(|at| (at / 1000) as u8).collect();
    for (cap, is_compressed) in [(6 << 20, false), (24 << 20, true)] {
        let account = Account::unlimited("test");
        account.set_cap(cap);
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let spec = ValuesSpec { level: 22, ..spec(Codec::Zstd) };
        let mut writer = ValuesWriter::create(&medium, spec, &account).unwrap();
        let long = writer.add(b"long", &value, 0).unwrap();
        assert_eq!(long.pages < 10, is_compressed, "{long:?}");
        let short = writer.add(b"short", &value[..60_000], 0).unwrap();
        assert_eq!(short.pages, 1, "the memory for the long value was released");
        writer.finish().unwrap();
        assert_eq!(account.used(), 0);
        let file = open(&medium).unwrap();
        assert!(read(&file, b"long", long).unwrap() == value);
        assert!(read(&file, b"short", short).unwrap() == value[..60_000]);
    }
}

#[test] // I8
fn any_flipped_byte_costs_one_value_and_is_reported() {
    let written: Vec<_> = values(&mut Rng::new(2)).into_iter().take(6).collect();
    for codec in codecs() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let (pointers, summary) = write(&medium, *codec, &written);
        let file = medium.open(&crate::values_file_name(FILE), media::Access::Direct).unwrap();
        let footer_at = summary.file_bytes - PAGE_BYTES as u64;
        let (mut rng, seed) = Rng::from_env();
        for round in 0..60 {
            let at = if round == 0 { footer_at } else { rng.below(summary.file_bytes) };
            let (page_at, offset) =
                (at - at % PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let flip = |bit: u8| {
                let (mut page, result) = file.read(page_at, media::Buf::pages(1), Purpose::Data);
                result.unwrap();
                page[offset] ^= bit;
                file.write(page_at, page, Purpose::Data).1.unwrap();
            };
            flip(1 << (round % 8));
            let page = (page_at / PAGE_BYTES as u64) as u32;
            match open(&medium) {
                Err(error) => {
                    assert!(page_at == footer_at && error.kind() == ErrorKind::Corrupt, "{error}");
                    // The values are still readable.
                    let account = Account::unlimited("test");
                    let left = Values::open_damaged(&*medium, STORE, FILE, &account).unwrap();
                    for ((key, value), pointer) in written.iter().zip(&pointers) {
                        assert!(left.value(key, *pointer, Purpose::Scrub).unwrap() == *value);
                    }
                    let footer = Pointer { page, pages: 1, bytes: 1, ..pointers[0] };
                    assert!(left.value(b"key0", footer, Purpose::Scrub).is_err());
                }
                Ok(values) => {
                    assert_ne!(page_at, footer_at);
                    for ((key, value), pointer) in written.iter().zip(&pointers) {
                        let hit = (pointer.page..pointer.page + pointer.pages).contains(&page);
                        match read(&values, key, *pointer) {
                            Ok(read) => assert!(!hit && read == *value),
                            Err(error) => assert!(hit && error.kind() == ErrorKind::Corrupt),
                        }
                    }
                    let report = values.verify(&mut |_| {}).unwrap();
                    assert_eq!(
                        report.damages, 1,
                        "seed {seed}, page {page} of {codec:?}: {report:?}"
                    );
                    assert_eq!(report.listed[0].page, page);
                    let lost = written.iter().zip(&pointers).find(|(_, pointer)| {
                        (pointer.page..pointer.page + pointer.pages).contains(&page)
                    });
                    let ((key, _), pointer) = lost.unwrap();
                    let key_reported = values.key_on(page).unwrap();
                    // The page with the key must be another page, and uncompressed.
                    if pointer.page == page || key_reported.is_none() {
                        assert!(
                            key_reported.is_none()
                                && (pointer.page == page || *codec != Codec::None)
                        );
                    } else {
                        assert_eq!(key_reported.as_ref(), Some(key), "seed {seed}, page {page}");
                    }
                }
            }
            flip(1 << (round % 8));
        }
    }
}

#[test]
fn a_value_lost_during_a_read_in_place_is_requested_again() {
    for codec in codecs() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let (key, value) = (b"key".to_vec(), vec![7; 3000]);
        let (pointers, _) = write(&medium, *codec, &[(key.clone(), value.clone())]);
        let values = open(&medium).unwrap();
        let Some(mut cut) = Cut::after(1) else { return };
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut read = ValueRead::new(Arc::clone(&values), pointers[0]).unwrap();
            let Step::Need(span) = read.step(&key, None).unwrap() else { panic!("asks first") };
            assert_eq!(span.pages, 1);
            let at = u64::from(span.first) * PAGE_BYTES as u64;
            let (buf, _) = values.file().read(at, media::Buf::pages(1), Purpose::Data);
            let page = cut.lend(buf.first_chunk().unwrap());
            match read.step(&key, page).unwrap() {
                Step::Ready(value) => held.push(value),
                Step::Need(again) => {
                    assert!(again == span && cut.is_lost());
                    let Step::Ready(value) = read.step(&key, Some(Pages::Run(buf))).unwrap() else {
                        panic!("a read needs one span");
                    };
                    held.push(value);
                }
            }
        }
        assert!(cut.is_lost());
        assert!(held.len() == 2 && held.iter().all(|held| *held == value), "{codec:?}");
    }
}

#[test]
fn an_unfinished_file_is_removed_and_a_foreign_one_refused() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let account = Account::unlimited("test");
    let mut writer = ValuesWriter::create(&medium, spec(Codec::None), &account).unwrap();
    writer.add(b"key", &[1; 20_000], 0).unwrap();
    drop(writer);
    assert!(medium.list().unwrap().is_empty());
    let empty = ValuesWriter::create(&medium, spec(Codec::None), &account).unwrap();
    assert_eq!(empty.finish().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(medium.list().unwrap().is_empty());

    let (pointers, _) = write(&medium, Codec::None, &[(b"key".to_vec(), vec![1; 20_000])]);
    let other = Values::open(&*medium, StoreId(1), FILE, None, &account).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Corrupt);
    let values = open(&medium).unwrap();
    let beyond = Pointer { page: 1, ..pointers[0] };
    assert!(ValueRead::new(values, beyond).is_err());
}

/// The bytes must not change: stores hold files of every build of this format version.
#[test]
fn value_files_have_exactly_the_golden_bytes() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (pointers, summary) = write(&medium, Codec::None, &[(b"sky".to_vec(), b"blue".to_vec())]);
    let file = medium.open(&crate::values_file_name(FILE), media::Access::Direct).unwrap();
    let (bytes, result) = file.read(0, media::Buf::pages(2), Purpose::Scrub);
    result.unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = crate::golden::bytes(include_str!("../../golden/values.hex"));
    assert!(*bytes == *golden, "{hex}");
    assert_eq!((summary.file_bytes, summary.values, summary.value_bytes), (8192, 1, 4));
    let pointer = "0900000000000000 00000000 01000000 0400000000000000 0700000000000000";
    assert_eq!(pointers[0].encode(), crate::golden::bytes(pointer));
}

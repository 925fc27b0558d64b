use super::*;
use base::{StoreId, TableId};

fn header(payload_bytes: u32) -> Header {
    Header {
        kind: PageKind::Data,
        codec: Codec::Lz4,
        number: 0,
        dictionary: DictionaryId(9),
        payload_bytes,
        raw_bytes: 77,
        straddle: None,
    }
}

fn seed() -> PageSeed {
    PageSeed::new(StoreId(1), TableId(2))
}

#[test] // I8
fn a_sealed_page_verifies_only_with_its_own_identity() {
    let mut page = [0xaa; PAGE_BYTES];
    seal_page(&mut page, seed(), 5, &header(3), b"abc");
    verify_page(seed(), 5, &page).unwrap();
    let parsed = Header::parse(&page).unwrap();
    assert_eq!(parsed, header(3));
    assert_eq!(payload(&page, &parsed).unwrap(), b"abc");
    assert!(page[HEADER_BYTES + 3..].iter().all(|byte| *byte == 0));
    let error = verify_page(seed(), 6, &page).unwrap_err().to_string();
    assert!(error.starts_with("corrupt: page checksum at page 6, table 2: expected"), "{error}");
    assert!(verify_page(PageSeed::new(StoreId(1), TableId(3)), 5, &page).is_err());
    assert!(verify_page(seed(), 5, &page[1..]).is_err());
    for at in 0..PAGE_BYTES {
        page[at] ^= 1 << (at % 8);
        assert!(verify_page(seed(), 5, &page).is_err(), "byte {at}");
        page[at] ^= 1 << (at % 8);
    }
}

#[test]
fn a_run_splits_its_payload_into_full_pages() {
    let mut header = header(2 * PAYLOAD_BYTES as u32 + 10);
    let mut here = Vec::new();
    for number in 0..3 {
        header.number = number;
        here.push(header.payload_here());
    }
    assert_eq!(header.run_pages(), 3);
    assert_eq!(here, [PAYLOAD_BYTES, PAYLOAD_BYTES, 10]);
    assert_eq!((run_pages(0), run_pages(PAYLOAD_BYTES), run_pages(PAYLOAD_BYTES + 1)), (1, 1, 2));
}

#[test]
fn headers_with_fields_out_of_range_are_refused() {
    let mut page = [0; PAGE_BYTES];
    let refused = |page: &mut [u8; PAGE_BYTES], header: Header| {
        header.encode(page);
        Header::parse(page).unwrap_err().to_string()
    };
    let error = refused(&mut page, Header { number: 1, ..header(PAYLOAD_BYTES as u32) });
    assert!(error.contains("number in its run"), "{error}");
    let error = refused(&mut page, Header { number: 0, ..header(u32::MAX) });
    assert!(error.contains("at most 32768"), "{error}");
    let error = refused(&mut page, Header { codec: Codec::None, ..header(1) });
    assert!(error.contains("uncompressed"), "{error}");
    header(1).encode(&mut page);
    page[8] = 0;
    assert!(Header::parse(&page).unwrap_err().to_string().contains("page kind"));
    page[8] = 1;
    page[9] = 7;
    assert!(Header::parse(&page).unwrap_err().to_string().contains("codec"));
}

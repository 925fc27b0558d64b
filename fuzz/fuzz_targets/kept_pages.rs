//! Reads arbitrary bytes as the kept pages of a cold file, also with an index and a trailer that fit them: a
//! read gives the content of the file, wherever it is.

#![no_main]

use std::sync::Arc;

use base::hash64;
use libfuzzer_sys::fuzz_target;
use media::{Access, Buf, Cold, ColdName, Medium, MemoryMedium, Purpose};

const PAGE: usize = 4096;
const PAGES: usize = 8;

fn page(number: usize) -> Vec<u8> {
    vec![(number as u8).wrapping_add(1); PAGE]
}

fn must_read(kept: Vec<u8>) {
    let (local, remote) = (Arc::new(MemoryMedium::new()), Arc::new(MemoryMedium::new()));
    local.insert("a.kept", kept).expect("a new file");
    remote.insert("a.1", (0..PAGES).flat_map(page).collect()).expect("a new file");
    let cold = Cold::new(local, |name| name == "a");
    let name = ColdName { file: "a.1".to_owned(), len: (PAGES * PAGE) as u64 };
    let is_sound = |_: &str, at: u64, bytes: &[u8]| {
        bytes.iter().all(|byte| u64::from(*byte) == at / PAGE as u64 + 1)
    };
    let account = base::Account::unlimited("fuzz");
    cold.attach(remote, [("a".to_owned(), name)].into(), is_sound, &account).expect("the first");
    let file = cold.open("a", Access::Direct).expect("it exists");
    for number in 0..PAGES {
        let at = (number * PAGE) as u64;
        let (buf, read) = file.read(at, Buf::pages(1), Purpose::Data);
        read.expect("one of the two is sound");
        assert_eq!(buf[..], page(number)[..]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    must_read(bytes.to_vec());
    let Some((count, rest)) = bytes.split_first() else { return };
    let count = usize::from(*count) % 9;
    let mut kept = vec![0; count * PAGE];
    for (at, number) in rest.iter().take(count).enumerate() {
        kept[at * PAGE..][..PAGE].copy_from_slice(&page(usize::from(*number)));
    }
    let number = |at: usize| rest.get(at).map_or(0, |it| u32::from(*it));
    let index: Vec<u8> = (0..count).flat_map(|at| number(at).to_le_bytes()).collect();
    kept.extend_from_slice(&index);
    kept.resize(kept.len().next_multiple_of(PAGE), 0);
    let mut trailer = b"TERRKEPT".to_vec();
    trailer.extend_from_slice(&1_u32.to_le_bytes());
    trailer.extend_from_slice(&(count as u32).to_le_bytes());
    trailer.extend_from_slice(&((PAGES * PAGE) as u64).to_le_bytes());
    trailer.extend_from_slice(&hash64(0, &index).to_le_bytes());
    let checksum = hash64(0, &trailer);
    trailer.extend_from_slice(&checksum.to_le_bytes());
    trailer.resize(PAGE, 0);
    kept.extend_from_slice(&trailer);
    must_read(kept);
});

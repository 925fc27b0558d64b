//! Walks over files with pages that do not verify, sectors that cannot be read, and a device that is short of
//! resources.

#![expect(clippy::single_range_in_vec_init, reason = "one range of damaged pages")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Codec, DictionaryId, ErrorKind, StoreId, TableId};
use media::{Access, Medium, MemoryMedium};

use super::*;
use crate::page::{Header, PageKind, seal_page};

const SEED: PageSeed = PageSeed::new(StoreId(1), TableId(2));
const PAGES: u32 = CHUNK_PAGES * 2 + 5;

/// A file with pages that cannot be read, and a number of reads that fail first.
#[derive(Debug)]
struct BadFile {
    inner: Arc<dyn File>,
    unreadable: BTreeSet<u32>,
    busy: AtomicU64,
    reads: AtomicU64,
}

impl File for BadFile {
    media::delegate!(inner: name, size, write, store, sync, set_len, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.reads.fetch_add(1, Relaxed);
        if self.busy.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return (buf, Err(Error::retry("device")));
        }
        let first = (at / PAGE_BYTES as u64) as u32;
        let pages = first..first + (buf.len() / PAGE_BYTES) as u32;
        if self.unreadable.range(pages).next().is_some() {
            return (buf, Err(Error::corrupt("sector")));
        }
        self.inner.read(at, buf, purpose)
    }
}

fn file(damaged: &[u32], unreadable: &[u32]) -> Arc<BadFile> {
    let medium = MemoryMedium::new();
    let file = medium.create("file", Access::Direct, 0).unwrap();
    let header = Header {
        kind: PageKind::Data,
        codec: Codec::None,
        number: 0,
        dictionary: DictionaryId(0),
        payload_bytes: 4,
        raw_bytes: 4,
        straddle: None,
    };
    for number in 0..PAGES {
        let mut page = [0; PAGE_BYTES];
        seal_page(&mut page, SEED, number, &header, &number.to_le_bytes());
        if damaged.contains(&number) {
            page[2000] ^= 1;
        }
        let mut buf = Buf::pages(1);
        buf.copy_from_slice(&page);
        file.write(u64::from(number) * PAGE_BYTES as u64, buf, Purpose::Flush).1.unwrap();
    }
    let (busy, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    Arc::new(BadFile { inner: file, unreadable: unreadable.iter().copied().collect(), busy, reads })
}

fn walk(file: &Arc<BadFile>, account: &Account) -> PageWalk {
    let buffer = PageBuffer::new(account).unwrap();
    PageWalk::new(Arc::clone(file) as _, SEED, PAGES, Purpose::Scrub, buffer)
}

#[derive(Default)]
struct Seen {
    intact: Vec<u32>,
    damaged: Vec<Range<u32>>,
    retried: u32,
}

impl PageVisitor for Seen {
    fn page(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.get(24..28).unwrap(), number.to_le_bytes(), "the bytes are the page's");
        self.intact.push(number);
        Ok(())
    }

    fn damaged(&mut self, pages: Range<u32>, _: Error) -> Result<()> {
        self.damaged.push(pages);
        Ok(())
    }

    fn retried(&mut self) {
        self.retried += 1;
    }
}

fn seen(file: &Arc<BadFile>, retries: Retries) -> Seen {
    let (account, mut seen) = (Account::unlimited("test"), Seen::default());
    let mut walk = walk(file, &account);
    while !walk.is_done() {
        walk.step(retries, &mut seen).unwrap();
    }
    drop(walk);
    assert_eq!(account.used(), 0);
    seen
}

/// Every page is visited once, in order; those that do not verify as damaged ones.
#[test]
fn a_page_that_does_not_verify_is_the_only_damaged_one() {
    let bad = 70..71;
    let file = file(&[70], &[]);
    for (retries, retried) in [(Retries::None, 0), (Retries::Unread, 0), (Retries::Unverified, 1)] {
        let seen = seen(&file, retries);
        assert_eq!(seen.damaged, std::slice::from_ref(&bad), "{retries:?}");
        assert!(seen.intact.iter().copied().eq((0..PAGES).filter(|page| !bad.contains(page))));
        assert_eq!(seen.retried, retried, "{retries:?}");
    }
}

#[test]
fn an_unreadable_sector_costs_its_read_or_only_its_page() {
    let file = file(&[], &[70]);
    let coarse = seen(&file, Retries::None);
    assert_eq!(coarse.damaged, [CHUNK_PAGES..2 * CHUNK_PAGES]);
    assert_eq!(coarse.intact.len() as u32, PAGES - CHUNK_PAGES);
    for retries in [Retries::Unread, Retries::Unverified] {
        let fine = seen(&file, retries);
        assert_eq!((fine.damaged, fine.retried), (vec![70..71], CHUNK_PAGES), "{retries:?}");
        assert_eq!(fine.intact.len() as u32, PAGES - 1);
    }
}

/// A device that is short of resources damages nothing: the step fails, and succeeds later.
#[test]
fn a_step_on_a_busy_device_is_repeated() {
    let (account, file) = (Account::unlimited("test"), file(&[70], &[]));
    for retries in [Retries::None, Retries::Unread, Retries::Unverified] {
        let (mut walk, mut seen, mut failures) = (walk(&file, &account), Seen::default(), 0);
        while !walk.is_done() {
            file.busy.store(1, Relaxed);
            while let Err(error) = walk.step(retries, &mut seen) {
                assert_eq!(error.kind(), ErrorKind::Retry);
                failures += 1;
            }
        }
        assert_eq!((failures, seen.damaged), (3, vec![70..71]), "{retries:?}");
        assert_eq!(seen.intact.len() as u32, PAGES - 1, "{retries:?}");
    }
}

/// The digest is that of all pages, whichever were read again.
#[test]
fn the_digest_is_that_of_a_walk_without_faults() {
    let account = Account::unlimited("test");
    let digest = |file: &Arc<BadFile>, retries| {
        let mut walk = walk(file, &account);
        while !walk.is_done() {
            let _ = walk.step(retries, &mut Seen::default());
        }
        walk.digest()
    };
    let whole = digest(&file(&[], &[]), Retries::None);
    assert_ne!(whole, 0);
    assert_ne!(whole, digest(&file(&[9], &[]), Retries::Unverified));
    assert_ne!(whole, digest(&file(&[], &[9]), Retries::Unread));
}

/// Runs are read ahead up to the given end. A run past an unreadable sector is read alone.
#[test]
fn runs_are_read_ahead_and_verified() {
    let account = Account::unlimited("test");
    let file = file(&[50], &[100]);
    let mut walk = walk(&file, &account);
    for page in 0..40 {
        assert_eq!(walk.run(page, 2, 64).unwrap().len(), 2 * PAGE_BYTES);
    }
    assert_eq!(file.reads.load(Relaxed), 1, "one read for all");
    assert_eq!(walk.run(49, 2, 64).unwrap_err().kind(), ErrorKind::Corrupt);
    // Read-ahead meets the bad sector, the run does not.
    assert_eq!(walk.run(65, 3, PAGES).unwrap().len(), 3 * PAGE_BYTES);
    assert_eq!(walk.run(99, 2, PAGES).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(walk.run(PAGES - 1, 2, PAGES).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(walk.run(u32::MAX, 2, PAGES).unwrap_err().kind(), ErrorKind::Corrupt);
    // A long run is charged while it is held.
    let before = account.used();
    assert!(walk.run(0, CHUNK_PAGES + 6, PAGES).is_err(), "it holds a damaged page");
    assert_eq!(account.used(), before + 6 * PAGE_BYTES as u64);
    walk.run(80, 1, 90).unwrap();
    assert_eq!(account.used(), before);
}

/// Ends a walk at its first page.
struct Refusing;

impl PageVisitor for Refusing {
    fn page(&mut self, _: u32, _: &[u8]) -> Result<()> {
        Err(Error::invalid("page"))
    }

    fn damaged(&mut self, _: Range<u32>, error: Error) -> Result<()> {
        Err(error)
    }
}

#[test]
fn runs_are_read_again_after_a_visitor_ended_a_step() {
    let mut walk = walk(&file(&[], &[]), &Account::unlimited("test"));
    assert_eq!(walk.step(Retries::None, &mut Refusing).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(walk.run(3, 2, PAGES).unwrap().len(), 2 * PAGE_BYTES);
}

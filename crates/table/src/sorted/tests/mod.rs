//! Tests of whole tables: against a map, damaged, truncated, counted.

mod bins;
mod bins_damage;
mod compact;
mod damage;
mod faults;
mod golden;
mod held_filters;
mod kinds;
mod lost;
mod model;
mod pass;
mod rebuild;
mod salvage;
mod straddled;
mod tail;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Codec, EntryKind, Result, Rng, Seqno, StoreId, TableId, Trailer, key_hash};
use bytes::Bytes;
use media::{Buf, Medium, MemoryMedium, Purpose};

use super::*;
use crate::NoDictionaries;
use crate::page::verify_page;

pub(super) const STORE: StoreId = StoreId(0x5702e);
pub(super) const TABLE: TableId = TableId(7);

/// Versions by (key ascending, trailer descending), as in a table.
pub(super) type Model = BTreeMap<(Vec<u8>, Reverse<Trailer>), Vec<u8>>;

pub(super) fn put(seqno: u64) -> Trailer {
    Trailer::new(Seqno::new(seqno), EntryKind::Put)
}

pub(super) fn spec(codec: Codec) -> Spec {
    Spec {
        store: STORE,
        table: TABLE,
        keyspace: base::KeyspaceId(0),
        codec,
        level: 1,
        dictionary: None,
        filter_bits: FILTER_BITS_DEFAULT,
        layout: Layout::Sorted,
        purpose: Purpose::Flush,
        leave: Leave::Nothing,
    }
}

pub(super) fn codecs() -> Vec<Codec> {
    match cfg!(feature = "zstd") {
        true => vec![Codec::None, Codec::Lz4, Codec::Deflate, Codec::Zstd],
        false => vec![Codec::None, Codec::Lz4, Codec::Deflate],
    }
}

pub(super) fn write(
    medium: &Arc<dyn Medium>,
    spec: Spec,
    model: &Model,
    account: &Account,
) -> Result<Summary> {
    let mut writer = Writer::create(medium, spec, account)?;
    for ((key, trailer), value) in model {
        writer.add(key, trailer.0, value)?;
    }
    writer.finish()
}

pub(super) fn open(medium: &Arc<dyn Medium>) -> Result<Arc<Table>> {
    let account = Account::unlimited("test");
    Table::open(&**medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), &account)
}

pub(super) fn medium() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

/// Drives reads: fetches, verifies and counts the pages that they need.
pub(super) struct Driver {
    pub(super) table: Arc<Table>,
    pub(super) meta_spans: u64,
    pub(super) data_spans: u64,
    account: Account,
}

impl Driver {
    pub(super) fn new(table: &Arc<Table>) -> Self {
        let account = Account::unlimited("driver");
        Self { table: Arc::clone(table), meta_spans: 0, data_spans: 0, account }
    }

    pub(super) fn fetch(&mut self, span: Span) -> Result<Pages> {
        assert_eq!(span.table, self.table.id());
        assert!(span.pages > 0);
        *(if span.meta { &mut self.meta_spans } else { &mut self.data_spans }) += 1;
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let buf = Buf::pages(span.pages as usize);
        let (buf, result) = self.table.file().read(at, buf, Purpose::Data);
        result?;
        let (pages, _) = buf.as_chunks::<PAGE_BYTES>();
        let mut frames = Vec::new();
        for (number, page) in (span.first..).zip(pages) {
            verify_page(self.table.seed(), number, page)?;
            frames.push(arena::Frame::heap(&self.account, page));
        }
        // Over time every form of pages is supplied.
        Ok(match span.pages {
            1 => Pages::Frame(frames.remove(0)),
            2..=16 => Pages::Frames(frames),
            _ => Pages::Run(buf),
        })
    }

    pub(super) fn get(&mut self, key: &[u8], at: Trailer) -> Result<Option<(Trailer, Bytes)>> {
        let mut read = PointRead::new(Arc::clone(&self.table), key, key_hash(key), at);
        let mut supplied = None;
        loop {
            match read.step(supplied.take())? {
                Step::Ready(found) => return Ok(found.map(|found| (found.trailer, found.value))),
                Step::Need(span) => supplied = Some(self.fetch(span)?),
            }
        }
    }

    pub(super) fn step(&mut self, cursor: &mut TableCursor) -> Result<bool> {
        let mut supplied = None;
        loop {
            match cursor.step(supplied.take())? {
                Step::Ready(valid) => return Ok(valid),
                Step::Need(span) => supplied = Some(self.fetch(span)?),
            }
        }
    }
}

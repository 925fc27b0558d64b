//! A metadata page made anew from the blocks of its partition: for reads that find it damaged.
//!
//! Blocks say which keys they hold, so a metadata page that is lost costs time and no key. What is made
//! has the same separators and, since reading every key is not worth it, no filter.

use base::limits::PAGE_BYTES;
use base::{Account, Codec, DictionaryId, Error, Result, Trailer};
use media::Purpose;

use super::block::{Block, BlockPosition};
use super::meta::MetaBuilder;
use super::read::read_pages;
use super::separator::Separator;
use super::step::Pages;
use super::table::Table;
use crate::page::{Header, PAYLOAD_BYTES, PageKind, seal_page};

impl Table {
    /// The metadata page `page`, made anew and sealed in its place. Reads all data pages of its partition,
    /// about a hundred, a block at a time.
    ///
    /// # Errors
    /// `Corrupt` where the partition has damaged blocks too, or `page` is no metadata page; `Retry` where
    /// memory is short.
    pub fn rebuilt_meta(&self, page: u32, account: &Account) -> Result<Box<[u8; PAGE_BYTES]>> {
        let top = self.top()?;
        let partition = top.partition(top.holding(page))?;
        if partition.meta_page != page {
            return Err(self.place(Error::corrupt("metadata page").expected("a partition's"), page));
        }
        let mut meta = MetaBuilder::new(0);
        meta.start(partition.first_page);
        let mut place = BlockPosition::new();
        let mut last: Option<(Vec<u8>, Trailer)> = None;
        let mut at = partition.first_page;
        while at < page {
            let pages = self.add_block(at, page, account, &mut place, &mut last, &mut meta)?;
            at += pages;
        }
        let mut content = Vec::new();
        meta.encode(&mut content)?;
        if content.len() > PAYLOAD_BYTES {
            return Err(self.place(Error::corrupt("separators of a partition"), page));
        }
        let bytes = content.len() as u32;
        let header = Header {
            kind: PageKind::Meta,
            codec: Codec::None,
            number: 0,
            dictionary: DictionaryId(0),
            payload_bytes: bytes,
            raw_bytes: bytes,
        };
        let mut rebuilt = Box::new([0; PAGE_BYTES]);
        seal_page(&mut rebuilt, self.seed(), page, &header, &content);
        Ok(rebuilt)
    }

    /// Adds the block that begins on page `at` to `meta`, after the one whose last version is `last`. The
    /// pages it has, all of them before `end`.
    fn add_block(
        &self,
        at: u32,
        end: u32,
        account: &Account,
        place: &mut BlockPosition,
        last: &mut Option<(Vec<u8>, Trailer)>,
        meta: &mut MetaBuilder,
    ) -> Result<u32> {
        let read = |pages| read_pages(&**self.file(), self.seed(), at, pages, Purpose::Meta);
        let first = read(1)?;
        let pages = Header::parse(&first)?.run_pages() as u32;
        if pages > end - at {
            let error = Error::corrupt("pages of a block").expected(format_args!("before {end}"));
            return Err(self.place(error.got(pages), at));
        }
        let _charge = account.charge(u64::from(pages) * PAGE_BYTES as u64)?;
        let buf = if pages == 1 { first } else { read(pages)? };
        let bytes = self.decode(self.data_span(at, pages), Pages::Run(buf))?;
        let block = Block::parse(&bytes)?;
        place.first(block)?;
        let separator =
            last.take().map(|(key, trailer)| Separator::between((&key, trailer), place.key()));
        meta.add(separator, pages as usize, &[]);
        place.last(block)?;
        *last = place.entry().map(|entry| (place.key().to_vec(), entry.trailer));
        Ok(pages)
    }
}

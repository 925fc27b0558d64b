//! Rebuilds a metadata page from the blocks of its partition, for reads that find the page damaged.
//!
//! The blocks contain all keys, so a lost metadata page costs time but no key. The rebuilt page has the
//! same index. It has no filter, because a filter would need every key.

use base::limits::PAGE_BYTES;
use base::{Account, Codec, DictionaryId, Error, Result, invariant};
use media::Purpose;

use super::block::{Block, BlockPosition};
use super::layout::BinBits;
use super::meta_builder::{MetaBuilder, NextBlock};
use super::read::read_pages;
use super::separator::Separator;
use super::step::Pages;
use super::straddle::Marks;
use super::table::Table;
use super::version_order::VersionOrder;
use crate::page::{Header, PAYLOAD_BYTES, PageKind, seal_page};

impl Table {
    /// Rebuilds and seals the metadata page `page`. Reads all data pages of its partition, one block at a
    /// time: about a hundred, or a few thousand in a table with bins and without a filter.
    ///
    /// # Errors
    /// `Corrupt` if blocks of the partition are damaged too, or `page` is no metadata page; `Retry` if
    /// memory is short.
    pub fn rebuilt_meta(&self, page: u32, account: &Account) -> Result<Box<[u8; PAGE_BYTES]>> {
        let top = self.top()?;
        let partition = top.partition(top.holding(page))?;
        if partition.meta_page != page {
            return Err(
                self.locate_error(Error::corrupt("metadata page").expected("a partition's"), page)
            );
        }
        let mut meta = MetaBuilder::new(0, self.layout());
        meta.start(partition.first_page);
        let mut position = BlockPosition::new();
        let mut order = VersionOrder::default();
        let mut at = partition.first_page;
        while at < page {
            let pages = self.add_block(at, page, account, &mut position, &mut order, &mut meta)?;
            at += pages;
        }
        invariant!(at == page, "the blocks of a partition end at its metadata page");
        let mut content = Vec::new();
        meta.encode(&mut content)?;
        if content.len() > PAYLOAD_BYTES {
            return Err(self.locate_error(Error::corrupt("index of a partition"), page));
        }
        let bytes = content.len() as u32;
        let header = Header {
            kind: PageKind::Meta,
            codec: Codec::None,
            number: 0,
            dictionary: DictionaryId(0),
            payload_bytes: bytes,
            raw_bytes: bytes,
            straddle: None,
        };
        let mut rebuilt = Box::new([0; PAGE_BYTES]);
        seal_page(&mut rebuilt, self.seed(), page, &header, &content);
        Ok(rebuilt)
    }

    /// Adds the block at page `at` to `meta`; `order` has the last version of the previous block. Returns
    /// the number of the block's pages, which must end at or before `end`.
    fn add_block(
        &self,
        at: u32,
        end: u32,
        account: &Account,
        position: &mut BlockPosition,
        order: &mut VersionOrder,
        meta: &mut MetaBuilder,
    ) -> Result<u32> {
        let read = |pages| read_pages(&**self.file(), self.seed(), at, pages, Purpose::Meta);
        let first = read(1)?;
        let header = Header::parse(&first)?;
        let pages = header.run_pages() as u32;
        if pages > end - at {
            let error = Error::corrupt("pages of a block").expected(format_args!("before {end}"));
            return Err(self.locate_error(error.got(pages), at));
        }
        let _charge = account.charge(u64::from(pages) * PAGE_BYTES as u64)?;
        let buf = if pages == 1 { first } else { read(pages)? };
        let bytes = self.decode(self.data_span(at, pages), Pages::Run(buf))?;
        let block = Block::parse(&bytes, self.hash_key())?;
        let last = order.last().map(|(key, trailer)| (key.to_vec(), trailer));
        let mut pass = |position: &BlockPosition| {
            let passed = position.entry().map(|entry| order.pass(position.key(), entry.trailer));
            passed.transpose().map_err(|error| self.locate_error(error, at))
        };
        position.first(block)?;
        pass(position)?;
        let first_key = position.key().to_vec();
        if block.count() > 1 {
            position.last(block)?;
            pass(position)?;
        }
        let separator = last.map(|(key, trailer)| Separator::between((&key, trailer), &first_key));
        let marks = match header.straddle {
            Some(_) => Some(self.marks_of(block, bytes.len())?),
            None => None,
        };
        let (pages, marks) = (pages as usize, marks.as_ref());
        let next = NextBlock { first_key: &first_key, pages, hashes: &[], marks };
        if separator.as_ref().is_some_and(|separator| !meta.fits(separator, next)) {
            let error = Error::corrupt("blocks of a partition")
                .expected("all straddled or none, and an index of one page");
            return Err(self.locate_error(error, at));
        }
        meta.add(separator, next);
        Ok(pages as u32)
    }

    /// The marks of the straddled block `block` of `bytes` bytes.
    ///
    /// # Errors
    /// `Corrupt` if its entries cannot be read, or their bins are not in order.
    pub(super) fn marks_of(&self, block: Block<'_>, bytes: usize) -> Result<Marks> {
        let Some(bits) = self.layout().bin_bits().map(BinBits::of_straddled) else {
            return Err(Error::corrupt("straddled pages").expected("in a table with bins"));
        };
        let (mut marks, mut start, mut last) = (Marks::default(), 0, 0);
        let mut position = BlockPosition::new();
        position.first(block)?;
        while let Some(end) = position.entry().map(|entry| entry.value().end) {
            let bin = bits.bin_of(position.key());
            if bin < last {
                return Err(Error::corrupt("bin of an entry")
                    .expected(format_args!("at least {last}"))
                    .got(bin));
            }
            marks.add(start..end, bin, position.key());
            (start, last) = (end, bin);
            position.next(block)?;
        }
        marks.end(bytes);
        Ok(marks)
    }
}

//! The entries on the sound pages of a damaged straddled block.
//!
//! Each page states where its first entry begins, so damage of a page costs the entries on it, and not the
//! block. The block's tags are on its last page: instead, the hash of the entry with a page's first byte
//! shows that the hash key is right.

use base::{Error, HashKey, Result, Trailer};

use super::{Salvage, Salvaged, readable};
use crate::page::{Header, PAYLOAD_BYTES};
use crate::sorted::block::Block;
use crate::sorted::layout::head_of;
use crate::sorted::straddle::Part;
use crate::sorted::version_order::VersionOrder;
use base::limits::PAGE_BYTES;

/// Most pages of a straddled block that have a byte of an entry: the length of its entries has 16 bits.
const PAGES_MAX: u32 = (u16::MAX as u32).div_ceil(PAYLOAD_BYTES as u32);

/// An entry of a part: its key, its trailer, and the range of its value.
type Found = (Vec<u8>, Trailer, std::ops::Range<usize>);

impl Salvage<'_> {
    /// Passes on the whole entries on page `page`, which has the header `header`, and on the sound pages of
    /// its block after it. Returns the number of these pages.
    pub(super) fn part(&mut self, page: u32, header: Header) -> Result<u32> {
        let (mut headers, mut count) = (vec![header], 1);
        let left = (header.run_pages() as u32).saturating_sub(u32::from(header.number));
        while count < left.min(PAGES_MAX) && count < self.pages - page {
            match readable(self.header(page + count))? {
                Ok(next) if next == header.on_page(header.number + count as u16, &next) => {
                    headers.push(next);
                }
                _ => break,
            }
            count += 1;
        }
        let mut joined = Vec::with_capacity(count as usize * PAYLOAD_BYTES);
        let cut = self.walk.run(page, count, self.pages)?;
        let part = Part::join(cut.chunks_exact(PAGE_BYTES), None, &mut joined);
        let found = part.and_then(|part| match self.hash_key {
            Some(hash_key) => self.entries(part, &headers, &joined, hash_key),
            None => Err(Error::corrupt("straddled pages").expected("a hash key")),
        });
        match readable(found)? {
            Ok((found, order)) => self.pass_on(&found, order, &joined)?,
            Err(error) => (page..page + count).for_each(|page| self.note_lost(page, error.clone())),
        }
        Ok(count)
    }

    /// The whole entries of `part`, at least one, which are in order, and the order that includes them.
    fn entries(
        &self,
        part: Part,
        headers: &[Header],
        joined: &[u8],
        hash_key: HashKey,
    ) -> Result<(Vec<Found>, VersionOrder)> {
        let damaged = |found: &str| Error::corrupt("entries of a straddled page").got(found);
        let block = Block::part(joined.get(..part.end).unwrap_or_default(), hash_key);
        let (mut found, mut offset) = (Vec::<Found>::new(), part.first);
        let (mut is_verified, mut order) = (false, self.order.clone());
        while offset < part.end {
            let Some((entry, user)) = block.part_entry(offset, part.is_cut)? else { break };
            let key = [&hash_key.hash(user).to_be_bytes(), user].concat();
            let end = entry.value().end;
            // The pages that begin with a byte of the entry.
            let pages = offset.div_ceil(PAYLOAD_BYTES)..end.div_ceil(PAYLOAD_BYTES);
            for header in headers.get(pages.start..pages.end.min(headers.len())).unwrap_or_default()
            {
                let stored = header.straddle.map(|straddle| straddle.hash);
                if stored != Some(head_of(&key) as u16) {
                    return Err(damaged("another hash than that of the page"));
                }
                is_verified = true;
            }
            if end > part.end {
                break;
            }
            order.pass(&key, entry.trailer)?;
            found.push((key, entry.trailer, entry.value()));
            offset = end;
        }
        if found.is_empty() || !is_verified {
            return Err(damaged("none that a page's hash verifies"));
        }
        Ok((found, order))
    }

    fn pass_on(&mut self, found: &[Found], order: VersionOrder, joined: &[u8]) -> Result<()> {
        if let (Some(mut lost), Some((first, ..))) = (self.gap.take(), found.first()) {
            lost.before = Some(first.clone());
            self.hold(lost)?;
        }
        self.report.blocks += 1;
        for (key, trailer, value) in found {
            let value = joined.get(value.clone()).unwrap_or_default();
            (self.visit)(Salvaged::Version { key, trailer: *trailer, value })?;
            self.report.versions += 1;
        }
        self.order = order;
        Ok(())
    }
}

//! The hash key of a damaged table, without which its compact blocks cannot be read.

use base::{HashKey, Result};

use super::{Salvage, readable};
use crate::page::PageKind;
use crate::page_walk::CHUNK_PAGES;
use crate::sorted::footer::Footer;
use crate::sorted::properties::Properties;

/// Pages at the end of a file among which the properties are looked for if the footers are lost. Properties
/// with keys of any length and a range delete section between the copies are longer, and rare.
const PROPERTIES_WITHIN: u32 = 512;

impl Salvage<'_> {
    /// The hash key in the properties, if either copy of them can be read.
    pub(super) fn stored_hash_key(&mut self, footer: Option<Footer>) -> Result<Option<HashKey>> {
        if let Some(footer) = footer {
            let count = footer.tail_end().saturating_sub(footer.properties);
            let read = self.section(PageKind::Properties, footer.properties, count, Some(footer));
            let properties = read.and_then(|bytes| Properties::decode(&bytes));
            return Ok(readable(properties)?.ok().and_then(|properties| properties.hash_key.0));
        }
        // The properties are near the end of the file.
        let (first, mut end) = (self.pages.saturating_sub(PROPERTIES_WITHIN), self.pages);
        while end > first {
            let start = end.saturating_sub(CHUNK_PAGES).max(first);
            // One read for all of these pages; if it fails, each is read by itself.
            let _ = readable(self.walk.run(start, end - start, end).map(drop))?;
            for page in (start..end).rev() {
                if let Some(properties) = self.properties_at(page)? {
                    return Ok(properties.hash_key.0);
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// The properties that begin on page `page`, if they do.
    fn properties_at(&mut self, page: u32) -> Result<Option<Properties>> {
        let Ok(header) = readable(self.header(page))? else { return Ok(None) };
        if (header.kind, header.number) != (PageKind::Properties, 0) {
            return Ok(None);
        }
        let read = self.section(PageKind::Properties, page, header.run_pages() as u32, None);
        readable(read.and_then(|bytes| Properties::decode(&bytes))).map(Result::ok)
    }
}

//! The hash key of a damaged table, without which its compact blocks cannot be read.

use base::{HashKey, Result};

use super::{Salvage, readable};
use crate::page::PageKind;
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
        for page in (self.pages.saturating_sub(PROPERTIES_WITHIN)..self.pages).rev() {
            let Ok(header) = readable(self.header(page))? else { continue };
            if (header.kind, header.number) != (PageKind::Properties, 0) {
                continue;
            }
            let read = self.section(PageKind::Properties, page, header.run_pages() as u32, None);
            let properties = read.and_then(|bytes| Properties::decode(&bytes));
            if let Ok(Properties { hash_key, .. }) = readable(properties)? {
                return Ok(hash_key.0);
            }
        }
        Ok(None)
    }
}

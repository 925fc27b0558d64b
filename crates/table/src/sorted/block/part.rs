//! Parts of compact blocks: some of the entries of a straddled block, without its tags and offsets.

use base::{Error, HashKey, Result, Seqno};

use super::{Block, BlockEntry, Layout};

impl<'a> Block<'a> {
    /// Views `raw`, entries of a straddled block from any of its bytes on. Only
    /// [`Block::part_entry`] reads them.
    pub(crate) const fn part(raw: &'a [u8], hash_key: HashKey) -> Self {
        let (count, interval, base) = (0, 1, Seqno::ZERO);
        let hash_key = Some(hash_key);
        Self { raw, layout: Layout { entries_end: raw.len(), count, interval, base, hash_key } }
    }

    /// The entry at `at`, and its key without the hash. `None` if the part ends before its value begins,
    /// which is damage unless the part is cut. The value may end after the part if it is cut.
    ///
    /// # Errors
    /// `Corrupt` if the entry is damaged.
    pub(crate) fn part_entry(
        &self,
        at: usize,
        is_cut: bool,
    ) -> Result<Option<(BlockEntry, &'a [u8])>> {
        let entry = match self.compact_head(at) {
            Ok(entry) => entry,
            Err(_) if is_cut => return Ok(None),
            Err(error) => return Err(error),
        };
        let user = self.raw.get(entry.suffix_at..entry.value_at);
        match user {
            Some(user) if is_cut || entry.end <= self.raw.len() => Ok(Some((entry, user))),
            None if is_cut => Ok(None),
            _ => Err(Error::corrupt("entry of a straddled page")
                .at(format_args!("byte {at}"))
                .expected(format_args!("its end by byte {}", self.raw.len()))
                .got(entry.end)),
        }
    }
}

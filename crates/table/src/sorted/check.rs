//! The check of a table: every page, and every property that readers rely on.
//!
//! The file is streamed once, in large reads. The check verifies the checksum of every page (I8), the
//! order of the versions and the form of their values, that the separators lead to each block, that the
//! filter denies no key, and the counts against the properties. The open of the table checked the range
//! deletes. The report lists damage with its pages and key range, and the check continues after it.
//!
//! Memory: one buffer and one block, charged (I10).

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, Result, Seqno, TableId, Trailer, invariant, key_hash};
use bytes::Bytes;
use media::Purpose;

use super::block::{Block, BlockPosition};
use super::meta::MetaPage;
use super::properties::Properties;
use super::read::{decode_run, read_pages};
use super::table::Table;
use super::tally::Tally;
use super::top::{Partition, Top};
use super::version_order::VersionOrder;
use crate::page::{Header, fold_digest};
use crate::{PageBuffer, PageWalk};

/// Damages that are listed; all are counted.
const LISTED_MAX: usize = 1000;

/// Damage of a table.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The first damaged page.
    pub page: u32,
    /// The number of damaged pages.
    pub pages: u32,
    /// The keys on the pages: from the first to the second, which is excluded unless it is the table's
    /// last key.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// What is wrong.
    pub error: Error,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, pages, keys, error } = self;
        write!(f, "page {page}")?;
        if *pages > 1 {
            write!(f, "..={}", page + (pages - 1))?;
        }
        if let Some((from, to)) = keys {
            write!(f, ", keys `{}` to `{}`", from.escape_ascii(), to.escape_ascii())?;
        }
        write!(f, ": {error}")
    }
}

/// The report of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The table.
    pub table: TableId,
    /// The pages of its file.
    pub pages: u32,
    /// Number of versions read.
    pub entries: u64,
    /// Number of damages found.
    pub damages: u64,
    /// The first thousand damages.
    pub listed: Vec<Damage>,
}

impl Report {
    /// Whether no damage was found.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damages == 0
    }
}

impl Table {
    /// Checks the whole table. `progress` gets the number of pages checked, and their total.
    ///
    /// # Errors
    /// `Retry` if memory is short. Damage is in the report, not an error.
    pub fn check(&self, account: &Account, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let (file, pages) = (Arc::clone(self.file()), self.footer().pages);
        let buffer = PageBuffer::new(account)?;
        let mut check = Check {
            table: self,
            top: self.top()?,
            account,
            progress,
            walk: PageWalk::new(file, self.seed(), pages, Purpose::Scrub, buffer),
            position: BlockPosition::new(),
            order: VersionOrder::default(),
            counts: Counts {
                versions: Tally {
                    sums_entries: self.properties().entry_sum != 0,
                    ..Tally::default()
                },
                ..Counts::default()
            },
            digest: 0,
            report: Report { table: self.id(), pages, entries: 0, damages: 0, listed: Vec::new() },
        };
        for number in 0..check.top.partitions() {
            check.partition(number)?;
        }
        check.end()?;
        Ok(check.report)
    }
}

/// Counts to compare with the properties.
#[derive(Debug, Default)]
struct Counts {
    versions: Tally,
    blocks: u64,
    data_pages: u64,
    straddled_blocks: u64,
}

struct Check<'a> {
    table: &'a Table,
    top: Top<'a>,
    account: &'a Account,
    progress: &'a mut dyn FnMut(u64, u64),
    walk: PageWalk,
    position: BlockPosition,
    /// The versions read since the last damage.
    order: VersionOrder,
    counts: Counts,
    /// The digest of the pages read so far.
    digest: u64,
    report: Report,
}

impl Check<'_> {
    fn damage(&mut self, damage: Damage) {
        self.report.damages += 1;
        if self.report.listed.len() < LISTED_MAX {
            self.report.listed.push(damage);
        }
        // Nothing is compared across damage.
        self.order = VersionOrder::default();
    }

    fn partition(&mut self, number: usize) -> Result<()> {
        let partition = self.top.partition(number)?;
        let read = read_pages(
            &**self.table.file(),
            self.table.seed(),
            partition.meta_page,
            1,
            Purpose::Scrub,
        );
        let meta = read.as_ref().map_err(Clone::clone).and_then(|page| {
            let meta = MetaPage::parse(page)?;
            meta.check(self.table.layout())?;
            let expected = (partition.first_page, partition.data_pages());
            if meta.data_pages() == expected {
                return Ok(meta);
            }
            Err(Error::corrupt("data pages of a partition")
                .expected(format_args!("{expected:?}"))
                .got(format_args!("{:?}", meta.data_pages())))
        });
        match meta {
            Ok(meta) => {
                let mut next = Some(0);
                while let Some(block) = next {
                    self.block(number, partition, &meta, block)?;
                    next = meta.after(block)?;
                }
            }
            Err(error) => {
                let keys = self.table.keys_of(&self.top, number, None);
                self.damage(Damage { page: partition.meta_page, pages: 1, keys, error });
                self.data_without_meta(number, partition)?;
            }
        }
        self.digest = read.map_or(self.digest, |page| fold_digest(self.digest, &page));
        (self.progress)(u64::from(partition.meta_page) + 1, u64::from(self.report.pages));
        Ok(())
    }

    /// Checks one block against its metadata page.
    fn block(
        &mut self,
        number: usize,
        partition: Partition,
        meta: &MetaPage<'_>,
        block: usize,
    ) -> Result<()> {
        let (first_page, pages) = match meta.block_pages(block) {
            Ok(pages) => pages,
            Err(error) => {
                let keys = self.table.keys_of(&self.top, number, Some((meta, block)));
                self.damage(Damage { page: partition.meta_page, pages: 1, keys, error });
                return Ok(());
            }
        };
        let at = BlockLocation { number, partition, meta: *meta, block, first_page, pages };
        match self.block_content(at) {
            Ok(()) => Ok(()),
            // A memory shortage is no damage of the table.
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => {
                let keys = self.table.keys_of(&self.top, number, Some((meta, block)));
                self.damage(Damage { page: first_page, pages, keys, error });
                Ok(())
            }
        }
    }

    /// Checks the order of a block's entries, and each entry against filter and separators.
    fn block_content(&mut self, at: BlockLocation<'_>) -> Result<()> {
        let (bytes, is_straddled) = self.read_block(at)?;
        let decoded = Block::parse(&bytes, self.table.hash_key())?;
        let mut position = std::mem::take(&mut self.position);
        position.first(decoded)?;
        let mut index = 0;
        while let Some(entry) = position.entry() {
            let (key, trailer) = (position.key(), entry.trailer);
            let new_key = self.order.pass(key, trailer)?;
            if new_key && !at.meta.may_contain(key_hash(key)) {
                return Err(Error::corrupt("filter")
                    .expected("every key of its partition")
                    .got(format_args!("not `{}`", key.escape_ascii())));
            }
            // If the first and the last entry are found, the order of the entries implies it for the others.
            if index == 0 {
                at.meta.check_first(at.block, key)?;
            }
            if index == 0 || index + 1 == decoded.count() {
                self.check_search(at, key, trailer)?;
            }
            self.count(key, trailer, decoded.value(entry), new_key)?;
            index += 1;
            position.next(decoded)?;
        }
        invariant!(index == decoded.count(), "a scan of a block meets each of its entries");
        match is_straddled {
            true => self.check_marks(at, decoded, bytes.len())?,
            false => at.meta.check_marks(at.block, None)?,
        }
        self.position = position;
        self.report.entries = self.counts.versions.entries;
        Ok(())
    }

    /// Checks that the pages of a straddled block and the index state where entries begin.
    fn check_marks(&mut self, at: BlockLocation<'_>, block: Block<'_>, bytes: usize) -> Result<()> {
        let pages = self.walk.run(at.first_page, at.pages, at.partition.meta_page)?;
        self.counts.straddled_blocks += 1;
        let marks = self.table.marks_of(block, bytes)?;
        marks.check(pages.chunks_exact(PAGE_BYTES))?;
        at.meta.check_marks(at.block, Some(&marks))
    }

    /// Reads, verifies and decompresses a block. Also returns whether it is straddled.
    fn read_block(&mut self, at: BlockLocation<'_>) -> Result<(Bytes, bool)> {
        let BlockLocation { partition, first_page, pages, .. } = at;
        let run = self.walk.run(first_page, pages, partition.meta_page)?;
        self.counts.blocks += 1;
        self.counts.data_pages += u64::from(pages);
        for page in run.chunks_exact(PAGE_BYTES) {
            self.digest = fold_digest(self.digest, page);
        }
        let first = Header::parse(run.get(..PAGE_BYTES).unwrap_or_default())?;
        let dictionaries = self.table.dictionaries();
        let decoded = decode_run(run.chunks_exact(PAGE_BYTES), pages, dictionaries, self.account);
        Ok((decoded?, first.straddle.is_some()))
    }

    /// Checks that the separators lead to the block that holds (`key`, `trailer`).
    fn check_search(&self, at: BlockLocation<'_>, key: &[u8], trailer: Trailer) -> Result<()> {
        let BlockLocation { number, block, meta, .. } = at;
        let found = (self.top.search(key, trailer)?, meta.search(key, trailer)?);
        if found == (number, block) {
            return Ok(());
        }
        Err(Error::corrupt("separators")
            .expected(format_args!("to lead to partition {number}, block {block}"))
            .got(format_args!("{found:?} for `{}`", key.escape_ascii())))
    }

    /// Counts a version, and checks the form of its value.
    fn count(&mut self, key: &[u8], trailer: Trailer, value: &[u8], new_key: bool) -> Result<()> {
        let counted = self.counts.versions.add_value(trailer.kind()?, value);
        counted.map_err(|error| {
            Error::corrupt("version").at(format_args!("`{}`", key.escape_ascii())).got(error)
        })?;
        self.counts.versions.add(key, trailer, value, new_key);
        Ok(())
    }

    /// Checks each data page of a partition by itself, because its metadata page is damaged.
    fn data_without_meta(&mut self, number: usize, partition: Partition) -> Result<()> {
        let mut page = partition.first_page;
        while page < partition.meta_page {
            let header = self.walk.run(page, 1, partition.meta_page).and_then(Header::parse);
            match header {
                Ok(_) => {}
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    let keys = self.table.keys_of(&self.top, number, None);
                    self.damage(Damage { page, pages: 1, keys, error });
                }
            }
            page += 1;
        }
        Ok(())
    }

    /// Checks both copies of the tail, and the counts.
    fn end(&mut self) -> Result<()> {
        let footer = *self.table.footer();
        let (file, seed) = (&**self.table.file(), self.table.seed());
        for page in footer.range_deletes..footer.pages {
            let checked = read_pages(file, seed, page, 1, Purpose::Scrub).and_then(|buf| {
                self.digest = fold_digest(self.digest, &buf);
                let Some(twin) = footer.twin(page).filter(|twin| *twin < page) else {
                    return Ok(());
                };
                // Damage of the other copy is reported at its own page.
                match read_pages(file, seed, twin, 1, Purpose::Scrub) {
                    Ok(other) if other.get(8..) != buf.get(8..) => {
                        let error = Error::corrupt("copy of a page");
                        Err(error.expected(format_args!("the content of page {twin}")))
                    }
                    _ => Ok(()),
                }
            });
            match checked {
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => self.damage(Damage { page, pages: 1, keys: None, error }),
                Ok(()) => {}
            }
        }
        (self.progress)(u64::from(footer.pages), u64::from(footer.pages));
        if !self.report.is_clean() {
            // Counts and digest lack the unreadable parts.
            return Ok(());
        }
        let stored = self.table.properties();
        let counted = self.counted()?;
        if counted != *stored {
            let error = Error::corrupt("table properties")
                .expected(format_args!("{counted:?}"))
                .got(format_args!("{stored:?}"));
            self.damage(Damage { page: footer.properties, pages: 1, keys: None, error });
        }
        if self.digest != footer.digest {
            let error = Error::corrupt("table digest")
                .expected(format_args!("{:016x}", self.digest))
                .got(format_args!("{:016x}", footer.digest));
            self.damage(Damage { page: footer.pages - 1, pages: 1, keys: None, error });
        }
        Ok(())
    }

    /// The properties with every field that can be counted set to its count.
    fn counted(&mut self) -> Result<Properties> {
        let mut counted = self.table.properties().clone();
        let deletes = self.table.range_deletes()?;
        counted.range_deletes = deletes.seqnos().len() as u64;
        counted.range_end = deletes.bounds().map(|(_, end)| end.to_vec()).unwrap_or_default();
        let Counts { mut versions, blocks, data_pages, straddled_blocks } =
            std::mem::take(&mut self.counts);
        for seqno in deletes.seqnos() {
            // If the table reads at another seqno than stored, the stored seqnos are 0.
            let stored = self.table.seqno().map_or(*seqno, |_| Seqno::ZERO);
            versions.add_seqnos(stored, stored);
        }
        (counted.blocks, counted.data_pages) = (blocks, data_pages);
        counted.straddled_blocks = straddled_blocks;
        versions.put(&mut counted);
        // A superseding version may be in another table, so these fields cannot be counted.
        counted.superseded = counted.superseded.min(counted.entries);
        Ok(counted)
    }
}

/// A block, and its position in the table.
#[derive(Clone, Copy)]
struct BlockLocation<'a> {
    /// The number of its partition.
    number: usize,
    partition: Partition,
    meta: MetaPage<'a>,
    /// The number of the block in its partition.
    block: usize,
    first_page: u32,
    pages: u32,
}

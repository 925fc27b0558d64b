//! A description of a table file for people: its footer, properties, range deletes, partitions and
//! pages.
//!
//! Works on files of any store, also on damaged ones: the identity comes from the footer, and unreadable
//! parts become facts of damage. Facts are passed on one by one, so that memory does not grow with the
//! table.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base::{Account, Error, PageSeed, Result, Seqno};
use bytes::Bytes;
use media::{Access, File, Medium, Purpose};

use super::check::Damage;
use super::footer::Footer;
use super::meta::MetaPage;
use super::read::read_pages;
use super::tail::{Sections, Tail};
use super::top::{Partition, Top};
use crate::page::{Header, PAYLOAD_BYTES};
use crate::{PageBuffer, PageVisitor, PageWalk, Retries};

/// One fact about a table. Its `Display` form is one line.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The table's identity, and the positions of its parts.
    Footer(Footer),
    /// A property.
    Property(&'static str, String),
    /// A fragment of range deletes: its first key, its end, and its seqnos.
    RangeDelete(Bytes, Bytes, Vec<Seqno>),
    /// A partition.
    Partition {
        /// Its number.
        number: usize,
        /// Its pages.
        partition: Partition,
        /// Number of blocks.
        blocks: usize,
        /// Length of the filter, bytes.
        filter_bytes: usize,
        /// The separator before it; empty before the first.
        from: Vec<u8>,
    },
    /// A page's header.
    Page(u32, Header),
    /// An unreadable part.
    Damage(Damage),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Footer(footer) => {
                write!(
                    f,
                    "table {} of store {}, format {}: {} pages, range deletes at {}, top level at \
                     {}, properties at {}, digest {:016x}",
                    footer.table,
                    footer.store,
                    footer.version,
                    footer.pages,
                    footer.range_deletes,
                    footer.top,
                    footer.properties,
                    footer.digest
                )?;
                footer.copy.map_or(Ok(()), |copy| write!(f, ", their copy at {copy}"))
            }
            Self::Property(name, value) => write!(f, "{name}: {value}"),
            Self::RangeDelete(start, end, seqnos) => write!(
                f,
                "range delete: `{}` to `{}` at {seqnos:?}",
                start.escape_ascii(),
                end.escape_ascii()
            ),
            Self::Partition { number, partition, blocks, filter_bytes, from } => write!(
                f,
                "partition {number}: pages {}..{}, metadata page {}, {blocks} blocks, \
                 {filter_bytes} B of filter, from `{}`",
                partition.first_page,
                partition.meta_page,
                partition.meta_page,
                from.escape_ascii()
            ),
            Self::Page(page, header) => {
                write!(
                    f,
                    "page {page}: {} {:?}, {} of {} B, {} B raw",
                    header.kind.name(),
                    header.codec,
                    header.payload_here(),
                    PAYLOAD_BYTES,
                    header.raw_bytes
                )?;
                if header.run_pages() > 1 {
                    write!(f, ", {} of {} pages", header.number + 1, header.run_pages())?;
                }
                if header.dictionary.0 > 0 {
                    write!(f, ", dictionary {}", header.dictionary)?;
                }
                Ok(())
            }
            Self::Damage(damage) => write!(f, "damage: {damage}"),
        }
    }
}

/// Describes the table file named `name`: its footer, properties and partitions, and with `pages` every
/// page.
///
/// # Errors
/// `Corrupt` if footer, properties or top level cannot be read, `Invalid` if there is no such file or a
/// newer version wrote it, `Retry` if memory is short. Other damage is a fact.
pub fn describe(
    medium: &dyn Medium,
    name: &str,
    account: &Account,
    pages: bool,
    visit: &mut dyn FnMut(&Fact),
) -> Result<()> {
    let file = medium.open(name, Access::Direct)?;
    let mut tail = Tail::read(&*file, None, account).map_err(|error| error.at(name))?;
    let footer = tail.footer;
    visit(&Fact::Footer(footer));
    tail.complete(&*file, account).map_err(|error| error.at(name))?;
    if let Some((page, error)) = tail.lost.take() {
        visit(&damage(page, error));
    }
    let Sections { top, properties, range_deletes, charge: _charge } =
        tail.sections(account).map_err(|error| error.at(name))?;
    for (name, value) in properties.list() {
        visit(&Fact::Property(name, value));
    }
    for fragment in range_deletes.iter() {
        let (start, end) = (fragment.start.clone(), fragment.end.clone());
        visit(&Fact::RangeDelete(start, end, fragment.seqnos.to_vec()));
    }
    let seed = PageSeed::new(footer.store, footer.table);
    describe_partitions(&*file, seed, &Top::parse(&top)?, visit)?;
    if pages { describe_pages(&file, seed, footer.pages, account, visit) } else { Ok(()) }
}

fn describe_partitions(
    file: &dyn File,
    seed: PageSeed,
    top: &Top<'_>,
    visit: &mut dyn FnMut(&Fact),
) -> Result<()> {
    for number in 0..top.partitions() {
        let partition = top.partition(number)?;
        let page = partition.meta_page;
        let from = match number.checked_sub(1) {
            Some(index) => top.separators().get(index)?.key,
            None => Vec::new(),
        };
        let fact = read_pages(file, seed, page, 1, Purpose::Scrub).and_then(|buf| {
            let meta = MetaPage::parse(&buf)?;
            let (blocks, filter_bytes) = (meta.blocks(), meta.filter_bytes());
            Ok(Fact::Partition { number, partition, blocks, filter_bytes, from })
        });
        visit(&fact.unwrap_or_else(|error| damage(page, error)));
    }
    Ok(())
}

fn describe_pages(
    file: &Arc<dyn File>,
    seed: PageSeed,
    pages: u32,
    account: &Account,
    visit: &mut dyn FnMut(&Fact),
) -> Result<()> {
    let buffer = PageBuffer::new(account)?;
    let mut walk = PageWalk::new(Arc::clone(file), seed, pages, Purpose::Scrub, buffer);
    while !walk.is_done() {
        walk.step(Retries::None, &mut Description(visit))?;
    }
    Ok(())
}

/// Describes each page of a walk.
struct Description<'a>(&'a mut dyn FnMut(&Fact));

impl PageVisitor for Description<'_> {
    fn page(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        let fact = Header::parse(bytes).map(|header| Fact::Page(number, header));
        (self.0)(&fact.unwrap_or_else(|error| damage(number, error)));
        Ok(())
    }

    fn damaged(&mut self, pages: Range<u32>, error: Error) -> Result<()> {
        let (page, pages) = (pages.start, pages.end - pages.start);
        (self.0)(&Fact::Damage(Damage { page, pages, keys: None, error }));
        Ok(())
    }
}

fn damage(page: u32, error: Error) -> Fact {
    Fact::Damage(Damage { page, pages: 1, keys: None, error })
}

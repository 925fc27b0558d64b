//! Pages of a cold file that the local medium keeps, so that their readers need no other one.
//!
//! The caller says which pages, once, when the file becomes cold. They are in a file beside it
//! (docs/format/kept-pages.md). It is a cache: without it, or if a page in it is damaged, the other medium
//! has the page. Memory: a number for each page, charged.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Result, hash64};

use crate::{Access, Buf, File, Medium, Purpose};

/// Ending of the name of the file with kept pages.
const SUFFIX: &str = ".kept";
/// The first bytes of its last page.
const MAGIC: &[u8; 8] = b"TERRKEPT";
const VERSION: u32 = 1;
/// Bytes of a page's number.
const NUMBER_BYTES: usize = size_of::<u32>();
const PAGE: u64 = PAGE_BYTES as u64;

/// The name of the file with the kept pages of `name`.
pub(super) fn kept_name(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// The cold file that `name` has kept pages of, by the names alone.
#[must_use]
pub fn kept_of(name: &str) -> Option<&str> {
    name.strip_suffix(SUFFIX)
}

/// Pages of the index of `count` kept pages.
const fn index_pages(count: usize) -> usize {
    (count * NUMBER_BYTES).div_ceil(PAGE_BYTES)
}

/// Writes the kept pages of one file. If it is dropped before they are complete, they are removed.
pub struct KeptWriter {
    local: Arc<dyn Medium>,
    name: String,
    file: Arc<dyn File>,
    /// The numbers of the pages that were added, ascending.
    numbers: Vec<u32>,
    charge: Charge,
    is_complete: bool,
}

impl KeptWriter {
    pub(super) fn create(local: &Arc<dyn Medium>, name: &str, account: &Account) -> Result<Self> {
        let name = kept_name(name);
        // Of an upload that was given up.
        if local.list()?.iter().any(|file| file.name == name) {
            local.remove(&name)?;
        }
        let file = local.create(&name, Access::Direct, 0)?;
        let (numbers, charge) = (Vec::new(), account.empty_charge());
        Ok(Self { local: Arc::clone(local), name, file, numbers, charge, is_complete: false })
    }

    /// Adds the page `number`, which comes after those that were added.
    ///
    /// # Errors
    /// Those of the local medium; `Retry` without memory for the number.
    pub fn add(&mut self, number: u32, page: &[u8]) -> Result<()> {
        base::invariant!(
            self.numbers.last().is_none_or(|last| *last < number),
            "kept pages are added in their order"
        );
        let at = self.numbers.len() as u64 * PAGE;
        self.charge.grow(NUMBER_BYTES as u64)?;
        self.numbers.push(number);
        self.write(at, page)
    }

    /// Completes the pages of a file of `len` bytes.
    ///
    /// # Errors
    /// Those of the local medium.
    pub fn finish(mut self, len: u64) -> Result<()> {
        let count = self.numbers.len();
        let numbers = self.numbers.iter().flat_map(|number| number.to_le_bytes());
        let numbers: Vec<u8> = numbers.collect();
        for (page, bytes) in (count..).zip(numbers.chunks(PAGE_BYTES)) {
            self.write(page as u64 * PAGE, bytes)?;
        }
        let last = count + index_pages(count);
        self.write(
            last as u64 * PAGE,
            &Trailer { count, len, index: hash64(0, &numbers) }.encode(),
        )?;
        self.file.sync(Purpose::Scrub)?;
        self.local.sync_names(&[&self.name])?;
        self.is_complete = true;
        Ok(())
    }

    /// Writes a page; `bytes` are its first.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut page = Buf::pages(1);
        page.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        self.file.write(at, page, Purpose::Scrub).1
    }
}

impl Drop for KeptWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            // One that stays is removed at the next open.
            let _ = self.local.remove(&self.name);
        }
    }
}

/// The last page of a file with kept pages.
struct Trailer {
    count: usize,
    /// Length of the file that the pages are of, bytes.
    len: u64,
    /// The hash of the index.
    index: u64,
}

impl Trailer {
    /// Bytes that the checksum covers.
    const COVERED: usize = 32;

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.count as u32).to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&hash64(0, &bytes).to_le_bytes());
        bytes
    }

    /// `None` for any other page than [`Trailer::encode`] gives.
    fn decode(page: &[u8]) -> Option<Self> {
        let (covered, rest) = page.split_at_checked(Self::COVERED)?;
        let (fixed, fields) = covered.split_first_chunk::<12>()?;
        let (count, fields) = fields.split_first_chunk()?;
        let (len, fields) = fields.split_first_chunk()?;
        let (index, _) = fields.split_first_chunk()?;
        let is_sound = fixed.starts_with(MAGIC)
            && fixed.ends_with(&VERSION.to_le_bytes())
            && rest.first_chunk() == Some(&hash64(0, covered).to_le_bytes());
        is_sound.then_some(Self {
            count: u32::from_le_bytes(*count) as usize,
            len: u64::from_le_bytes(*len),
            index: u64::from_le_bytes(*index),
        })
    }
}

/// The kept pages of one file.
pub(super) struct Kept {
    file: Arc<dyn File>,
    /// Ascending.
    numbers: Vec<u32>,
    _charge: Charge,
}

impl Kept {
    /// Opens the kept pages of the file `name` of `len` bytes; none if they are missing, damaged, or of
    /// another file, or if there is no memory for them.
    pub(super) fn open(
        local: &dyn Medium,
        name: &str,
        len: u64,
        account: &Account,
    ) -> Option<Self> {
        let file = local.open(&kept_name(name), Access::Direct).ok()?;
        let pages = usize::try_from(file.size().ok()? / PAGE).ok()?;
        let read = |page: usize| {
            let (buf, read) = file.read(page as u64 * PAGE, Buf::pages(1), Purpose::Meta);
            read.is_ok().then_some(buf)
        };
        let Trailer { count, len: stated, index } = Trailer::decode(&read(pages.checked_sub(1)?)?)?;
        let is_whole = count.checked_add(index_pages(count))?.checked_add(1)? == pages;
        if stated != len || !is_whole || count as u64 > len / PAGE {
            return None;
        }
        let charge = account.try_charge((count * NUMBER_BYTES) as u64)?;
        let mut bytes = Vec::with_capacity(index_pages(count) * PAGE_BYTES);
        for page in count..count + index_pages(count) {
            bytes.extend_from_slice(&read(page)?);
        }
        bytes.truncate(count * NUMBER_BYTES);
        let (chunks, _) = bytes.as_chunks();
        let numbers: Vec<u32> = chunks.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let is_sound = hash64(0, &bytes) == index && numbers.is_sorted_by(|one, two| one < two);
        is_sound.then_some(Self { file, numbers, _charge: charge })
    }

    /// The offset of the `len` bytes at `at` of the file among its kept pages, if all of them are kept.
    pub(super) fn find(&self, at: u64, len: usize) -> Option<u64> {
        let first = u32::try_from(at / PAGE).ok()?;
        let more = len.div_ceil(PAGE_BYTES).checked_sub(1)?;
        let index = self.numbers.binary_search(&first).ok()?;
        let last = u32::try_from(more).ok()?.checked_add(first)?;
        let is_kept = at.is_multiple_of(PAGE) && self.numbers.get(index + more) == Some(&last);
        is_kept.then_some(index as u64 * PAGE)
    }

    /// Reads what [`Kept::find`] found.
    pub(super) fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.file.read(at, buf, purpose)
    }
}

//! The backing file of a hybrid cache: one object per page, read and written with direct I/O.

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result, hash64};
use media::{Access, Buf, File, FileMedium, FileOptions, Medium, Purpose};

/// Bytes per page.
const PAGE_BYTES: usize = 4096;

/// Header of a page: checksum of the rest, length of the object.
const HEADER_BYTES: usize = 10;

const NAME: &str = "backing";

/// The backing file.
pub(super) struct Backing {
    file: Arc<dyn File>,
}

impl Backing {
    /// Opens the backing file in `dir`, or creates one of at most `bytes`.
    pub(super) fn open(dir: &Path, bytes: u64) -> Result<Self> {
        let medium = FileMedium::open(dir, FileOptions::default())?;
        let is_there = medium.list()?.iter().any(|file| file.name == NAME);
        let file = match is_there {
            true => medium.open(NAME, Access::Direct)?,
            false => medium.create(NAME, Access::Direct, bytes)?,
        };
        Ok(Self { file })
    }

    pub(super) fn read(&self, number: u32) -> Result<Buf> {
        let (page, result) = self.file.read(at(number), Buf::pages(1), Purpose::Data);
        result.map(|()| page)
    }

    pub(super) fn write(&self, number: u32, value: &[u8]) -> Result<()> {
        let mut page = Buf::pages(1);
        let Some(to) = page.get_mut(HEADER_BYTES..HEADER_BYTES + value.len()) else {
            return Err(Error::invalid("value").expected("less than a page").got(value.len()));
        };
        to.copy_from_slice(value);
        page[8..HEADER_BYTES].copy_from_slice(&(value.len() as u16).to_le_bytes());
        let sum = checksum(number, &page).to_le_bytes();
        page[..8].copy_from_slice(&sum);
        self.file.write(at(number), page, Purpose::Data).1
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync(Purpose::Data)
    }
}

const fn at(number: u32) -> u64 {
    number as u64 * PAGE_BYTES as u64
}

fn checksum(number: u32, page: &[u8]) -> u64 {
    hash64(u64::from(number), &page[8..])
}

/// Whether `page` is intact and holds object `number`.
pub(super) fn is_right(number: u32, page: &[u8]) -> bool {
    page.first_chunk() == Some(&checksum(number, page).to_le_bytes())
}

/// The object in `page`.
pub(super) fn object(page: &[u8]) -> &[u8] {
    let length = u16::from_le_bytes([page[8], page[9]]);
    &page[HEADER_BYTES..HEADER_BYTES + usize::from(length)]
}

//! The sections of a checkpoint of indexes, read front to back by an open, a check and an inspection.

use std::sync::Arc;

use base::{Account, Charge, Error, Result, invariant};
use media::{Access, File, Medium, Purpose};
use tree::checkpoint::{HEADER_BYTES, Header, SECTION_HEAD_BYTES, Section};

/// Bytes that are read at once: more than a section.
const READ_BYTES: usize = 1 << 20;

/// Reads a checkpoint front to back.
pub(super) struct Sections {
    file: Arc<dyn File>,
    length: u64,
    /// The next byte to read.
    at: u64,
    bytes: Vec<u8>,
    /// The next byte of `bytes`.
    next: usize,
    _charge: Charge,
}

impl Sections {
    /// Opens checkpoint `number`, a file of `length` bytes; `None` if it was not finished.
    ///
    /// # Errors
    /// `Corrupt` if its header is damaged or another file's, `Invalid` if a newer version wrote it, and
    /// those of the device and of a lack of memory.
    pub(super) fn open(
        medium: &dyn Medium,
        number: u64,
        length: u64,
        account: &Account,
    ) -> Result<Option<(Header, Self)>> {
        let file = medium.open(&Header::file_name(number), Access::Bytes)?;
        let mut head = vec![0; HEADER_BYTES];
        if length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        file.load(0, &mut head, Purpose::Replay)?;
        if head.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::decode(&head)?;
        if (header.number, header.length) != (number, length) {
            return Err(Error::corrupt("header of an index checkpoint")
                .at(file.name())
                .expected(format_args!("number {number}, {length} bytes"))
                .got(format_args!("number {}, {} bytes", header.number, header.length)));
        }
        let charge = account.charge(2 * READ_BYTES as u64)?;
        let (at, bytes) = (HEADER_BYTES as u64, Vec::new());
        Ok(Some((header, Self { file, length, at, bytes, next: 0, _charge: charge })))
    }

    /// Ensures that `wanted` bytes are there. False at the end of the file.
    fn fill(&mut self, wanted: usize) -> Result<bool> {
        if self.bytes.len() - self.next >= wanted {
            return Ok(true);
        }
        self.bytes.drain(..self.next);
        self.next = 0;
        let more = (READ_BYTES as u64).min(self.length - self.at) as usize;
        let begin = self.bytes.len();
        self.bytes.resize(begin + more, 0);
        let into = self.bytes.get_mut(begin..).unwrap_or_default();
        self.file.load(self.at, into, Purpose::Replay)?;
        self.at += more as u64;
        match self.bytes.len() {
            0 => {
                invariant!(self.at == self.length, "a checkpoint is read to its end");
                Ok(false)
            }
            there if there < wanted => Err(Error::corrupt("index checkpoint")
                .at(self.file.name())
                .expected("a whole section")
                .got(format_args!("{there} bytes"))),
            _ => Ok(true),
        }
    }

    /// The next section; `None` at the end of the file.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, and those of the device.
    pub(super) fn next(&mut self) -> Result<Option<Section>> {
        if !self.fill(SECTION_HEAD_BYTES)? {
            return Ok(None);
        }
        let head = self.bytes.get(self.next..self.next + SECTION_HEAD_BYTES).unwrap_or_default();
        let length = SECTION_HEAD_BYTES + Section::body_bytes(head)?;
        self.fill(length)?;
        let section = self.bytes.get(self.next..self.next + length).unwrap_or_default();
        let (head, body) = section.split_at_checked(SECTION_HEAD_BYTES).unwrap_or_default();
        self.next += length;
        Section::decode(head, body).map(Some)
    }
}

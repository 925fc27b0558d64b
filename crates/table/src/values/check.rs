//! The check of a value file: every page, run by run.
//!
//! Reads up to 256 KiB at a time; a run is decoded only for its key. A damaged page costs the value it
//! belongs to: the walk goes on with the next page that starts a run.

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use media::Purpose;

use super::head;
use super::read::{Values, read_footer};
use crate::page::{Header, PageKind, fold_digest, verify_page};
use crate::sorted::read::read_raw;

/// The pages of one read.
const CHUNK_PAGES: u32 = 64;

/// Damages that are listed; more are counted.
const LISTED_MAX: usize = 100;

/// Damage of a value file.
#[derive(Clone, Debug)]
pub struct ValueDamage {
    /// Where it begins, and how many pages it is.
    pub page: u32,
    /// See `page`.
    pub pages: u32,
    /// The key whose value is lost, where the file still tells.
    pub key: Option<Vec<u8>>,
    /// What is wrong.
    pub error: Error,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct ValuesReport {
    /// Pages read.
    pub pages: u32,
    /// Values met whole.
    pub values: u64,
    /// Damages met.
    pub damages: u64,
    /// The first of them.
    pub listed: Vec<ValueDamage>,
}

/// The value that is walked through.
struct Present {
    first: Header,
    at: u32,
    key: Option<Vec<u8>>,
}

impl Values {
    /// Reads all of the file and verifies each page (I8), the footer's too, the order of pages within
    /// values, the number of values and the digest. `progress` is told the pages done.
    ///
    /// # Errors
    /// `Retry` where the device is out of what it needs. Damage is no error: the report has it.
    pub fn verify(&self, progress: &mut dyn FnMut(u32)) -> Result<ValuesReport> {
        let mut report = ValuesReport::default();
        let mut present: Option<Present> = None;
        let mut digest = 0;
        let last = self.footer().pages - 1;
        let mut page = 0;
        while page < last {
            let count = CHUNK_PAGES.min(last - page);
            let chunk = read_raw(&**self.file(), page, count, Purpose::Scrub);
            if let Err(error) = &chunk
                && error.is_retryable()
            {
                return Err(error.clone());
            }
            for number in page..page + count {
                let single;
                let bytes = match &chunk {
                    Ok(buf) => buf.chunks_exact(PAGE_BYTES).nth((number - page) as usize).map(Ok),
                    // A sector that cannot be read costs its page alone.
                    Err(_) => {
                        single = read_raw(&**self.file(), number, 1, Purpose::Scrub);
                        Some(single.as_deref().map_err(Clone::clone))
                    }
                };
                let bytes = bytes.unwrap_or(Ok(&[]));
                let seen = bytes.and_then(|bytes| {
                    verify_page(self.seed(), number, bytes)?;
                    digest = fold_digest(digest, bytes);
                    Ok((Header::parse(bytes)?, bytes))
                });
                present = report.page(number, present, seen);
            }
            page += count;
            progress(count);
        }
        if let Some(Present { at, key, .. }) = present {
            report.note(at, last - at, key, Error::corrupt("value").expected("all its pages"));
        }
        report.pages = self.footer().pages;
        let footer = self.footer();
        match read_footer(&**self.file(), None) {
            Ok(_) => {}
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => report.note(last, 1, None, error),
        }
        if report.damages == 0 && (report.values, digest) != (footer.values, footer.digest) {
            let error = Error::corrupt("values of a file, and its digest")
                .expected(format_args!("{}, {:016x}", footer.values, footer.digest))
                .got(format_args!("{}, {digest:016x}", report.values));
            report.note(last, 1, None, error);
        }
        Ok(report)
    }
}

impl ValuesReport {
    fn note(&mut self, page: u32, pages: u32, key: Option<Vec<u8>>, error: Error) {
        self.damages += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(ValueDamage { page, pages, key, error });
        }
    }

    /// Takes in page `number`, after those of `present`; the value that is walked through next.
    fn page(
        &mut self,
        number: u32,
        present: Option<Present>,
        seen: Result<(Header, &[u8])>,
    ) -> Option<Present> {
        let (header, bytes) = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let key = present.and_then(|present| present.key);
                self.note(number, 1, key, error);
                return None;
            }
        };
        let expected = present.as_ref().map(|present| number - present.at);
        let is_next = match (&present, expected) {
            (Some(present), Some(index)) => {
                header == Header { number: index as u16, ..present.first }
            }
            _ => header.kind == PageKind::Values && header.number == 0,
        };
        if !is_next {
            let error = Error::corrupt("page of a value")
                .expected(format_args!("number {}", expected.unwrap_or(0)))
                .got(format_args!("{header:?}"));
            let is_start = header.kind == PageKind::Values && header.number == 0;
            // The rest of a value whose beginning is lost was told with its beginning.
            if present.is_some() || header.kind != PageKind::Values {
                self.note(number, 1, present.and_then(|present| present.key), error);
            }
            return if is_start { self.begin(number, header, bytes) } else { None };
        }
        match present {
            None => self.begin(number, header, bytes),
            Some(present) => self.ended(number, present),
        }
    }

    fn begin(&mut self, at: u32, first: Header, bytes: &[u8]) -> Option<Present> {
        let key = head::key_on(bytes, &first);
        self.ended(at, Present { first, at, key })
    }

    /// `present`, unless page `number` is its last.
    fn ended(&mut self, number: u32, present: Present) -> Option<Present> {
        if (number - present.at + 1) as usize == present.first.run_pages() {
            self.values += 1;
            return None;
        }
        Some(present)
    }
}

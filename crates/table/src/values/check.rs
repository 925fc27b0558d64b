//! The check of a value file: every page, run by run.
//!
//! Decodes only the key of a run. A damaged page costs only the value that it belongs to: the check continues
//! with the next page that starts a run.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result, invariant};
use media::Purpose;

use super::head;
use super::read::{Values, read_footer};
use crate::page::{Header, PageKind};
use crate::{PageBuffer, PageVisitor, PageWalk, Retries};

/// Damages that are listed; all are counted.
const LISTED_MAX: usize = 100;

/// Damage of a value file.
#[derive(Clone, Debug)]
pub struct ValueDamage {
    /// The first damaged page, and the number of damaged pages.
    pub page: u32,
    /// See `page`.
    pub pages: u32,
    /// The key of the lost value, if it is still readable.
    pub key: Option<Vec<u8>>,
    /// What is wrong.
    pub error: Error,
}

/// The report of a check.
#[derive(Clone, Debug, Default)]
pub struct ValuesReport {
    /// Number of pages read.
    pub pages: u32,
    /// Number of complete values.
    pub values: u64,
    /// Number of damages.
    pub damages: u64,
    /// The first of them.
    pub listed: Vec<ValueDamage>,
}

/// The value with the pages that are being checked.
struct PartialValue {
    first: Header,
    at: u32,
    key: Option<Vec<u8>>,
}

/// A check in progress.
#[derive(Default)]
struct Check {
    report: ValuesReport,
    partial: Option<PartialValue>,
}

impl PageVisitor for Check {
    fn page(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        let seen = Header::parse(bytes).map(|header| (header, bytes));
        self.partial = self.report.page(number, self.partial.take(), seen);
        Ok(())
    }

    fn damaged(&mut self, pages: Range<u32>, error: Error) -> Result<()> {
        for number in pages {
            self.partial = self.report.page(number, self.partial.take(), Err(error.clone()));
        }
        Ok(())
    }
}

impl Values {
    /// Reads the whole file, and verifies each page including the footer (I8), the order of the pages
    /// within values, the number of values, and the digest. `progress` gets the number of pages of each
    /// read.
    ///
    /// # Errors
    /// `Retry` if memory or the device's resources are short. Damage is in the report, not an error.
    pub fn verify(&self, progress: &mut dyn FnMut(u32)) -> Result<ValuesReport> {
        let (file, buffer) = (Arc::clone(self.file()), PageBuffer::new(self.account())?);
        let last = self.footer().pages - 1;
        let mut walk = PageWalk::new(file, self.seed(), last, Purpose::Scrub, buffer);
        let mut check = Check::default();
        while !walk.is_done() {
            progress(walk.step(Retries::Unread, &mut check)?);
        }
        let (Check { mut report, partial }, digest) = (check, walk.digest());
        if let Some(PartialValue { at, key, .. }) = partial {
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

    /// Processes page `number`, which follows the pages of `partial`. Returns the value whose pages are
    /// not complete yet.
    fn page(
        &mut self,
        number: u32,
        partial: Option<PartialValue>,
        seen: Result<(Header, &[u8])>,
    ) -> Option<PartialValue> {
        let (header, bytes) = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let key = partial.and_then(|partial| partial.key);
                self.note(number, 1, key, error);
                return None;
            }
        };
        let expected = partial.as_ref().map(|partial| number - partial.at);
        let is_next = match (&partial, expected) {
            (Some(partial), Some(index)) => {
                header == Header { number: index as u16, ..partial.first }
            }
            _ => header.kind == PageKind::Values && header.number == 0,
        };
        if !is_next {
            let error = Error::corrupt("page of a value")
                .expected(format_args!("number {}", expected.unwrap_or(0)))
                .got(format_args!("{header:?}"));
            let is_start = header.kind == PageKind::Values && header.number == 0;
            // The rest of a value whose first page is lost was reported with that page.
            if partial.is_some() || header.kind != PageKind::Values {
                self.note(number, 1, partial.and_then(|partial| partial.key), error);
            }
            return if is_start { self.begin(number, header, bytes) } else { None };
        }
        match partial {
            None => self.begin(number, header, bytes),
            Some(partial) => self.ended(number, partial),
        }
    }

    fn begin(&mut self, at: u32, first: Header, bytes: &[u8]) -> Option<PartialValue> {
        let key = head::key_on(bytes, &first);
        self.ended(at, PartialValue { first, at, key })
    }

    /// Returns `partial` unless page `number` is its last.
    fn ended(&mut self, number: u32, partial: PartialValue) -> Option<PartialValue> {
        invariant!(partial.at <= number, "pages of a value are checked in order");
        if (number - partial.at + 1) as usize == partial.first.run_pages() {
            self.values += 1;
            return None;
        }
        Some(partial)
    }
}

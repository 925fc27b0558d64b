//! The upload of one table, a chunk each step.
//!
//! Every page is verified as it is read, and the digest of the whole at the end, so that no damage of the
//! local device becomes the only copy. The object store compares hashes of what it was sent; afterwards the
//! last page is read back and verified.
//!
//! The pages that opening the table reads stay local, and so do its filters and separators
//! ([`media::Cold::keep`]): about one in a hundred. The table moves also if the device has no room for them.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result, invariant};
use media::{Access, Buf, Cold, File, KeptWriter, Medium, Purpose};
use table::{Header, TAIL_PAGES, Table, fold_digest, verify_page};
use tree::{TableFile, Tree};

/// Pages of a step.
const STEP_PAGES: u32 = 64;

/// See the module.
pub(super) struct Upload {
    pub(super) tree: Arc<Tree>,
    /// Keeps the local file, and its name, until the upload ends.
    pub(super) file: Arc<TableFile>,
    /// The name of the object.
    pub(super) name: String,
    table: Arc<Table>,
    target: Arc<dyn File>,
    /// The pages that stay local; none after they could not be written.
    kept: Option<KeptWriter>,
    next: u32,
    digest: u64,
    buf: Option<Buf>,
    _charge: Charge,
}

impl Upload {
    /// Begins the upload of `file`, a table of `tree`. The memory of a step is `charge`.
    ///
    /// # Errors
    /// Those of the medium; that of the table if it could not be opened.
    pub(super) fn begin(
        (medium, cold): (&dyn Medium, &Cold),
        tree: Arc<Tree>,
        file: Arc<TableFile>,
        name: String,
        charge: Charge,
    ) -> Result<Self> {
        let table = Arc::clone(file.table()?);
        let bytes = u64::from(table.footer().pages) * PAGE_BYTES as u64;
        let target = medium.create(&name, Access::Direct, bytes)?;
        let kept = cold.keep(&table::file_name(table.id())).ok();
        let (next, digest, buf) = (0, 0, None);
        Ok(Self { tree, file, name, table, target, kept, next, digest, buf, _charge: charge })
    }

    /// The memory of a step, bytes.
    pub(super) const fn step_bytes() -> u64 {
        STEP_PAGES as u64 * PAGE_BYTES as u64
    }

    /// Length of the table, bytes.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.table.footer().pages) * PAGE_BYTES as u64
    }

    /// Reads and verifies the next pages.
    ///
    /// # Errors
    /// `Corrupt` if the local table is damaged; those of its device.
    pub(super) fn read(&mut self) -> Result<()> {
        let footer = self.table.footer();
        invariant!(self.next < footer.pages, "a table that was sent is not read on");
        let count = STEP_PAGES.min(footer.pages - self.next);
        let buf = match self.buf.take() {
            Some(buf) if buf.len() == count as usize * PAGE_BYTES => buf,
            _ => Buf::pages(count as usize),
        };
        let at = u64::from(self.next) * PAGE_BYTES as u64;
        let (buf, read) = self.table.file().read(at, buf, Purpose::Scrub);
        read?;
        for (number, page) in (self.next..).zip(buf.chunks_exact(PAGE_BYTES)) {
            verify_page(self.table.seed(), number, page)?;
            self.digest = fold_digest(self.digest, page);
            let is_block = Header::parse(page).is_ok_and(|header| header.is_block());
            let is_kept = number + TAIL_PAGES >= footer.pages || !is_block;
            if is_kept && self.kept.as_mut().is_some_and(|kept| kept.add(number, page).is_err()) {
                self.kept = None;
            }
        }
        self.buf = Some(buf);
        if self.next + count == footer.pages && self.digest != footer.digest {
            return Err(Error::corrupt("digest of a table")
                .at(table::file_name(self.table.id()))
                .expected(format_args!("{:016x}", footer.digest))
                .got(format_args!("{:016x}", self.digest)));
        }
        Ok(())
    }

    /// Sends the pages that were read. Returns whether they were the last.
    ///
    /// # Errors
    /// Those of the object store.
    pub(super) fn send(&mut self) -> Result<bool> {
        let Some(buf) = self.buf.take() else { return Ok(false) };
        let at = u64::from(self.next) * PAGE_BYTES as u64;
        let (buf, written) = self.target.write(at, buf, Purpose::Scrub);
        written?;
        self.next += (buf.len() / PAGE_BYTES) as u32;
        self.buf = Some(buf);
        Ok(self.next == self.table.footer().pages)
    }

    /// Completes the object and publishes its name, then reads its end back.
    ///
    /// # Errors
    /// Those of the medium; `Retry` if the object is not the table.
    pub(super) fn finish(&mut self, medium: &dyn Medium) -> Result<()> {
        invariant!(self.next == self.table.footer().pages, "an object has every page of its table");
        self.target.sync(Purpose::Scrub)?;
        medium.sync_names(&[&self.name])?;
        let file = medium.open(&self.name, Access::Direct)?;
        let wrong = || Error::retry("object of a cold table").at(&self.name);
        let (len, last) = (file.size()?, self.table.footer().pages - 1);
        if len != self.len() {
            return Err(wrong().expected(format_args!("{} bytes", self.len())).got(len));
        }
        let at = u64::from(last) * PAGE_BYTES as u64;
        let (page, read) = file.read(at, Buf::pages(1), Purpose::Scrub);
        read?;
        verify_page(self.table.seed(), last, &page).map_err(|error| wrong().caused_by(error))?;
        if let Some(kept) = self.kept.take() {
            // Without them, reads of these pages are requests.
            let _ = kept.finish(len);
        }
        Ok(())
    }
}

//! The file with the pages that a read asks for.

use std::fmt;
use std::sync::Arc;

use base::{Error, PageSeed};
use media::File;
use table::{Table, Values, values_file_name};

/// A table or a value file, and the means to read and verify its pages.
#[derive(Clone)]
pub struct PageFile {
    /// The open file.
    pub file: Arc<dyn File>,
    /// The seed of its page checksums.
    pub seed: PageSeed,
    /// Number of pages in the file.
    pub pages: u32,
    /// The table; `None` for a value file.
    pub table: Option<Arc<Table>>,
}

impl PageFile {
    /// Adds the file name to the error of a damaged page, unless the file is a table: a table's errors name
    /// it already.
    #[cold]
    pub(crate) fn name_damaged(&self, error: Error) -> Error {
        match &self.table {
            None => error.at(values_file_name(self.seed.table())),
            Some(_) => error,
        }
    }

    /// Adds page number and file to `error`.
    #[cold]
    pub(crate) fn name_page(&self, error: Error, page: u32) -> Error {
        let id = self.seed.table();
        match &self.table {
            None => error.at(format_args!("page {page} of {}", values_file_name(id))),
            Some(_) => error.at(format_args!("page {page} of table {id}")),
        }
    }
}

impl From<&Arc<Table>> for PageFile {
    fn from(table: &Arc<Table>) -> Self {
        let (file, seed) = (Arc::clone(table.file()), table.seed());
        Self { file, seed, pages: table.footer().pages, table: Some(Arc::clone(table)) }
    }
}

impl From<&Arc<Values>> for PageFile {
    fn from(values: &Arc<Values>) -> Self {
        let (file, seed) = (Arc::clone(values.file()), values.seed());
        Self { file, seed, pages: values.footer().pages, table: None }
    }
}

impl fmt::Debug for PageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageFile({})", self.seed.table())
    }
}

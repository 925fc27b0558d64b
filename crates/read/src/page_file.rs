//! The file whose pages a read asks for.

use std::fmt;
use std::sync::Arc;

use base::{Error, PageSeed};
use media::File;
use table::{Table, Values, values_file_name};

/// A table or a value file, as far as getting its pages goes.
#[derive(Clone)]
pub struct PageFile {
    pub file: Arc<dyn File>,
    pub seed: PageSeed,
    /// How many pages it has.
    pub pages: u32,
    /// The table it is; `None`: a value file.
    pub table: Option<Arc<Table>>,
}

impl PageFile {
    /// Adds to the error of a damaged page that the file is none of tables, where it is not.
    #[cold]
    pub fn damaged(&self, error: Error) -> Error {
        match &self.table {
            None => error.at(values_file_name(self.seed.table())),
            Some(_) => error,
        }
    }

    /// Names where `error` was met.
    #[cold]
    pub fn place(&self, error: Error, page: u32) -> Error {
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

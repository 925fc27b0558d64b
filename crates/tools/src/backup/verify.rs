//! Verifying a backup: every byte of it, as a check of the store that it is.

use std::sync::Arc;

use base::{Account, Error, Result, StoreId};
use media::Medium;
use table::{Dictionaries, Table};

use super::Backup;
use super::index::IndexEntry;
use super::view::View;
use base::Problem;

use crate::check::{CheckReport, check};
use crate::copier::{Content, Copier, recorded_digest};
use crate::store_file::StoreFile;
use tree::StoreDictionaries;

impl Backup {
    /// Reads everything that backup `id` is made of: whether it is there, is what was recorded when
    /// the backup was made, and is a store without damage. Problems name the files of the store;
    /// the repository has each under that name and its digest.
    ///
    /// # Errors
    /// `Invalid` where there is no such backup, `Corrupt` where its index is damaged. Other damage
    /// is no error: the report has it.
    pub fn verify(&self, id: u64) -> Result<CheckReport> {
        let _lock = self.medium.lock()?;
        let index = self.index(id)?;
        let view = Arc::new(View::new(&self.medium, &index)) as Arc<dyn Medium>;
        let source = self.limited(&view);
        let told = self.progress.clone();
        let mut progress = |done, total| {
            if let Some(told) = &told {
                told(done, total);
            }
        };
        let mut report = check(&source, &mut progress)?;
        let mut copier = Copier::new(&self.account)?;
        for entry in &index.files {
            if let Err(error) = verify(&mut copier, &*source, entry, index.store) {
                if error.is_retryable() {
                    return Err(error);
                }
                // What the check found out already is told with its pages and keys.
                if !report.problems.iter().any(|problem| problem.file == entry.name) {
                    report.note(Problem::of(&entry.name, error));
                }
            }
        }
        Ok(report)
    }
}

/// Verifies one file against what the index says of it. A table's pages were checked already.
fn verify(
    copier: &mut Copier,
    view: &dyn Medium,
    entry: &IndexEntry,
    store: StoreId,
) -> Result<()> {
    let (bytes, digest) = match entry.content(store) {
        content @ (Content::Table(..) | Content::Values(..)) => {
            recorded_digest(view, &entry.name, content)?
        }
        content @ Content::Plain => {
            let bytes = entry.bytes;
            (bytes, copier.digest((view, &entry.name), bytes, content, &mut |_| ())?)
        }
    };
    if bytes != entry.bytes {
        let error = Error::corrupt("length of a file, bytes").at(entry.object());
        return Err(error.expected(entry.bytes).got(bytes));
    }
    entry.expect(digest)
}

/// Adds to the error of a damaged table which of its pages and keys are concerned.
pub(super) fn explain(
    medium: &Arc<dyn Medium>,
    name: &str,
    store: StoreId,
    account: &Account,
    error: Error,
) -> Error {
    let Some(StoreFile::Table(id)) = StoreFile::of(name) else { return error };
    let dictionaries = StoreDictionaries::new(Arc::clone(medium), store, account.clone());
    let dictionaries = Arc::new(dictionaries) as Arc<dyn Dictionaries>;
    let Ok(table) = Table::open(&**medium, store, id, None, None, dictionaries, account) else {
        return error.got("a table that cannot be opened");
    };
    let Ok(report) = table.check(account, &mut |_, _| ()) else { return error };
    let Some(damage) = report.listed.first() else { return error };
    let others = report.damages.saturating_sub(1);
    Error::corrupt("table")
        .at(name)
        .expected("pages that verify")
        .got(format_args!("{damage}; {others} more damages"))
        .caused_by(error)
}

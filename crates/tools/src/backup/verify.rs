//! Verification of a backup: reads every byte, and checks the store that it holds.

use std::sync::Arc;

use base::{Account, Error, Problem, Result, StoreId};
use media::Medium;
use table::{Dictionaries, StoreDictionaries, Table};

use super::Backup;
use super::index::IndexEntry;
use super::view::View;
use crate::check::{CheckReport, check};
use crate::copier::{Content, Copier, recorded_digest};
use crate::store_file::StoreFile;

impl Backup {
    /// Reads all files of backup `id`, and verifies that they exist, match the digests recorded in the index,
    /// and form a store without damage. Problems name the files of the store; the repository has each under
    /// that name and its digest.
    ///
    /// # Errors
    /// `Invalid` if there is no such backup, `Corrupt` if its index is damaged. Other damage is not an error:
    /// the report lists it.
    pub fn verify(&self, id: u64) -> Result<CheckReport> {
        let _lock = self.medium.lock()?;
        let index = self.index(id)?;
        let view = Arc::new(View::new(&self.medium, &index)) as Arc<dyn Medium>;
        let source = self.limited(&view);
        let on_progress = self.progress.clone();
        let mut progress = |done, total| {
            if let Some(on_progress) = &on_progress {
                on_progress(done, total);
            }
        };
        let mut report = check(&source, &mut progress)?;
        let mut copier = Copier::new(&self.account, &self.cancel)?;
        for entry in &index.files {
            if let Err(error) = verify(&mut copier, &*source, entry, index.store) {
                if error.is_retryable() {
                    return Err(error);
                }
                // Damage that the check found is reported already, with its pages and keys.
                if !report.problems.iter().any(|problem| problem.file == entry.name) {
                    report.note(Problem::of(&entry.name, error));
                }
            }
        }
        Ok(report)
    }
}

/// Compares one file with its index entry. The check has verified a table's pages already.
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

/// Adds to the error of a damaged table which of its pages and keys are damaged.
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

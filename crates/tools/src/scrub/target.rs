//! What the scrubber reads: tables and value files. Both draw their ids from one series, which gives
//! the order of a pass.
//!
//! A target keeps its file open, so that one that is given up meanwhile can still be read to its end.

use std::ops::Range;
use std::sync::Arc;

use base::{Result, TableId};
use table::{file_name, values_file_name};

use base::Problem;
use manifest::Manifest;
use read::PageFile;
use tree::Quarantine;
use tree::{TableFile, Tree, ValueFile, Version};

/// A file to be read.
pub(super) enum Target {
    Table(Arc<TableFile>),
    Values(Arc<ValueFile>),
}

impl Target {
    /// The first file of `version` by id, of those in `ids`.
    pub(super) fn first(version: &Version, ids: &Range<TableId>) -> Option<Self> {
        let tables = version.files().into_iter().map(|file| Self::Table(Arc::clone(file)));
        let values = version.value_files().into_iter().map(|file| Self::Values(Arc::clone(file)));
        // Either is in the order of ids.
        let of = |id: &Self| ids.contains(&id.id());
        let firsts = [tables.into_iter().find(of), values.into_iter().find(of)];
        firsts.into_iter().flatten().min_by_key(Self::id)
    }

    pub(super) fn id(&self) -> TableId {
        match self {
            Self::Table(file) => file.entry().id,
            Self::Values(file) => file.id(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Table(file) => file_name(file.entry().id),
            Self::Values(file) => values_file_name(file.id()),
        }
    }

    /// Whether the manifest has given it up: it is kept for readers alone.
    pub(super) fn is_obsolete(&self, manifest: &Manifest) -> bool {
        match self {
            Self::Table(file) => file.is_obsolete(),
            Self::Values(file) => manifest.has_given_up(file.id()),
        }
    }

    /// Its pages.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub(super) fn pages(&self) -> Result<PageFile> {
        match self {
            Self::Table(file) => file.table().map(PageFile::from),
            Self::Values(file) => file.values().map(PageFile::from),
        }
    }

    /// What its pages are cached by.
    pub(super) fn digest(&self) -> Option<u64> {
        match self {
            Self::Table(file) => file.table().ok().map(|table| table.footer().digest),
            Self::Values(file) => file.values().ok().map(|values| values.footer().digest),
        }
    }

    /// The keys whose entries or values lie on `count` pages from `first` on, as far as the file
    /// still tells.
    pub(super) fn keys_on(&self, first: u32, count: u32) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Table(file) => {
                let table = file.table().ok()?;
                let keys = |page| table.keys_on(page).ok().flatten();
                let (from, to) = keys(first)?;
                Some((from, keys(first + (count - 1)).map_or(to, |(_, last)| last)))
            }
            Self::Values(file) => {
                let values = file.values().ok()?;
                let key = |page| values.key_on(page).ok().flatten();
                let from = key(first)?;
                // Values lie in the order of their keys.
                let to = key(first + (count - 1)).filter(|to| *to > from);
                Some((from.clone(), to.unwrap_or(from)))
            }
        }
    }

    /// Whether what the pages from `first` on say is known without them: they are a table's that has
    /// them twice, or a value file's footer. What rewrites the file then makes it whole.
    fn is_spare(&self, first: u32) -> bool {
        match self {
            Self::Table(file) => {
                file.table().is_ok_and(|table| table.footer().twin(first).is_some())
            }
            Self::Values(file) => {
                file.values().is_ok_and(|values| first + 1 == values.footer().pages)
            }
        }
    }

    /// Tells of damage in it and keeps it out of what would rewrite it, where that would lose something.
    pub(super) fn quarantine(&self, quarantine: &Quarantine, tree: &Tree, problem: Problem) {
        if problem.pages.is_some_and(|(first, _)| self.is_spare(first)) {
            return quarantine.note(problem);
        }
        match self {
            Self::Table(file) => quarantine.add(tree, file, problem),
            Self::Values(file) => {
                file.exclude();
                quarantine.note(problem);
            }
        }
    }
}

//! Targets of a scrub: tables and value files. Both have ids from one sequence, which gives the order of a
//! pass.
//!
//! A target keeps its file open, so that a file that becomes obsolete meanwhile can still be read.

use std::ops::Range;
use std::sync::Arc;

use base::{Problem, Result, TableId};
use manifest::Manifest;
use read::PageFile;
use table::{file_name, values_file_name};
use tree::{Quarantine, TableFile, Tree, ValueFile, Version};

/// A file to scrub.
pub(super) enum Target {
    Table(Arc<TableFile>),
    Values(Arc<ValueFile>),
}

impl Target {
    /// The file of `version` with the lowest id in `ids`.
    pub(super) fn first(version: &Version, ids: &Range<TableId>) -> Option<Self> {
        let tables = version.files().into_iter().map(|file| Self::Table(Arc::clone(file)));
        let values = version.value_files().into_iter().map(|file| Self::Values(Arc::clone(file)));
        // Both lists are sorted by id.
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

    /// Whether no version names the file: only readers keep it.
    pub(super) fn is_obsolete(&self, manifest: &Manifest) -> bool {
        match self {
            Self::Table(file) => file.is_obsolete(),
            Self::Values(file) => manifest.is_value_file_obsolete(file.id()),
        }
    }

    /// Whether the file is in an object store, which verifies its objects itself: reading it costs requests.
    pub(super) fn is_cold(&self, manifest: &Manifest) -> bool {
        matches!(self, Self::Table(file) if manifest.is_cold(file.entry().id))
    }

    /// The file and the seed of its pages.
    ///
    /// # Errors
    /// The error that its opening gave.
    pub(super) fn pages(&self) -> Result<PageFile> {
        match self {
            Self::Table(file) => file.table().map(PageFile::from),
            Self::Values(file) => file.values().map(PageFile::from),
        }
    }

    /// The digest of the file, which is the key of its pages in the cache; `None` if the file cannot be
    /// opened.
    pub(super) fn digest(&self) -> Option<u64> {
        match self {
            Self::Table(file) => file.table().ok().map(|table| table.footer().digest),
            Self::Values(file) => file.values().ok().map(|values| values.footer().digest),
        }
    }

    /// The first and last key with entries or values on the `count` pages from `first` on, as far as the
    /// file still states them.
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
                // Values are stored in key order.
                let to = key(first + (count - 1)).filter(|to| *to > from);
                Some((from.clone(), to.unwrap_or(from)))
            }
        }
    }

    /// Whether the content of page `first` is known without it: a table has the page twice, or it is the
    /// footer of a value file. Rewriting the file then repairs it.
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

    /// Reports damage of the file. If a rewrite of the file would lose data, quarantines a table, and leaves
    /// a value file out of garbage collection.
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

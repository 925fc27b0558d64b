//! Changes: the files that a repair creates and renames, so that a failed repair can undo them.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Result, TableId, broken_invariant};
use media::{Access, Buf, Medium, Purpose};
use table::{parse_file_name, parse_values_file_name};

/// Suffix of the name under which a damaged file is kept.
const KEPT: &str = ".damaged";

/// Pages copied at once.
const COPY_PAGES: usize = 64;

/// The files that the repair has created and renamed so far.
pub(super) struct Changes {
    medium: Arc<dyn Medium>,
    /// Files created.
    created: Vec<String>,
    /// Files renamed: the old and the new name.
    renamed: Vec<(String, String)>,
    /// Files that the new manifest or the log's recovery removes, and the copies of them.
    removed: Vec<(String, String)>,
}

impl Changes {
    pub(super) fn new(medium: &Arc<dyn Medium>) -> Self {
        Self {
            medium: Arc::clone(medium),
            created: Vec::new(),
            renamed: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Records that the file `name` is created by the repair.
    pub(super) fn add_created(&mut self, name: String) {
        self.created.push(name);
    }

    /// Returns an unused name under which the damaged file `name` can be kept.
    fn kept_name(&self, name: &str) -> Result<String> {
        let listed = self.medium.list()?;
        let is_free = |candidate: &String| listed.iter().all(|file| file.name != *candidate);
        let numbered = (1u32..).map(|number| format!("{name}{KEPT}-{number}"));
        let mut names = std::iter::once(format!("{name}{KEPT}")).chain(numbered);
        names.find(is_free).ok_or_else(|| broken_invariant!("one of four billion names is free"))
    }

    /// Renames the damaged file `name`, so that it is kept. Returns its new name.
    pub(super) fn keep_renamed(&mut self, name: &str) -> Result<String> {
        let kept = self.kept_name(name)?;
        self.medium.rename(name, &kept)?;
        self.renamed.push((name.to_owned(), kept.clone()));
        Ok(kept)
    }

    /// Copies the damaged file `name`, which the store's recovery will change. Returns the name of the copy,
    /// and whether every page could be read; the others are zeros in the copy.
    pub(super) fn keep_copy(&mut self, name: &str) -> Result<(String, bool)> {
        let kept = self.kept_name(name)?;
        let from = self.medium.open(name, Access::Bytes)?;
        let size = from.size()?;
        let to = self.medium.create(&kept, Access::Bytes, size)?;
        self.created.push(kept.clone());
        let (mut at, mut is_whole) = (0, true);
        while at < size {
            let left = size - at;
            let pages = left.div_ceil(PAGE_BYTES as u64).min(COPY_PAGES as u64) as usize;
            let (mut buf, read) = from.read(at, Buf::pages(pages), Purpose::Scrub);
            if read.is_err() {
                for (number, chunk) in (0u64..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
                    let page_at = at + number * PAGE_BYTES as u64;
                    let (page, read) = from.read(page_at, Buf::pages(1), Purpose::Scrub);
                    match read {
                        Ok(()) => chunk.copy_from_slice(&page),
                        Err(_) => {
                            is_whole = false;
                            chunk.fill(0);
                        }
                    }
                }
            }
            let used = left.min(buf.len() as u64) as usize;
            to.store(at, buf.get(..used).unwrap_or_default(), Purpose::Scrub)?;
            at += used as u64;
        }
        to.sync(Purpose::Scrub)?;
        Ok((kept, is_whole))
    }

    /// As [`Changes::keep_copy`], of a file that the new manifest will remove. If it cannot be read
    /// completely it is renamed instead, because it may become readable again.
    pub(super) fn keep_replaced(&mut self, name: &str) -> Result<()> {
        let (kept, is_whole) = self.keep_copy(name)?;
        if is_whole {
            self.removed.push((name.to_owned(), kept));
            return Ok(());
        }
        self.medium.remove(&kept)?;
        self.created.retain(|created| *created != kept);
        self.keep_renamed(name).map(drop)
    }

    /// The names under which damaged files were kept.
    pub(super) fn kept(&self) -> Vec<String> {
        let copies = self.created.iter().filter(|name| name.contains(KEPT)).cloned();
        self.renamed.iter().map(|(_, kept)| kept.clone()).chain(copies).collect()
    }

    /// Undoes the changes, as far as the device lets it.
    pub(super) fn undo(self) {
        for (name, kept) in self.renamed.iter().rev() {
            let _ = self.medium.rename(kept, name);
        }
        let listed = self.medium.list().unwrap_or_default();
        for (name, kept) in &self.removed {
            if listed.iter().all(|file| file.name != *name) {
                let _ = self.medium.rename(kept, name);
            }
        }
        for name in &self.created {
            let _ = self.medium.remove(name);
        }
        let _ = self.medium.sync_names(&[]);
    }
}

/// Renames back the tables and value files that an interrupted repair had renamed and not replaced.
pub(super) fn undo_interrupted(
    medium: &dyn Medium,
    is_named: impl Fn(TableId) -> bool,
) -> Result<()> {
    let listed = medium.list()?;
    for file in &listed {
        let Some(name) = file.name.strip_suffix(KEPT) else { continue };
        // Tables and value files have ids from one sequence.
        let id = parse_file_name(name).or_else(|| parse_values_file_name(name));
        let named = id.is_some_and(&is_named);
        if named && listed.iter().all(|other| other.name != name) {
            medium.rename(&file.name, name)?;
        }
    }
    medium.sync_names(&[])
}

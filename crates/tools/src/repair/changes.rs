//! What a repair changes among the files, so that one that fails can take it back.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Result, TableId};
use media::{Access, Buf, Medium, Purpose};
use table::{parse_file_name, parse_values_file_name};

/// What the name of a damaged file that is kept ends with.
const KEPT: &str = ".damaged";

/// Pages copied at once.
const COPY_PAGES: usize = 64;

/// Files made and renamed so far.
pub(super) struct Changes {
    medium: Arc<dyn Medium>,
    made: Vec<String>,
    renamed: Vec<(String, String)>,
    /// Files that others remove, and the copies that were made of them.
    removed: Vec<(String, String)>,
}

impl Changes {
    pub(super) fn new(medium: &Arc<dyn Medium>) -> Self {
        let (made, renamed, removed) = Default::default();
        Self { medium: Arc::clone(medium), made, renamed, removed }
    }

    /// Remembers a new file.
    pub(super) fn made(&mut self, name: String) {
        self.made.push(name);
    }

    /// A name for the damaged file `name` that no file has.
    fn kept_name(&self, name: &str) -> Result<String> {
        let listed = self.medium.list()?;
        let is_free = |candidate: &String| listed.iter().all(|file| file.name != *candidate);
        let numbered = (1u32..).map(|number| format!("{name}{KEPT}-{number}"));
        let mut names = std::iter::once(format!("{name}{KEPT}")).chain(numbered);
        Ok(names.find(is_free).unwrap_or_default())
    }

    /// Puts the damaged file `name` aside; its new name.
    pub(super) fn put_aside(&mut self, name: &str) -> Result<String> {
        let kept = self.kept_name(name)?;
        self.medium.rename(name, &kept)?;
        self.renamed.push((name.to_owned(), kept.clone()));
        Ok(kept)
    }

    /// Copies the damaged file `name`, which others will change; the copy's name, and whether it is whole.
    /// Pages that cannot be read are zeros in it.
    pub(super) fn copy_aside(&mut self, name: &str) -> Result<(String, bool)> {
        let kept = self.kept_name(name)?;
        let from = self.medium.open(name, Access::Bytes)?;
        let size = from.size()?;
        let to = self.medium.create(&kept, Access::Bytes, size)?;
        self.made.push(kept.clone());
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

    /// As [`Changes::copy_aside`], of a file that others will remove. One that cannot be copied whole is put
    /// aside: it may be readable again one day.
    pub(super) fn keep_replaced(&mut self, name: &str) -> Result<()> {
        let (kept, is_whole) = self.copy_aside(name)?;
        if is_whole {
            self.removed.push((name.to_owned(), kept));
            return Ok(());
        }
        self.medium.remove(&kept)?;
        self.made.retain(|made| *made != kept);
        self.put_aside(name).map(drop)
    }

    /// The names under which damaged files were kept.
    pub(super) fn kept(&self) -> Vec<String> {
        let copies = self.made.iter().filter(|name| name.contains(KEPT)).cloned();
        self.renamed.iter().map(|(_, kept)| kept.clone()).chain(copies).collect()
    }

    /// Takes everything back, as far as the device lets it.
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
        for name in &self.made {
            let _ = self.medium.remove(name);
        }
        let _ = self.medium.sync_names(&[]);
    }
}

/// Gives tables and value files their names back that a repair cut off by a crash had put aside, and
/// that are not replaced.
pub(super) fn take_back(medium: &dyn Medium, is_named: impl Fn(TableId) -> bool) -> Result<()> {
    let listed = medium.list()?;
    for file in &listed {
        let Some(name) = file.name.strip_suffix(KEPT) else { continue };
        // Tables and value files draw their ids from one series.
        let id = parse_file_name(name).or_else(|| parse_values_file_name(name));
        let named = id.is_some_and(&is_named);
        if named && listed.iter().all(|other| other.name != name) {
            medium.rename(&file.name, name)?;
        }
    }
    medium.sync_names(&[])
}

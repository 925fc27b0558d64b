//! What is on a simulated flash device: what a power cut leaves, and what may be lost by it.
//!
//! Every change is visible at once and pending until its file, or the names, are synced. A crash
//! draws, for every pending change on its own, whether it survived:
//!
//! - a write is kept, lost, or torn: each 512-byte sector of it survives or not by itself. A
//!   sector is written whole, so that where a later change of it survives, the earlier ones of the
//!   same sector do too; an unsynced byte store may be cut within its last sector;
//! - a length is that after any of the pending changes, whatever became of their content: content
//!   past it is gone, content missing before it is zeros, or what was there before;
//! - a create, rename or remove survives or not, but never without the earlier ones that touched
//!   one of its names, unless these were lost by a sync of the names that failed.

use std::collections::{BTreeMap, BTreeSet};

use base::{Result, Rng};

use crate::{MemoryMedium, memory};

/// The unit that a device writes whole, bytes.
const SECTOR_BYTES: usize = 512;

/// A file, whatever its name.
pub(super) type Inode = u64;

/// The device's content.
#[derive(Clone, Debug, Default)]
pub(super) struct Platter {
    files: BTreeMap<Inode, Content>,
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    pending_names: Vec<NameChange>,
    last_inode: Inode,
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(String, Inode),
    /// From, to, and which file: the new name is one of its own, whatever became of the old one.
    Rename(String, String, Inode),
    Remove(String),
}

/// One file's content: as seen, and as surely there after a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Open handles; an unnamed file lives as long as it has some.
    handles: usize,
}

/// A change of content that is not synced.
#[derive(Clone, Debug)]
struct Change {
    at: usize,
    bytes: Vec<u8>,
    /// The file's length after it.
    len: usize,
    /// A byte store, which may be cut anywhere.
    is_store: bool,
}

impl Platter {
    pub(super) fn find(&self, name: &str) -> Option<Inode> {
        self.names.get(name).copied()
    }

    /// Names with their lengths.
    pub(super) fn list(&self) -> impl Iterator<Item = (&String, u64)> {
        self.names.iter().map(|(name, inode)| (name, self.size(*inode)))
    }

    pub(super) fn size(&self, inode: Inode) -> u64 {
        self.visible(inode).len() as u64
    }

    /// Bytes of all named files.
    pub(super) fn used(&self) -> u64 {
        self.names.values().map(|inode| self.size(*inode)).sum()
    }

    pub(super) fn visible(&self, inode: Inode) -> &[u8] {
        self.files.get(&inode).map(|file| &*file.visible).unwrap_or_default()
    }

    /// A new file of `len` zeros under `name`.
    pub(super) fn create(&mut self, name: &str, len: usize) -> Inode {
        self.last_inode += 1;
        let inode = self.last_inode;
        self.files.insert(inode, Content::default());
        self.set_len(inode, len);
        self.change_name(NameChange::Create(name.to_owned(), inode));
        inode
    }

    pub(super) fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
    }

    /// A file that was there, synced, from the start.
    pub(super) fn put_durable(&mut self, name: &str, content: Vec<u8>) {
        self.last_inode += 1;
        let file = Content { visible: content.clone(), durable: content, ..Content::default() };
        self.files.insert(self.last_inode, file);
        self.names.insert(name.to_owned(), self.last_inode);
        self.durable_names.insert(name.to_owned(), self.last_inode);
    }

    /// A copy of a file as it is, with what is pending of it.
    pub(super) fn content(&self, inode: Inode) -> Content {
        let content = self.files.get(&inode).cloned().unwrap_or_default();
        Content { handles: 0, ..content }
    }

    /// A file of another platter's content under `name`: a second name, which is pending.
    pub(super) fn adopt(&mut self, name: &str, content: Content) {
        self.last_inode += 1;
        self.files.insert(self.last_inode, content);
        self.change_name(NameChange::Create(name.to_owned(), self.last_inode));
    }

    pub(super) fn write(
        &mut self,
        name: &str,
        inode: Inode,
        at: u64,
        bytes: &[u8],
        is_store: bool,
    ) -> Result<()> {
        let Some(file) = self.files.get_mut(&inode) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        memory::write(name, &mut file.visible, at, bytes)?;
        let at = memory::file_len(name, at)?;
        file.pending.push(Change { at, bytes: bytes.to_vec(), len: file.visible.len(), is_store });
        Ok(())
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: usize) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        // What is cut off may be seen as zeros once the file grows again.
        let cut = file.visible.len().saturating_sub(len);
        file.visible.resize(len, 0);
        file.pending.push(Change { at: len, bytes: vec![0; cut], len, is_store: false });
    }

    pub(super) fn sync(&mut self, inode: Inode) {
        if let Some(file) = self.files.get_mut(&inode) {
            // Cheaper than copying a large file for a few pending bytes.
            file.durable.resize(file.visible.len(), 0);
            for change in file.pending.drain(..) {
                let end = (change.at + change.bytes.len()).min(file.visible.len());
                let Some(seen) = file.visible.get(change.at..end) else { continue };
                if let Some(target) = file.durable.get_mut(change.at..end) {
                    target.copy_from_slice(seen);
                }
            }
        }
    }

    /// A sync that failed: what was pending is settled as a crash would settle it, and a later
    /// sync does not bring it back. `seen` says whether readers see what is left, or still what
    /// was written.
    pub(super) fn fail_sync(&mut self, inode: Inode, seen: bool, rng: &mut Rng) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.durable = file.survivor(rng);
            file.pending.clear();
            if seen {
                file.visible.clone_from(&file.durable);
            }
        }
    }

    pub(super) fn sync_names(&mut self) {
        for change in std::mem::take(&mut self.pending_names) {
            apply(&mut self.durable_names, &change);
        }
        self.forget_unnamed();
    }

    /// A sync of the names that failed: settled as by a crash, and not brought back by a later one.
    pub(super) fn fail_sync_names(&mut self, rng: &mut Rng) {
        self.durable_names = self.surviving_names(rng);
        self.pending_names.clear();
    }

    pub(super) fn opened(&mut self, inode: Inode) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.handles += 1;
        }
    }

    pub(super) fn closed(&mut self, inode: Inode) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.handles -= 1;
        }
        if self.pending_names.is_empty() {
            self.forget_unnamed();
        }
    }

    fn forget_unnamed(&mut self) {
        let named: BTreeSet<Inode> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        self.files.retain(|inode, file| file.handles > 0 || named.contains(inode));
    }

    /// Flips bits at rest: of what is seen, what is durable and what is pending.
    pub(super) fn flip(&mut self, inode: Inode, at: usize, mask: u8) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        for content in [&mut file.visible, &mut file.durable] {
            if let Some(byte) = content.get_mut(at) {
                *byte ^= mask;
            }
        }
        for change in &mut file.pending {
            let place = at.checked_sub(change.at);
            if let Some(byte) = place.and_then(|place| change.bytes.get_mut(place)) {
                *byte ^= mask;
            }
        }
    }

    /// Everything, as the death of the process leaves it.
    pub(super) fn seen(&self) -> Result<MemoryMedium> {
        let image = MemoryMedium::new();
        for (name, inode) in &self.names {
            image.insert(name, self.visible(*inode).to_vec())?;
        }
        Ok(image)
    }

    /// One of the states a power cut may leave.
    pub(super) fn image(&self, rng: &mut Rng) -> Result<MemoryMedium> {
        let image = MemoryMedium::new();
        for (name, inode) in self.surviving_names(rng) {
            if let Some(file) = self.files.get(&inode) {
                image.insert(&name, file.survivor(rng))?;
            }
        }
        Ok(image)
    }

    fn surviving_names(&self, rng: &mut Rng) -> BTreeMap<String, Inode> {
        let mut names = self.durable_names.clone();
        let mut lost_names = BTreeSet::new();
        let odds = odds(rng);
        for change in &self.pending_names {
            let touched = match change {
                NameChange::Create(name, _) | NameChange::Remove(name) => vec![name],
                NameChange::Rename(from, to, _) => vec![from, to],
            };
            if rng.unit() < odds && !touched.iter().any(|name| lost_names.contains(*name)) {
                apply(&mut names, change);
            } else {
                lost_names.extend(touched);
            }
        }
        names
    }
}

fn apply(names: &mut BTreeMap<String, Inode>, change: &NameChange) {
    match change {
        NameChange::Create(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameChange::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
    }
}

/// How likely each pending change of one crash survives: all, none and anything between are each
/// common.
fn odds(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => 0.0,
        1 => 1.0,
        _ => rng.unit(),
    }
}

/// The last change of a sector that survived, and how much of it.
#[derive(Clone, Copy)]
struct Last {
    change: usize,
    /// The bytes of the change that reached this sector.
    cut: usize,
}

impl Content {
    /// One of the contents that a power cut may leave.
    fn survivor(&self, rng: &mut Rng) -> Vec<u8> {
        let odds = odds(rng);
        let last = self.last_survivors(odds, rng);
        let mut content = self.durable.clone();
        let longest = self.pending.iter().map(|change| change.len).max().unwrap_or(0);
        content.resize(content.len().max(longest), 0);
        for (sector, last) in last {
            let from = sector * SECTOR_BYTES;
            let earlier = self.pending.iter().take(last.change);
            for change in earlier {
                change.copy(&mut content, from, change.bytes.len());
            }
            if let Some(change) = self.pending.get(last.change) {
                change.copy(&mut content, from, last.cut);
            }
        }
        content.truncate(self.surviving_len(odds, rng));
        content
    }

    fn last_survivors(&self, odds: f64, rng: &mut Rng) -> BTreeMap<usize, Last> {
        let mut survivors = BTreeMap::new();
        for (number, change) in self.pending.iter().enumerate() {
            let kept = rng.unit() < odds;
            let torn = !kept && odds > 0.0 && rng.one_in(2);
            if change.bytes.is_empty() || !(kept || torn) {
                continue;
            }
            let end = change.at + change.bytes.len();
            for sector in change.at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
                if torn && rng.one_in(2) {
                    continue;
                }
                let mut cut = change.bytes.len();
                if torn && change.is_store {
                    cut = rng.below(cut as u64 + 1) as usize;
                }
                survivors.insert(sector, Last { change: number, cut });
            }
        }
        survivors
    }

    fn surviving_len(&self, odds: f64, rng: &mut Rng) -> usize {
        let versions = self.pending.len() as u64;
        let version = match odds {
            0.0 => 0,
            1.0 => versions,
            _ => rng.below(versions + 1),
        };
        let change = version.checked_sub(1).and_then(|last| self.pending.get(last as usize));
        change.map_or(self.durable.len(), |change| change.len)
    }
}

impl Change {
    /// Copies the first `cut` bytes, as far as they lie in the sector at `from`, to `content`.
    fn copy(&self, content: &mut [u8], from: usize, cut: usize) {
        let start = self.at.max(from);
        let end = (self.at + cut).min(from + SECTOR_BYTES).min(content.len());
        if start < end
            && let Some(source) = self.bytes.get(start - self.at..end - self.at)
            && let Some(target) = content.get_mut(start..end)
        {
            target.copy_from_slice(source);
        }
    }
}

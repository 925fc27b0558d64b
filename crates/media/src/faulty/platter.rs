//! The content of a simulated flash device: as seen by readers, as durable, and the changes in between.
//!
//! Every change is visible at once, and pending until its file, or the names, are synced. A crash decides
//! for every pending change by itself whether it survives:
//!
//! - A write survives, is lost, or is torn: each of its 512-byte sectors survives or not by itself. A sector
//!   is written whole: if a later change of a sector survives, the earlier changes of that sector do too.
//!   Only an unsynced byte store may be cut within its last sector.
//! - The length is the one after some pending change, whichever content survived. Content past that length
//!   is gone; content missing below it is zeros, or the content before the change.
//! - As storage-class memory ([`Platter::lines`]), the unit is a line of 64 bytes. Each unsynced line
//!   survives or not by itself, and of a torn one each word of 8 bytes, in any combination: stores leave the
//!   processor's caches in any order until a fence.
//! - A create, rename or remove survives or not, but not without the earlier changes of its names, except
//!   those that a failed sync of names lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{Result, Rng};

use crate::{MemoryMedium, memory};

/// The unit that a flash device writes atomically, bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// The unit of storage-class memory, bytes, and the part of it that is written atomically.
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = 8;

/// A file, independent of its name.
pub(super) type Inode = u64;

/// Files and names, visible and durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Platter {
    files: BTreeMap<Inode, Content>,
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    pending_names: Vec<NameChange>,
    last_inode: Inode,
    /// Whether a crash loses and tears lines of memory in place of sectors.
    pub(super) lines: bool,
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(String, Inode),
    /// Old name, new name and file; the file, because a failed sync of names may have lost the old name.
    Rename(String, String, Inode),
    Remove(String),
}

/// One file's content: visible, durable, and the pending changes between the two.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Open handles; an unnamed file exists until it has none.
    handles: usize,
}

/// An unsynced change of content.
#[derive(Clone, Debug)]
struct Change {
    at: usize,
    bytes: Vec<u8>,
    /// The file's length after the change.
    len: usize,
    /// A byte store: a crash may cut it at any byte.
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

    /// Bytes of all files with a name.
    pub(super) fn used(&self) -> u64 {
        self.names.values().map(|inode| self.size(*inode)).sum()
    }

    pub(super) fn visible(&self, inode: Inode) -> &[u8] {
        let file = self.files.get(&inode);
        base::invariant!(file.is_some(), "a file exists as long as it has a handle or a name");
        file.map(|file| &*file.visible).unwrap_or_default()
    }

    /// Creates a file of `len` zeros.
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

    /// Adds a file with durable content and name.
    pub(super) fn put_durable(&mut self, name: &str, content: Vec<u8>) {
        self.last_inode += 1;
        let file = Content { visible: content.clone(), durable: content, ..Content::default() };
        self.files.insert(self.last_inode, file);
        self.names.insert(name.to_owned(), self.last_inode);
        self.durable_names.insert(name.to_owned(), self.last_inode);
    }

    /// A copy of a file's content, visible, durable and pending.
    pub(super) fn content(&self, inode: Inode) -> Content {
        let file = self.files.get(&inode);
        base::invariant!(file.is_some(), "a linked file has a name");
        Content { handles: 0, ..file.cloned().unwrap_or_default() }
    }

    /// Adds a file with another device's content: a hard link. Its name is pending.
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
        let Some(file) = self.open_file(inode) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        memory::write(name, &mut file.visible, at, bytes)?;
        let at = memory::file_len(name, at)?;
        file.pending.push(Change { at, bytes: bytes.to_vec(), len: file.visible.len(), is_store });
        Ok(())
    }

    pub(super) fn set_len(&mut self, inode: Inode, len: usize) {
        let Some(file) = self.open_file(inode) else { return };
        // Bytes that were cut off may be zeros when the file grows again.
        let cut = file.visible.len().saturating_sub(len);
        file.visible.resize(len, 0);
        file.pending.push(Change { at: len, bytes: vec![0; cut], len, is_store: false });
    }

    pub(super) fn sync(&mut self, inode: Inode) {
        let Some(file) = self.open_file(inode) else { return };
        // Copying the changed ranges is cheaper than copying a large file for a few pending bytes.
        file.durable.resize(file.visible.len(), 0);
        for change in file.pending.drain(..) {
            let end = (change.at + change.bytes.len()).min(file.visible.len());
            let Some(seen) = file.visible.get(change.at..end) else { continue };
            if let Some(target) = file.durable.get_mut(change.at..end) {
                target.copy_from_slice(seen);
            }
        }
        base::invariant!(
            file.durable.len() == file.visible.len(),
            "a sync makes the length durable"
        );
    }

    /// A failed sync: each pending change survives or is lost as in a crash, and no later sync makes a lost
    /// one durable. If `seen`, readers see the surviving content, otherwise still the written content.
    pub(super) fn fail_sync(&mut self, inode: Inode, seen: bool, rng: &mut Rng) {
        let lines = self.lines;
        let Some(file) = self.open_file(inode) else { return };
        file.durable = file.survivor(lines, rng);
        file.pending.clear();
        if seen {
            file.visible.clone_from(&file.durable);
        }
    }

    pub(super) fn sync_names(&mut self) {
        for change in std::mem::take(&mut self.pending_names) {
            apply(&mut self.durable_names, &change);
        }
        self.forget_unnamed();
    }

    /// A failed sync of names: pending changes survive or are lost as in a crash, and stay lost.
    pub(super) fn fail_sync_names(&mut self, rng: &mut Rng) {
        self.durable_names = self.surviving_names(rng);
        self.pending_names.clear();
    }

    pub(super) fn opened(&mut self, inode: Inode) {
        if let Some(file) = self.open_file(inode) {
            file.handles += 1;
        }
    }

    pub(super) fn closed(&mut self, inode: Inode) {
        if let Some(file) = self.open_file(inode) {
            base::invariant!(file.handles > 0, "a handle is closed once");
            file.handles -= 1;
        }
        if self.pending_names.is_empty() {
            self.forget_unnamed();
        }
    }

    /// The file that a caller has a handle of.
    fn open_file(&mut self, inode: Inode) -> Option<&mut Content> {
        let file = self.files.get_mut(&inode);
        base::invariant!(file.is_some(), "a file exists as long as it has a handle or a name");
        file
    }

    fn forget_unnamed(&mut self) {
        let named: BTreeSet<Inode> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        self.files.retain(|inode, file| file.handles > 0 || named.contains(inode));
    }

    /// Flips bits of one byte, in the visible, the durable and the pending content.
    pub(super) fn flip(&mut self, inode: Inode, at: usize, mask: u8) {
        let Some(file) = self.open_file(inode) else { return };
        for content in [&mut file.visible, &mut file.durable] {
            if let Some(byte) = content.get_mut(at) {
                *byte ^= mask;
            }
        }
        for change in &mut file.pending {
            let offset = at.checked_sub(change.at);
            if let Some(byte) = offset.and_then(|offset| change.bytes.get_mut(offset)) {
                *byte ^= mask;
            }
        }
    }

    /// The visible content, as the death of the process leaves it.
    pub(super) fn seen(&self) -> Result<MemoryMedium> {
        let image = MemoryMedium::new();
        for (name, inode) in &self.names {
            image.insert(name, self.visible(*inode).to_vec())?;
        }
        Ok(image)
    }

    /// One of the states that a power cut may leave.
    pub(super) fn image(&self, rng: &mut Rng) -> Result<MemoryMedium> {
        let image = MemoryMedium::new();
        for (name, inode) in self.surviving_names(rng) {
            let file = self.files.get(&inode);
            base::invariant!(file.is_some(), "a durable or pending name has a file");
            if let Some(file) = file {
                image.insert(&name, file.survivor(self.lines, rng))?;
            }
        }
        Ok(image)
    }

    /// The names that survive a crash. If a change is lost, so are later changes of its names.
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

/// The probability with which each pending change of one crash survives. Never, always and everything
/// between are each common.
fn odds(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => 0.0,
        1 => 1.0,
        _ => rng.unit(),
    }
}

/// The last surviving change of a sector, and how much of it survived.
#[derive(Clone, Copy)]
struct Last {
    change: usize,
    /// Number of the change's bytes that were written before the crash.
    cut: usize,
    /// Words of the line that were written before the crash, a bit each.
    words: u8,
}

impl Content {
    /// One of the contents that a power cut may leave.
    fn survivor(&self, lines: bool, rng: &mut Rng) -> Vec<u8> {
        let odds = odds(rng);
        let unit = if lines { LINE_BYTES } else { SECTOR_BYTES };
        let last = self.last_survivors(odds, unit, rng);
        let mut content = self.durable.clone();
        let longest = self.pending.iter().map(|change| change.len).max().unwrap_or(0);
        content.resize(content.len().max(longest), 0);
        for (sector, last) in last {
            let from = sector * unit;
            let earlier = self.pending.iter().take(last.change);
            for change in earlier {
                change.copy(&mut content, from..from + unit, change.bytes.len());
            }
            let change = self.pending.get(last.change);
            base::invariant!(change.is_some(), "a surviving change is pending");
            let Some(change) = change else { continue };
            if last.words == u8::MAX {
                change.copy(&mut content, from..from + unit, last.cut);
                continue;
            }
            for word in (0..LINE_BYTES / WORD_BYTES).filter(|word| last.words >> word & 1 == 1) {
                let at = from + word * WORD_BYTES;
                change.copy(&mut content, at..at + WORD_BYTES, last.cut);
            }
        }
        let len = self.surviving_len(odds, rng);
        base::invariant!(len <= content.len(), "a surviving length is one that the file had");
        content.truncate(len);
        content
    }

    /// For each sector with a surviving change, the last one.
    fn last_survivors(&self, odds: f64, unit: usize, rng: &mut Rng) -> BTreeMap<usize, Last> {
        let mut survivors = BTreeMap::new();
        for (number, change) in self.pending.iter().enumerate() {
            let kept = rng.unit() < odds;
            let torn = !kept && odds > 0.0 && rng.one_in(2);
            if change.bytes.is_empty() || !(kept || torn) {
                continue;
            }
            let end = change.at + change.bytes.len();
            for sector in change.at / unit..end.div_ceil(unit) {
                if torn && rng.one_in(2) {
                    continue;
                }
                let (mut cut, mut words) = (change.bytes.len(), u8::MAX);
                if torn && unit == LINE_BYTES {
                    words = if rng.one_in(2) { rng.below(256) as u8 } else { u8::MAX };
                } else if torn && change.is_store {
                    cut = rng.below(cut as u64 + 1) as usize;
                }
                survivors.insert(sector, Last { change: number, cut, words });
            }
        }
        survivors
    }

    /// The durable length, or the length after one of the pending changes.
    fn surviving_len(&self, odds: f64, rng: &mut Rng) -> usize {
        let versions = self.pending.len() as u64;
        let version = match odds {
            0.0 => 0,
            1.0 => versions,
            _ => rng.below(versions + 1),
        };
        let change = version.checked_sub(1).and_then(|last| self.pending.get(last as usize));
        base::invariant!(
            change.is_some() || version == 0,
            "a surviving length is of a pending change"
        );
        change.map_or(self.durable.len(), |change| change.len)
    }
}

impl Change {
    /// Copies those of the first `cut` bytes that lie in `range` to `content`.
    fn copy(&self, content: &mut [u8], range: Range<usize>, cut: usize) {
        let start = self.at.max(range.start);
        let end = (self.at + cut).min(range.end).min(content.len());
        if start < end
            && let Some(source) = self.bytes.get(start - self.at..end - self.at)
            && let Some(target) = content.get_mut(start..end)
        {
            target.copy_from_slice(source);
        }
    }
}

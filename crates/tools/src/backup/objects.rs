//! The files of a repository: indexes, objects, and remains of interrupted operations.

use std::collections::{BTreeMap, BTreeSet};

use base::{Error, Result};
use media::Medium;

use super::index::{Index, IndexEntry, file_name, is_object, parse_file_name};
use super::report::DeleteReport;
use crate::store_file::StoreFile;

/// Suffix of a file's name until the file is complete.
const UNFINISHED: &str = ".unfinished";

/// Returns the name that the file `name` has until it is complete.
pub(super) fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// The files of a repository.
pub(super) struct Objects {
    /// By number, oldest first.
    pub(super) indexes: BTreeMap<u64, Result<Index>>,
    /// Lengths of objects by name, bytes.
    pub(super) objects: BTreeMap<String, u64>,
    /// Incomplete files.
    unfinished: Vec<String>,
    /// Files with names of a store's files. If there are any, the directory is a store and no repository.
    pub(super) of_store: Vec<String>,
    /// Any other files.
    pub(super) foreign: Vec<String>,
    /// Number of backups that use each object.
    named: BTreeMap<String, usize>,
}

impl Objects {
    /// Lists a repository.
    pub(super) fn of(medium: &dyn Medium) -> Result<Self> {
        let mut found = Self {
            indexes: BTreeMap::new(),
            objects: BTreeMap::new(),
            unfinished: Vec::new(),
            of_store: Vec::new(),
            foreign: Vec::new(),
            named: BTreeMap::new(),
        };
        for file in medium.list()? {
            if let Some(id) = parse_file_name(&file.name) {
                let index = Index::read(medium, id);
                for entry in index.iter().flat_map(|index| &index.files) {
                    *found.named.entry(entry.object()).or_default() += 1;
                }
                found.indexes.insert(id, index);
            } else if is_object(&file.name) {
                found.objects.insert(file.name, file.len);
            } else if let Some(name) = file.name.strip_suffix(UNFINISHED)
                && (StoreFile::of(name).is_some() || parse_file_name(name).is_some())
            {
                found.unfinished.push(file.name);
            } else if StoreFile::of(&file.name).is_some() {
                found.of_store.push(file.name);
            } else {
                found.foreign.push(file.name);
            }
        }
        Ok(found)
    }

    /// Whether there is a backup, or a part of an interrupted one.
    pub(super) fn is_repository(&self) -> bool {
        !(self.indexes.is_empty() && self.objects.is_empty() && self.unfinished.is_empty())
    }

    /// The objects that a deletion of the backups `ids` would remove.
    ///
    /// # Errors
    /// `Invalid` if one of the backups does not exist.
    pub(super) fn would_delete(&self, ids: &[u64]) -> Result<DeleteReport> {
        self.must_have(ids)?;
        let mut report = DeleteReport { backups: ids.to_vec(), ..DeleteReport::default() };
        let mut kept = BTreeSet::new();
        for (_, index) in self.indexes.iter().filter(|(id, _)| !ids.contains(id)) {
            // No object is removed while an index that stays cannot be read.
            let Ok(index) = index else { return Ok(report) };
            kept.extend(index.files.iter().map(IndexEntry::object));
        }
        for (_, bytes) in self.objects.iter().filter(|(name, _)| !kept.contains(*name)) {
            report.files += 1;
            report.bytes += bytes;
        }
        Ok(report)
    }

    fn must_have(&self, ids: &[u64]) -> Result<()> {
        match ids.iter().find(|id| !self.indexes.contains_key(id)) {
            Some(id) => Err(Error::invalid("backup").expected("one that exists").got(id)),
            None => Ok(()),
        }
    }

    /// Whether the repository has the object of `entry`, with the right length.
    pub(super) fn has(&self, entry: &IndexEntry) -> bool {
        self.objects.get(&entry.object()) == Some(&entry.bytes)
    }

    /// Whether a backup uses `entry`: then its name is durable.
    pub(super) fn is_named(&self, entry: &IndexEntry) -> bool {
        self.named.contains_key(&entry.object())
    }

    /// The number of the next backup.
    ///
    /// # Errors
    /// `Invalid` if there is none above the highest.
    pub(super) fn next_id(&self) -> Result<u64> {
        let last = self.indexes.last_key_value().map_or(0, |(id, _)| *id);
        last.checked_add(1)
            .filter(|id| *id < 10_000_000_000)
            .ok_or_else(|| Error::invalid("number of backups").got(last))
    }

    /// Bytes of the objects that a backup uses.
    pub(super) fn named_bytes(&self) -> u64 {
        self.objects.iter().filter(|(name, _)| self.named.contains_key(*name)).map(|(_, n)| n).sum()
    }

    /// Objects that no backup uses.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (&String, u64)> {
        let unnamed = self.objects.iter().filter(|(name, _)| !self.named.contains_key(*name));
        unnamed.map(|(name, len)| (name, *len))
    }

    /// The files of `index` that no other backup uses.
    pub(super) fn only_in<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = &'a IndexEntry> {
        index.files.iter().filter(|entry| self.named.get(&entry.object()) == Some(&1))
    }

    /// Removes incomplete files.
    pub(super) fn remove_unfinished(&mut self, medium: &dyn Medium) -> Result<()> {
        self.unfinished.drain(..).try_for_each(|name| medium.remove(&name))
    }

    /// Removes the objects that no backup uses. Removes none if an index cannot be read, because it may name
    /// any of them.
    pub(super) fn collect(&mut self, medium: &dyn Medium) -> Result<DeleteReport> {
        let mut report = DeleteReport::default();
        self.remove_unfinished(medium)?;
        if self.indexes.values().any(Result::is_err) {
            return Ok(report);
        }
        let unnamed: Vec<_> = self.unnamed().map(|(name, len)| (name.clone(), len)).collect();
        for (name, len) in unnamed {
            medium.remove(&name)?;
            report.files += 1;
            report.bytes += len;
        }
        if report.files > 0 {
            medium.sync_names(&[])?;
        }
        Ok(report)
    }
}

/// Writes and syncs the index of a backup with durable objects. This makes the backup exist.
pub(super) fn add(medium: &dyn Medium, index: &Index) -> Result<()> {
    let name = file_name(index.id);
    let temporary = unfinished(&name);
    index.write(medium, &temporary)?;
    medium.rename(&temporary, &name)?;
    medium.sync_names(&[])
}

/// Deletes backups: first their indexes, durably, so that no backup lacks an object; then the objects.
pub(super) fn delete(medium: &dyn Medium, ids: &[u64]) -> Result<DeleteReport> {
    let objects = Objects::of(medium)?;
    objects.must_have(ids)?;
    let mut removed = ids.iter().try_for_each(|id| medium.remove(&file_name(*id)));
    removed = removed.and_then(|()| medium.sync_names(&[]));
    removed.inspect_err(|_| {
        // The indexes may or may not survive a power cut, and later syncs do not make their removal durable.
        // Written again, the backups exist and keep their objects.
        for index in ids.iter().filter_map(|id| objects.indexes.get(id)?.as_ref().ok()) {
            let _ = add(medium, index);
        }
    })?;
    let report = Objects::of(medium)?.collect(medium)?;
    Ok(DeleteReport { backups: ids.to_vec(), ..report })
}

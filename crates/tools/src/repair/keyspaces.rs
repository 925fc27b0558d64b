//! Keyspaces that a manifest lost: their kinds and names, by their files, their tables and the log.
//!
//! The file of a keyspace states both (`manifest::KeyspaceFile`); ordered keyspaces have none. Without a
//! file, the kind is that which tables state, and the name is `recovered-<id>`. Log records state their
//! keyspaces, so one that was never flushed is found too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::KEYSPACES_MAX;
use base::{ErrorKind, KeyspaceId, Result, StoreId};
use manifest::{KeyspaceEntry, KeyspaceFile, KeyspaceKind, ManifestState};
use media::Medium;

use super::changes::Changes;
use super::{FoundManifest, Repair, RepairedFile};

/// The readable files of keyspaces of a store.
pub(super) struct Keyspaces {
    store: StoreId,
    files: BTreeMap<KeyspaceId, KeyspaceFile>,
}

impl Keyspaces {
    /// Reads the files of the keyspaces of `store`. Damaged ones are left out.
    ///
    /// # Errors
    /// `Invalid` if a newer version wrote one; the device's, when it lists the files.
    pub(super) fn read(medium: &dyn Medium, store: StoreId) -> Result<Self> {
        let mut files = BTreeMap::new();
        for listing in medium.list()? {
            let Some(id) = KeyspaceFile::parse_file_name(&listing.name) else { continue };
            match KeyspaceFile::find(medium, id) {
                Ok(found) => files.extend(found.filter(|it| it.store == store).map(|it| (id, it))),
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { store, files })
    }

    /// Returns the keyspace `id`. If `state` does not have it, it is created as its file says, or else with
    /// the kind `stated` by a table.
    pub(super) fn entry<'a>(
        &self,
        state: &'a mut ManifestState,
        id: KeyspaceId,
        stated: Option<KeyspaceKind>,
    ) -> &'a mut KeyspaceEntry {
        state.keyspaces_below = state.keyspaces_below.max(KeyspaceId(id.0.saturating_add(1)));
        // A table is right about its keys, whatever a file says.
        let is_alike = |file: &&KeyspaceFile| {
            stated.as_ref().is_none_or(|kind| kind.key_form() == file.kind.key_form())
        };
        let file = self.files.get(&id).filter(is_alike);
        let name = file.map(|file| file.name.clone()).filter(|name| is_free(state, name));
        let new = || {
            let kind =
                file.map(|file| file.kind.clone()).or(stated).unwrap_or(KeyspaceKind::Ordered);
            Arc::new(KeyspaceEntry::new(name.unwrap_or_else(|| recovered_name(id)), kind))
        };
        Arc::make_mut(state.keyspaces.entry(id).or_insert_with(new))
    }

    /// Adds the keyspaces with log records that the manifest never had, those with ids from `known_below` on:
    /// their writes would be lost, or be replayed into a keyspace that gets the id later. Returns the added
    /// ids. If one of them was dropped, its unflushed entries reappear.
    ///
    /// # Errors
    /// The device's, when it lists the files.
    pub(super) fn add_those_of_log(
        &self,
        medium: &dyn Medium,
        known_below: KeyspaceId,
        state: &mut ManifestState,
    ) -> Result<Vec<KeyspaceId>> {
        let mut found = BTreeSet::new();
        for file in medium.list()? {
            if wal::parse_segment_name(&file.name).is_none() {
                continue;
            }
            let mut is_own = false;
            // The log's damage is reported with the log.
            let _ = wal::inspect(medium, &file.name, &mut |entry| {
                match entry {
                    wal::LogEntry::Header(header) => is_own = header.store == self.store,
                    wal::LogEntry::Batch { keyspaces, .. } if is_own => {
                        found.extend(keyspaces.into_iter().filter(|id| *id >= known_below));
                    }
                    _ => {}
                }
                Ok(())
            });
        }
        Ok(found.into_iter().filter(|id| self.add(state, *id)).collect())
    }

    /// Adds the keyspaces that only their files name, with ids from `known_below` on: nothing was written to
    /// them, or they were dropped shortly before a crash. Returns the added ids.
    pub(super) fn add_those_of_files(
        &self,
        known_below: KeyspaceId,
        state: &mut ManifestState,
    ) -> Vec<KeyspaceId> {
        let ids = self.files.keys().copied().filter(|id| *id >= known_below);
        ids.filter(|id| self.add(state, *id)).collect()
    }

    /// Adds the keyspace `id`, unless the manifest has it or has no room for it, or its name is taken.
    /// Returns whether it did. An id with a taken name is used, so that no keyspace gets it later.
    fn add(&self, state: &mut ManifestState, id: KeyspaceId) -> bool {
        // No keyspace has the highest id.
        let is_id = id != KeyspaceId::NONE && id.0 != u32::MAX;
        if !is_id || state.keyspaces.contains_key(&id) || state.keyspaces.len() >= KEYSPACES_MAX {
            return false;
        }
        state.keyspaces_below = state.keyspaces_below.max(KeyspaceId(id.0.saturating_add(1)));
        let is_free = is_free(state, &recovered_name(id));
        if is_free {
            self.entry(state, id, None);
        }
        is_free
    }
}

/// The name given to a keyspace that lost its own.
fn recovered_name(id: KeyspaceId) -> String {
    format!("recovered-{id}")
}

fn is_free(state: &ManifestState, name: &str) -> bool {
    state.keyspaces.values().all(|entry| entry.name != name)
}

impl Repair<'_> {
    /// Writes the damaged files of keyspaces anew. A missing one is no damage: an open writes it.
    pub(super) fn keyspace_files(
        &mut self,
        found: &FoundManifest,
        changes: &mut Changes,
    ) -> Result<()> {
        for (id, entry) in &found.state.keyspaces {
            let Some(right) = KeyspaceFile::of_entry(found.store, *id, entry) else { continue };
            let error = match right.check(&**self.medium) {
                Ok(()) => continue,
                Err(error) if error.kind() == ErrorKind::Corrupt => error,
                Err(error) => return Err(error),
            };
            let file = KeyspaceFile::file_name(*id);
            if !self.dry_run {
                // Undoing the change renames the original back, over the new one.
                changes.keep_renamed(&file)?;
                right.install(&**self.medium)?;
            }
            let (keyspace, new_file) = (Some(entry.name.clone()), Some(file.clone()));
            self.report.repaired.push(RepairedFile {
                file,
                keyspace,
                error,
                new_file,
                versions: 0,
            });
        }
        Ok(())
    }
}

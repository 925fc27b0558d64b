//! Damaged tables: marked, told, and kept out of merges.
//!
//! Who meets damage in a table, a merge or the scrubber, puts it here. The table is marked in
//! memory at once and in the manifest, so that it stays marked when the store is opened again. It
//! keeps its place in the tree and answers for every key that is not on a damaged page; no merge
//! reads it, so that none drops what may be salvaged, and it is deleted only with its keyspace.
//! `repair` lifts the mark.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::events::{Event, Events};
use crate::{TableFile, Tree};
use base::Problem;
use manifest::{Edit, Manifest};

/// The damages remembered for statistics; older ones are only counted.
const LISTED_MAX: usize = 256;

/// See the module. One short lock, never held while anyone is told.
#[derive(Debug)]
pub struct Quarantine {
    manifest: Arc<Manifest>,
    events: Arc<Events>,
    found: Mutex<(u64, VecDeque<Problem>)>,
}

impl Quarantine {
    pub fn new(manifest: Arc<Manifest>, events: Arc<Events>) -> Self {
        Self { manifest, events, found: Mutex::default() }
    }

    /// Notes damage in a table of `tree` and keeps it out of merges. No lock may be held.
    pub fn add(&self, tree: &Tree, file: &TableFile, problem: Problem) {
        self.note(problem);
        let (keyspace, table) = (tree.id(), file.entry().id);
        if !file.mark_damaged() {
            return;
        }
        // Where it cannot be written, the mark holds until the store is closed. A table that a
        // merge replaced meanwhile has none to take.
        let _ = self.manifest.append(vec![Edit::TableDamaged { keyspace, table }]);
        let keyspace = tree.name().to_owned();
        self.events.tell(|| Event::TableQuarantined { keyspace, table });
    }

    /// Notes damage that is known already to whoever keeps tables out of merges.
    pub fn note(&self, problem: Problem) {
        {
            let mut found = self.found.lock();
            let (count, listed) = &mut *found;
            *count += 1;
            if listed.len() == LISTED_MAX {
                listed.pop_front();
            }
            listed.push_back(problem.clone());
        }
        self.events.tell(|| Event::DamageFound { problem });
    }

    /// How many damages were found since the store was opened, and the last of them.
    pub fn found(&self) -> (u64, Vec<Problem>) {
        let found = self.found.lock();
        (found.0, found.1.iter().cloned().collect())
    }
}

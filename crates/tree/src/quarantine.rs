//! Quarantine: damaged tables are marked, reported, and left out of merges.
//!
//! A merge or the scrubber that finds damage in a table adds the table here. The table is marked in memory at
//! once, and in the manifest so that the mark survives a reopen. It stays in the tree and answers reads of
//! every key that is not on a damaged page. No merge reads it, so that no merge drops data that could be
//! salvaged; it is deleted only with its keyspace. `repair` removes the mark.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Problem;
use manifest::{Edit, Manifest};
use parking_lot::Mutex;

use crate::events::{Event, Events};
use crate::{TableFile, Tree};

/// Most findings that are kept for statistics. Older ones are only counted.
const LISTED_MAX: usize = 256;

/// Damage found in a store. Its lock is short and never held while listeners are called.
#[derive(Debug)]
pub struct Quarantine {
    manifest: Arc<Manifest>,
    events: Arc<Events>,
    /// Number of findings, and the newest of them.
    found: Mutex<(u64, VecDeque<Problem>)>,
}

impl Quarantine {
    /// A quarantine without findings that marks tables in `manifest` and reports to `events`.
    pub fn new(manifest: Arc<Manifest>, events: Arc<Events>) -> Self {
        Self { manifest, events, found: Mutex::default() }
    }

    /// Records damage in a table of `tree` and leaves the table out of merges from now on. The caller must
    /// hold no lock.
    pub fn add(&self, tree: &Tree, file: &TableFile, problem: Problem) {
        self.note(problem);
        let (keyspace, table) = (tree.id(), file.entry().id);
        if !file.mark_damaged() {
            return;
        }
        // If the record cannot be written, the mark lasts until the store is closed. The append fails for a
        // table that a merge has just replaced; that is harmless.
        let _ = self.manifest.append(vec![Edit::TableDamaged { keyspace, table }]);
        let keyspace = tree.name().to_owned();
        self.events.tell(|| Event::TableQuarantined { keyspace, table });
    }

    /// Records damage in a file that needs no mark, or has one already. The caller must hold no lock.
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

    /// The number of findings since the store was opened, and the newest of them.
    pub fn found(&self) -> (u64, Vec<Problem>) {
        let found = self.found.lock();
        (found.0, found.1.iter().cloned().collect())
    }
}

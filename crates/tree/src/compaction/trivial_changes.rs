//! Planned changes that need no merge: drops of pieces, and trivial moves to older runs.

use std::sync::Arc;

use base::{Result, broken_invariant, invariant};
use compact::plan;
use manifest::Edit;

use super::Compactor;
use crate::events::Event;
use crate::{Change, Piece, Rectangle, Tree, VersionEditGuard};

impl Compactor {
    /// The piece of the current version that the planner means.
    fn piece(
        &self,
        guard: &VersionEditGuard<'_>,
        run: base::RunId,
        piece: &plan::Piece,
    ) -> Result<Arc<Piece>> {
        let version = guard.version();
        let found = version.run(run).and_then(|run| run.find(&piece.first));
        let is_same = |found: &&Arc<Piece>| {
            found.entry().id == piece.file.id && found.range().first == piece.first
        };
        found.filter(is_same).cloned().ok_or_else(|| {
            broken_invariant!("a planned piece is in the version while the guard is held")
        })
    }

    /// Drops pieces without any version that a reader can see or that hides another version.
    pub(super) fn drop_pieces(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
        pieces: &[(base::RunId, plan::Piece)],
        now_ms: u64,
    ) -> Result<()> {
        let mut changes = Vec::new();
        let mut edits = Vec::new();
        let mut has_expiries = false;
        for (run, planned) in pieces {
            let piece = self.piece(guard, *run, planned)?;
            let (table, range) = (piece.entry().id, piece.range().clone());
            edits.push(Edit::TableCut { keyspace: tree.id(), table, range: range.clone() });
            let rectangle = Rectangle { oldest: *run, newest: *run, range, bytes: 0 };
            changes.push(Change { rectangle, inputs: vec![table], outputs: Vec::new() });
            has_expiries |= piece.entry().latest_expiry > 0;
        }
        if has_expiries {
            edits.extend(self.env.timekeeper.advance_to(now_ms));
        }
        self.change(guard, edits, &changes)?;
        changes.iter().for_each(|_| self.counters.dropped());
        Ok(())
    }

    /// Evicts the oldest pieces of a window, whatever they hold.
    pub(super) fn evict_pieces(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
        pieces: &[(base::RunId, plan::Piece)],
        now_ms: u64,
    ) -> Result<()> {
        let (mut entries, mut bytes) = (0, 0);
        let mut tables = Vec::with_capacity(pieces.len());
        for (_, plan::Piece { file, .. }) in pieces {
            tree.note_evicted(file.seqno_max);
            entries += file.entries;
            bytes += file.bytes + file.value_bytes();
            tables.push(file.id);
        }
        self.drop_pieces(tree, guard, pieces, now_ms)?;
        tree.evictions.entries.add(entries);
        tree.evictions.bytes.add(bytes);
        let keyspace = tree.name().to_owned();
        self.env.events.tell(|| Event::Evicted { keyspace, tables, entries, bytes });
        Ok(())
    }

    /// Moves pieces to older runs.
    pub(super) fn move_pieces(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
        moves: &[plan::Move],
    ) -> Result<()> {
        let mut changes = Vec::new();
        let mut edits = Vec::new();
        for plan::Move { piece: planned, from, into } in moves {
            let piece = self.piece(guard, *from, planned)?;
            invariant!(into < from, "a trivial move goes to an older run (I4)");
            let (keyspace, table, range) = (tree.id(), piece.entry().id, piece.range().clone());
            let (run, level) = (*into, piece.level());
            edits.push(Edit::TableMoved { keyspace, table, range: range.clone(), run, level });
            let rectangle = Rectangle { oldest: *from, newest: *from, range, bytes: 0 };
            changes.push(Change { rectangle, inputs: vec![table], outputs: vec![(run, piece)] });
        }
        self.change(guard, edits, &changes)?;
        changes.iter().for_each(|_| self.counters.moved());
        Ok(())
    }

    /// Records `changes` in the manifest, then installs them.
    fn change(
        &self,
        guard: &VersionEditGuard<'_>,
        edits: Vec<Edit>,
        changes: &[Change],
    ) -> Result<()> {
        invariant!(!changes.is_empty(), "a planned drop or move has pieces");
        self.env.append(edits)?;
        changes.iter().for_each(|change| guard.install_changed(change));
        debug_assert!(
            self.env.is_as_recorded(guard.tree),
            "the tables of a keyspace are those that the manifest names (I3)"
        );
        Ok(())
    }
}

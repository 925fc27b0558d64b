//! What the planner has done without a merge: pieces that go, and pieces that sink to older runs.

use std::sync::Arc;

use base::{Error, Result};
use compact::plan;

use super::Compactor;
use crate::{Change, Piece, Rectangle, Tree, VersionEditGuard};
use manifest::Edit;

impl Compactor {
    /// The piece of the tree that the planner means, unless a job works on it.
    fn piece(
        &self,
        guard: &VersionEditGuard<'_>,
        run: base::RunId,
        piece: &plan::Piece,
    ) -> Option<Arc<Piece>> {
        let version = guard.version();
        let found = version.run(run)?.find(&piece.first)?;
        let same = found.entry().id == piece.file.id && found.range().first == piece.first;
        same.then(|| Arc::clone(found))
    }

    /// Drops pieces in which there is nothing that anyone can read, or that hides anything.
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
            let Some(piece) = self.piece(guard, *run, planned) else { continue };
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

    /// Lets pieces sink to older runs.
    pub(super) fn move_pieces(
        &self,
        tree: &Tree,
        guard: &VersionEditGuard<'_>,
        moves: &[plan::Move],
    ) -> Result<()> {
        let mut changes = Vec::new();
        let mut edits = Vec::new();
        for plan::Move { piece: planned, from, into } in moves {
            let Some(piece) = self.piece(guard, *from, planned) else { continue };
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

    /// Records `changes`, then installs them.
    fn change(
        &self,
        guard: &VersionEditGuard<'_>,
        edits: Vec<Edit>,
        changes: &[Change],
    ) -> Result<()> {
        if changes.is_empty() {
            return Err(Error::invalid("plan").expected("pieces that are there"));
        }
        self.env.append(edits)?;
        changes.iter().for_each(|change| guard.install_changed(change));
        Ok(())
    }
}

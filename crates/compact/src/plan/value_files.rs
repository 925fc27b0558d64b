//! Chooses the value files to collect: those that are mostly dead.
//!
//! A value is dead once no table points at it. The bytes that tables point at are known from their
//! properties, so a value file without pointers becomes obsolete unread. A file with few live bytes is
//! collected: tables that point into it are rewritten, the values they use are copied, and the file becomes
//! obsolete with the last pointer. Merges that run for another reason also copy the values that their inputs
//! use of such files.
//!
//! A file is collected if its dead share exceeds a limit, which bounds the bytes copied per byte freed: 1.5
//! at a limit of 0.4 (the cleaner of "LFS", Rosenblum and Ousterhout, 1991). Collection usually comes after
//! all other merges; if dead values take more space than live ones, it comes first.

use std::collections::{BTreeMap, BTreeSet};

use base::{TableId, invariant};

use super::action::{Merge, Reason};
use super::columns::Runs;
use super::options::{filter_bits, table_bytes};
use super::placed::{PlacedPiece, placed_pieces};
use super::tree_layout::TreeLayout;

/// Most bytes of values that one job copies; a single file may exceed it.
const COPIED_BYTES_MAX: u64 = 256 << 20;

/// The value files to collect.
pub(super) struct ValueFileGarbage {
    /// Files to collect, with their live bytes.
    files: BTreeMap<TableId, u64>,
    /// Whether dead values take more space than live ones.
    pub(super) is_pressing: bool,
}

impl ValueFileGarbage {
    pub(super) fn new(layout: &TreeLayout<'_>) -> Self {
        let summary = layout.summary;
        let mut live: BTreeMap<TableId, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        if !summary.values.is_empty() {
            // Of a table that was cut, only the part in its pieces is still read.
            let mut left: BTreeMap<TableId, u64> = BTreeMap::new();
            for cell in layout.columns.all.iter().flat_map(|column| &column.cells) {
                *left.entry(cell.piece.file.id).or_default() += cell.bytes;
            }
            let pieces = summary.runs.iter().flat_map(|run| &run.pieces);
            for file in pieces.map(|piece| &piece.file).filter(|file| seen.insert(file.id)) {
                let part =
                    left.get(&file.id).copied().unwrap_or(0) as f64 / file.bytes.max(1) as f64;
                for (values, bytes) in &file.values {
                    let sum = live.entry(*values).or_default();
                    *sum = sum.saturating_add((*bytes as f64 * part.min(1.0)) as u64);
                }
            }
        }
        let (mut all, mut alive) = (0u64, 0u64);
        let mut files = BTreeMap::new();
        for file in &summary.values {
            let live = live.get(&file.id).copied().unwrap_or(0).min(file.bytes);
            all += file.bytes;
            alive += live;
            let dead = (file.bytes - live) as f64;
            if !file.excluded && dead > file.bytes as f64 * layout.options.dead_values_max {
                files.insert(file.id, live);
            }
        }
        Self { files, is_pressing: all > alive.saturating_mul(2) }
    }

    /// The files to collect among those that a job's inputs use (`used`: file and bytes); ascending. Empty if
    /// there is no room for copies beside the `written` bytes of the job's tables.
    pub(super) fn collectable_from(
        &self,
        layout: &TreeLayout<'_>,
        used: impl IntoIterator<Item = (TableId, u64)>,
        written: u64,
    ) -> Vec<TableId> {
        let mut sums: BTreeMap<TableId, u64> = BTreeMap::new();
        for (file, bytes) in used.into_iter().filter(|(file, _)| self.files.contains_key(file)) {
            *sums.entry(file).or_default() += bytes;
        }
        // Files with the least live bytes first: they cost least.
        let mut found: Vec<_> = sums.into_iter().collect();
        found.sort_by_key(|(file, _)| self.files.get(file).copied());
        let (mut copied, room) = (0u64, layout.room().saturating_sub(written));
        let mut collect = Vec::new();
        for (file, bytes) in found {
            copied = copied.saturating_add(bytes);
            if copied > room || (copied > COPIED_BYTES_MAX && !collect.is_empty()) {
                break;
            }
            collect.push(file);
        }
        collect.sort_unstable();
        invariant!(collect.is_sorted_by(|a, b| a < b), "a file is collected once per job");
        collect
    }

    /// Pieces of tables that point into a file to collect and that a new job may take.
    fn pieces<'a>(&self, layout: &TreeLayout<'a>) -> Vec<PlacedPiece<'a>> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let is_free = |placed: &PlacedPiece<'_>| {
            let own = Runs { newest: placed.run, oldest: placed.run };
            placed.places.iter().all(|(number, _)| {
                layout.columns.get(*number).is_some_and(|column| column.is_free(own))
            })
        };
        let points = |placed: &PlacedPiece<'_>| {
            placed.piece.file.values.iter().any(|(file, _)| self.files.contains_key(file))
        };
        placed_pieces(layout)
            .into_iter()
            .filter(|placed| points(placed) && is_free(placed))
            .collect()
    }

    /// Bytes of the tables to rewrite until all these files are obsolete.
    pub(super) fn work(&self, layout: &TreeLayout<'_>) -> u64 {
        self.pieces(layout).iter().map(|placed| placed.piece.file.bytes).sum()
    }

    /// The rewrite of one table that points into the file with the least live bytes.
    pub(super) fn collection(&self, layout: &TreeLayout<'_>) -> Option<Merge> {
        let least = |placed: &PlacedPiece<'_>| {
            let files = placed.piece.file.values.iter();
            files.filter_map(|(file, _)| self.files.get(file).copied()).min()
        };
        let PlacedPiece { piece, run, places } =
            self.pieces(layout).into_iter().min_by_key(least)?;
        let collect =
            self.collectable_from(layout, piece.file.values.iter().copied(), piece.file.bytes);
        if collect.is_empty() || piece.file.bytes > layout.room() {
            return None;
        }
        let oldest = places.iter().all(|(number, place)| {
            layout.columns.get(*number).is_some_and(|it| place + 1 == it.cells.len())
        });
        let id = layout.run_id(run)?;
        Some(Merge {
            inputs: vec![(id, vec![piece.clone()])],
            first: piece.first.clone(),
            end: piece.end.clone(),
            into: id,
            level: piece.level,
            oldest,
            reason: Reason::Values,
            bytes: piece.file.bytes,
            table_bytes: table_bytes(layout.slice_bytes, oldest).max(piece.file.bytes),
            filter_bits: filter_bits(oldest),
            collect,
        })
    }
}

//! The planner's input: plain data about the tables of a version.

use std::sync::Arc;

use base::{KeyRange, Seqno};
use bytes::Bytes;
use compact::{Horizon, plan};
use manifest::TableEntry;
use table::{Properties, Table};

use crate::{Piece, Rectangle, Run, TableFile, ValueFile, Version};

/// The runs of `version`, newest first.
pub(super) fn runs(version: &Version) -> Vec<plan::RunSummary> {
    let run = |run: &Arc<Run>| plan::RunSummary {
        id: run.id(),
        pieces: run.pieces().iter().map(|it| piece(it)).collect(),
    };
    version.runs().iter().map(run).collect()
}

/// Most fragments of a range delete that are looked at for one piece.
const COVERING_FRAGMENTS_MAX: usize = 64;

/// The pieces of `version` that range deletes of newer runs cover. Cost: for each piece a search in each
/// newer piece with range deletes, if there are any.
pub(super) fn hidden(version: &Version) -> Vec<plan::Hidden> {
    let mut hidden = Vec::new();
    let mut deleting: Vec<&Piece> = Vec::new();
    for run in version.runs() {
        for (at, piece) in run.pieces().iter().enumerate() {
            let entry = piece.entry();
            let by = deleting.iter().filter_map(|newer| covering(newer, piece.range())).min();
            if let Some(by) = by.filter(|_| !piece.file().is_damaged()) {
                let oldest = entry.seqno.unwrap_or(entry.seqno_min);
                hidden.push(plan::Hidden { run: run.id(), piece: at, oldest, by });
            }
        }
        let pieces = run.pieces().iter().map(|piece| &**piece);
        deleting.extend(pieces.filter(|piece| !piece.range_deletes().is_empty()));
    }
    hidden
}

/// The newest of the range deletes of `newer` that cover all of `range` together: a reader before it may see
/// a part of the range.
fn covering(newer: &Piece, range: &KeyRange) -> Option<Seqno> {
    if !newer.range().covers(range) {
        return None;
    }
    let (mut at, mut last) = (range.first.clone(), Seqno::ZERO);
    let fragments = newer.range_deletes().iter_from(&range.first);
    for fragment in fragments.take(COVERING_FRAGMENTS_MAX) {
        let newest = *fragment.seqnos.first()?;
        if *fragment.start > at {
            return None;
        }
        last = last.max(newest);
        at = fragment.end.clone();
        let is_end = match &range.end {
            Some(end) => *end <= at,
            None => *at >= base::AFTER_EVERY_KEY[..],
        };
        if is_end {
            return Some(last);
        }
    }
    None
}

/// The value files of `version`.
pub(super) fn values(version: &Version) -> Vec<plan::ValueFileSummary> {
    let summary = |file: &Arc<ValueFile>| plan::ValueFileSummary {
        id: file.id(),
        bytes: file.value_bytes(),
        excluded: file.is_excluded(),
    };
    version.value_files().into_iter().map(summary).collect()
}

fn piece(piece: &Piece) -> plan::Piece {
    let range = piece.range();
    plan::Piece {
        file: Arc::clone(piece.file().summary()),
        level: piece.level(),
        first: range.first.clone(),
        end: range.end.clone(),
        damaged: piece.file().is_damaged(),
    }
}

/// The reserved rectangles.
pub(super) fn areas(busy: &[Rectangle]) -> Vec<plan::Area> {
    let area = |rectangle: &Rectangle| plan::Area {
        newest: rectangle.newest,
        oldest: rectangle.oldest,
        first: rectangle.range.first.clone(),
        end: rectangle.range.end.clone(),
        bytes: rectangle.bytes,
    };
    busy.iter().map(area).collect()
}

/// The unchanging properties of a table file.
pub fn file_summary(file: &TableFile) -> plan::FileSummary {
    let entry = file.entry();
    let splits = file.table().map_or_else(|_| Vec::new(), |table| table.splits());
    let superseded = file.table().map_or_else(|_| Default::default(), |it| superseded(entry, it));
    let key = |of: fn(&Properties) -> &Vec<u8>| {
        let key = file.table().map(|table| of(table.properties()));
        key.map_or_else(|_| Bytes::new(), |key| Bytes::copy_from_slice(key))
    };
    plan::FileSummary {
        id: entry.id,
        first_key: key(|properties| &properties.first_key),
        last_key: key(|properties| &properties.last_key),
        bytes: entry.file_bytes,
        entries: entry.entries,
        deletes: entry.deletes,
        range_deletes: entry.range_deletes,
        latest_expiry: entry.latest_expiry,
        seqno_max: entry.seqno_max,
        splits: splits.into_iter().map(|(key, bytes)| (Bytes::from(key), bytes)).collect(),
        values: entry.values.clone(),
        superseded,
    }
}

/// Bytes of versions that `table` keeps for snapshots, in its file and in the value files it points into.
fn superseded(entry: &TableEntry, table: &Table) -> plan::Superseded {
    let properties = table.properties();
    let values: u64 = entry.values.iter().map(|(_, bytes)| *bytes).sum();
    let raw = (properties.raw_bytes.saturating_add(values)).max(1);
    let part = (properties.superseded_bytes as f64 / raw as f64).min(1.0);
    plan::Superseded {
        bytes: (entry.file_bytes.saturating_add(values) as f64 * part).ceil() as u64,
        oldest: properties.superseded_min,
        by: properties.superseding_max,
    }
}

/// Estimate of the bytes of `range` in `piece`, including separated values, without versions that were kept
/// for snapshots that `readers` no longer has.
pub fn weight_within(piece: &Piece, range: &KeyRange, readers: &Horizon) -> u64 {
    let file = piece.file().summary();
    let bytes = bytes_within(piece, &piece.range().intersection(range));
    let part = bytes as f64 / file.bytes.max(1) as f64;
    let beside = file.value_bytes() as f64 - file.superseded.garbage(readers) as f64;
    bytes.saturating_add_signed((beside * part) as i64)
}

/// As [`weight_within`], without what the file has beside its entries.
pub(super) fn entries_within(piece: &Piece, range: &KeyRange, readers: &Horizon) -> u64 {
    let is_cut = |end: &Bytes| piece.entry().range.is_end_after(end);
    let ends_before = piece.range().intersection(range).end.as_ref().is_some_and(is_cut);
    let overhead = if ends_before { 0 } else { table::OVERHEAD_BYTES_MIN };
    weight_within(piece, range, readers).saturating_sub(overhead)
}

/// Estimate of the bytes of `piece` in its file.
pub fn bytes_of(piece: &Piece) -> u64 {
    bytes_within(piece, piece.range())
}

/// Estimate of the bytes of `range` in the file of `piece`.
fn bytes_within(piece: &Piece, range: &KeyRange) -> u64 {
    let file = piece.file().summary();
    if *range == piece.entry().range {
        return file.bytes;
    }
    let before = |key: &[u8]| {
        let at = file.splits.partition_point(|(split, _)| &**split <= key);
        at.checked_sub(1).and_then(|at| file.splits.get(at)).map_or(0, |(_, bytes)| *bytes)
    };
    let end = match &range.end {
        Some(end) if piece.entry().range.is_end_after(end) => before(end),
        _ => file.bytes,
    };
    end.saturating_sub(before(&range.first))
}

//! The cost of damage: which keys of a damaged file are lost. A damaged page of an index or a filter costs
//! no key, because it is rebuilt from the blocks, or there is a copy.
//!
//! A damaged table is read once more, as a repair reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, KeyspaceId, Result, StoreId};
use engine::{LostRecords, lost_records};
use manifest::{KeyspaceEntry, LiveTable, LiveValues, ManifestState};
use table::{Dictionaries, StoreDictionaries, file_name, values_file_name};

use super::Walk;
use crate::repair::{Lost, LostRange, Salvager, Verdict};
use crate::resident::resident_losses;

/// Most ranges that are listed; the keys of further ones are only counted.
const RANGES_MAX: usize = 10_000;

/// The first and the last of some keys; none if they are not known.
type KeySpan<'a> = Option<(&'a [u8], &'a [u8])>;

/// The keys that a damaged store has lost.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LostKeys {
    /// Number of entries of these keys: a key with several versions counts once for each. `None` if damaged
    /// parts do not say how many they held.
    pub entries: Option<u64>,
    /// The ranges in which they lie, the first ten thousand. In a range of a damaged table other keys are
    /// intact.
    pub ranges: Vec<LostRange>,
    /// Lost records of the log.
    pub log: Vec<LostRecords>,
}

impl LostKeys {
    /// No key is lost.
    pub(super) fn none() -> Self {
        Self { entries: Some(0), ..Self::default() }
    }

    /// True if damage cost no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == Some(0)
            && self.ranges.is_empty()
            && self.log.iter().all(|it| !it.costs_writes())
    }

    /// Adds `entries` lost entries in `ranges`.
    pub(super) fn add(
        &mut self,
        entries: Option<u64>,
        ranges: impl IntoIterator<Item = LostRange>,
    ) {
        self.entries = self.entries.zip(entries).map(|(all, more)| all.saturating_add(more));
        let room = RANGES_MAX.saturating_sub(self.ranges.len());
        self.ranges.extend(ranges.into_iter().take(room));
    }

    /// Lost keys, of an unknown number.
    pub(super) fn add_unknown(&mut self) {
        self.entries = None;
    }

    /// The first and the last lost key of each keyspace, as far as they are known.
    #[must_use]
    pub fn spans(&self) -> BTreeMap<Option<&str>, KeySpan<'_>> {
        let mut spans = BTreeMap::new();
        for range in &self.ranges {
            let keys = range.keys.as_ref().map(|(from, to)| (&**from, &**to));
            let span = spans.entry(range.keyspace.as_deref()).or_insert(keys);
            *span =
                span.zip(keys).map(|((from, to), (first, last))| (from.min(first), to.max(last)));
        }
        spans
    }
}

impl Walk<'_> {
    /// Finds the losses of the damaged table `live`.
    pub(super) fn lost_of_table(
        &mut self,
        store: StoreId,
        (id, keyspace): (KeyspaceId, &KeyspaceEntry),
        live: &LiveTable,
        dictionaries: &Arc<StoreDictionaries>,
    ) -> Result<()> {
        let file = file_name(live.entry.id);
        if self.listed(&file).is_none() {
            let ranges = live.pieces.iter().map(|piece| LostRange {
                file: file.clone(),
                pages: None,
                keyspace: Some(keyspace.name.clone()),
                keys: Some(piece.range.shown()),
                what: Lost::Versions,
            });
            self.report.lost.add(Some(live.entry.entries), ranges);
            return Ok(());
        }
        let salvager = Salvager {
            medium: Arc::clone(self.medium),
            store,
            dictionaries: Arc::clone(dictionaries) as Arc<dyn Dictionaries>,
            account: self.account.clone(),
        };
        let keep_all = &mut |_: &[u8], _, _: &[u8]| Ok(Verdict::Keep);
        match salvager.salvage(&live.entry, id, keyspace.kind.key_form(), None, keep_all) {
            Ok(remains) => {
                let ranges = remains.lost_of(live, &keyspace.name);
                let is_lost = ranges.iter().any(|range| range.what == Lost::Versions);
                let entries = live.entry.entries.saturating_sub(remains.versions);
                self.report.lost.add(Some(if is_lost { entries } else { 0 }), ranges);
                Ok(())
            }
            Err(error) if error.is_retryable() => Err(error),
            // Nothing of the file can be read: a newer version may have written it.
            Err(_) => {
                self.report.lost.add_unknown();
                Ok(())
            }
        }
    }

    /// Notes that the value file `live` of `keyspace` lost values: that of `key` on `pages`, or all of them.
    pub(super) fn lost_of_values(
        &mut self,
        keyspace: &str,
        live: &LiveValues,
        damage: Option<(u32, u32, Option<Vec<u8>>)>,
    ) {
        let (pages, key, entries) = match damage {
            None => (None, None, Some(live.entry.values)),
            Some((page, pages, Some(key))) => (Some((page, pages)), Some(key), Some(1)),
            Some((page, pages, None)) => (Some((page, pages)), None, None),
        };
        self.report.lost.add(
            entries,
            [LostRange {
                file: values_file_name(live.entry.id),
                pages,
                keyspace: Some(keyspace.to_owned()),
                keys: key.map(|key| (key.clone(), key)),
                what: Lost::Versions,
            }],
        );
    }

    /// Finds what the log, damaged as `error` says, lost.
    pub(super) fn lost_of_log(
        &mut self,
        state: Option<&ManifestState>,
        error: &Error,
    ) -> Result<()> {
        let known = state.map(ManifestState::known_log).unwrap_or_default();
        let past = wal::Recover::PastDamage;
        let (lost, store) = (&mut self.report.lost, self.report.store);
        let (medium, account) = (self.medium, &self.account);
        match wal::check(self.medium, store, &known, past, &self.account) {
            Ok(read) => {
                let flushed = state.map_or(base::Seqno::ZERO, ManifestState::flushed_below);
                lost.log = read.losses.iter().map(|loss| lost_records(loss, flushed)).collect();
                // The end is lost: writes that are in no table.
                let is_short = read.last < known.logged || read.losses.is_empty();
                let is_costly = lost.log.iter().any(LostRecords::costs_writes);
                let Some(state) = state.filter(|_| is_costly) else {
                    if is_short || is_costly {
                        lost.add_unknown();
                    }
                    return Ok(());
                };
                let resident = resident_losses(medium, store, state, &read.losses, account)?;
                let entries = resident.ranges.len() as u64;
                let is_all = resident.is_all && !is_short;
                lost.add(is_all.then_some(entries), resident.ranges);
                Ok(())
            }
            Err(again) if again.kind() == ErrorKind::Retry => Err(again),
            Err(_) => {
                base::invariant!(
                    error.kind() != ErrorKind::Retry,
                    "a retryable error ends the check"
                );
                lost.add_unknown();
                Ok(())
            }
        }
    }
}

//! The newest whole checkpoint of the indexes of resident keyspaces, loaded before the log is replayed.
//!
//! A checkpoint that is damaged, of another store or of a newer version is passed over: the log has
//! everything. If the log lacks what a whole checkpoint points to, the open is refused: a replay alone would
//! not notice that the newest segments of a lane are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Account, Error, ErrorKind, KeyspaceId, LaneId, Result, SegmentId, Seqno, StoreId};
use manifest::ManifestState;
use media::Medium;
use tree::checkpoint::{Header, Section};
use tree::{LogSegments, Resident};
use wal::SegmentSummary;

use super::index_sections::Sections;
use super::replay::Replay;
use crate::recovery::Recovery;

/// What was loaded.
#[derive(Default)]
pub(super) struct Loaded {
    /// Segments that need not be read.
    pub summaries: Vec<SegmentSummary>,
    /// Whether the indexes have entries, some of which may be newer than records that are replayed.
    pub is_loaded: bool,
    /// What the log lacks of the entries that the checkpoint points to.
    pub lost: Option<Error>,
    /// When the checkpoint was begun, Unix seconds.
    begun: u32,
}

/// What a checkpoint is loaded into.
struct Loader<'a> {
    medium: &'a Arc<dyn Medium>,
    store: StoreId,
    segments: &'a Arc<LogSegments>,
    residents: BTreeMap<KeyspaceId, Arc<Resident>>,
    state: &'a ManifestState,
}

/// What a check finds of the newest whole checkpoint.
#[derive(Debug, Default)]
pub struct IndexCheck {
    /// Its file; `None` without one.
    pub file: Option<String>,
    /// Entries that it points to and the log has.
    pub entries: u64,
    /// What the log lacks of the entries that it points to, at the end of a lane. An open is refused.
    pub lost: Option<Error>,
    /// Slots whose entries are damaged or of another key.
    pub bad_slots: u64,
    /// The first of them.
    pub bad: Option<Error>,
}

/// The checkpoints on `medium` and their lengths, oldest first.
fn listed(medium: &dyn Medium) -> Result<Vec<(u64, u64)>> {
    let listed = medium.list()?;
    let mut found: Vec<_> = listed
        .iter()
        .filter_map(|file| Some((Header::parse_file_name(&file.name)?, file.len)))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Checks the newest whole checkpoint of a closed store against its log: reads every entry that it points to.
/// One that is damaged is passed over, as an open does.
///
/// # Errors
/// Those of the device, and of a lack of memory.
pub fn check_indexes(
    medium: &Arc<dyn Medium>,
    store: StoreId,
    state: &ManifestState,
    account: &Account,
) -> Result<IndexCheck> {
    let mut check = IndexCheck::default();
    if !state.log_place.is_on_devices() {
        return Ok(check);
    }
    for (number, length) in listed(&**medium)?.into_iter().rev() {
        let segments = LogSegments::new(medium, store, account);
        let resident = state.keyspaces.iter().filter(|(_, entry)| entry.kind.is_resident());
        let residents = resident.map(|(id, _)| Ok((*id, Resident::new(*id, &segments, account)?)));
        let residents = residents.collect::<Result<_>>()?;
        let loader = Loader { medium, store, segments: &segments, residents, state };
        let loaded = loader.load(number, length).inspect_err(|_| loader.unload());
        match loaded {
            Ok(None) => continue,
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => {
                continue;
            }
            loaded => check.lost = loaded?.and_then(|loaded| loaded.lost),
        }
        check.file = Some(Header::file_name(number));
        let mut bad = |error| {
            check.bad_slots += 1;
            check.bad.get_or_insert(error);
        };
        for resident in loader.residents.values().filter(|_| check.lost.is_none()) {
            check.entries += resident.verify_slots(&mut bad)?;
        }
        break;
    }
    Ok(check)
}

impl Replay<'_> {
    /// Loads the newest whole checkpoint, if there is one and the log is whole on its devices.
    ///
    /// # Errors
    /// `Corrupt` if the log lacks the end that a checkpoint points to; those of the device but other damage,
    /// and of a lack of memory.
    pub(super) fn load_index_checkpoint(&self, recovery: &mut Recovery) -> Result<Loaded> {
        let medium = &self.context.medium;
        let found = listed(&**medium)?;
        if !self.state.log_place.is_on_devices() || self.settings.recover_damaged_log {
            // What is replayed past damage may be older than what a checkpoint has of it.
            for (number, _) in found.iter().filter(|_| !self.settings.read_only) {
                medium.remove(&Header::file_name(*number))?;
            }
            return Ok(Loaded::default());
        }
        let (segments, store) = (&self.context.segments, self.context.store);
        let residents = self.residents();
        let loader = Loader { medium, store, segments, residents, state: self.state };
        for (number, length) in found.into_iter().rev() {
            match loader.load(number, length) {
                Ok(Some(Loaded { lost: Some(lost), .. })) => return Err(lost),
                Ok(Some(loaded)) => {
                    recovery.index_checkpoint_bytes = length;
                    recovery.index_checkpoint_begun = loaded.begun;
                    return Ok(loaded);
                }
                Ok(None) => {}
                Err(error) => {
                    loader.unload();
                    if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) {
                        return Err(error);
                    }
                    recovery.index_checkpoint_damage.get_or_insert(error);
                }
            }
        }
        Ok(Loaded::default())
    }

    fn residents(&self) -> BTreeMap<KeyspaceId, Arc<Resident>> {
        let trees = self.trees.all().into_iter();
        trees
            .filter_map(|tree| Some((tree.id(), tree.view().read_context.resident()?.clone())))
            .collect()
    }
}

impl Loader<'_> {
    /// Gives up what was loaded of a damaged checkpoint.
    fn unload(&self) {
        self.segments.restored(|_, _| false, |_, _| false);
        self.residents.values().for_each(|resident| resident.unload());
    }

    /// Loads a checkpoint; `None` for one that was not finished.
    fn load(&self, number: u64, length: u64) -> Result<Option<Loaded>> {
        let (medium, segments, residents) = (self.medium, self.segments, &self.residents);
        let opened = Sections::open(&**medium, number, length, segments.account())?;
        let Some((header, mut sections)) = opened else { return Ok(None) };
        if header.store != self.store {
            return Err(Error::corrupt("header of an index checkpoint")
                .at(Header::file_name(number))
                .expected(format_args!("store {:?}", self.store))
                .got(format_args!("store {:?}", header.store)));
        }
        let mut tombstones = BTreeMap::new();
        let mut full = Vec::new();
        while let Some(section) = sections.next()? {
            match section {
                Section::Slots { keyspace, shard, slots } => {
                    // One that was dropped since has no index.
                    if let Some(resident) = residents.get(&keyspace) {
                        resident.load(shard, &slots)?;
                    }
                }
                Section::Tombstones(keyspace, count) => {
                    tombstones.insert(keyspace, count);
                }
                Section::Segment(part) => segments.restore(&part)?,
                Section::Full(summary) => full.push(summary),
            }
        }
        let start = self.state.known_log().start;
        full.retain(|summary| self.is_known(summary, header.end, &tombstones));
        let summaries = wal::skippable(&**medium, &start, &full)?;
        let there: BTreeSet<(LaneId, SegmentId)> = medium
            .list()?
            .iter()
            .filter_map(|file| wal::parse_segment_name(&file.name))
            .filter(|(lane, segment)| *segment >= start.of(*lane))
            .collect();
        debug_assert!(summaries.len() <= full.len(), "a skipped segment has a summary");
        let loaded = residents.values().map(|resident| &**resident);
        let lost = segments.lost_end(loaded, &start, |id| there.contains(&id))?;
        let skipped: BTreeSet<_> = summaries.iter().map(|it| (it.lane, it.segment)).collect();
        segments.restored(
            |lane, segment| there.contains(&(lane, segment)),
            |lane, segment| !skipped.contains(&(lane, segment)),
        );
        for (keyspace, resident) in residents {
            resident.loaded(tombstones.get(keyspace).copied().unwrap_or(0), header.end)?;
        }
        Ok(Some(Loaded {
            summaries,
            is_loaded: true,
            begun: header.begun,
            lost: lost.map(|it| it.at(Header::file_name(number))),
        }))
    }

    /// Whether no record of the segment is needed: the indexes have those of resident keyspaces below `end`,
    /// and tables those of others.
    fn is_known(
        &self,
        summary: &SegmentSummary,
        end: Seqno,
        covered: &BTreeMap<KeyspaceId, u64>,
    ) -> bool {
        summary.pins.iter().all(|(keyspace, last)| match self.state.keyspaces.get(keyspace) {
            None => true,
            Some(entry) if entry.kind.is_resident() => {
                covered.contains_key(keyspace) && *last <= end
            }
            Some(entry) => *last <= entry.flushed_below,
        })
    }
}

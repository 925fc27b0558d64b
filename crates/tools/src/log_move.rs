//! Moves the log of a closed store to other devices: between the store's directory and storage-class memory,
//! or from one set of devices to another.
//!
//! The store is opened with its present log, and all its writes are flushed to tables, so that the log holds
//! nothing that the store needs. Then the new devices are made, with a lane begun durably in each place; they
//! are not part of the store yet. One manifest record makes them so, and gives up the old log. Last the old
//! segments are removed. A crash before the record leaves the store as it was, and devices without a batch,
//! which the next move takes again; a crash after it leaves the old segments, which no opening reads.
//!
//! Threads: the caller's, one, and the executor's while the store is open.

use std::any::Any;
use std::sync::Arc;

use base::{Account, Error, LaneId, Result, SegmentId, Seqno, StoreId};
use compact::Operators;
use engine::{LogConfig, OpenLog, Resources, Settings, open_log, prepare_log};
use manifest::{Edit, KeyspaceFile, Manifest, ManifestState};
use media::{Joined, Medium, MemoryMedium};
use wal::{DeviceHeader, LogPlace, Start};

use crate::check::{is_ours, no_store};
use crate::unreachable::without_object_store;

/// Result of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogMoveReport {
    /// The places of the log's devices now; none: it is in the store's directory.
    pub places: Vec<String>,
    /// The number of lanes in all.
    pub lanes: usize,
    /// Old files that could not be removed; the store does not read them.
    pub left: Vec<String>,
}

/// Moves the log of the closed store on `medium`, which is opened with its log at `from`, to `to`. A `to`
/// without places moves it to the store's directory.
///
/// # Errors
/// `Invalid` if there is no store or it is open, if a device of `from` is missing, or if one of `to` cannot
/// be used; those of opening and flushing the store. After an error the log is where it was.
pub fn move_log(
    medium: &Arc<dyn Medium>,
    from: &LogConfig,
    to: &LogConfig,
) -> Result<LogMoveReport> {
    if !medium.list()?.iter().any(is_ours) {
        return Err(no_store());
    }
    if to.places.is_empty()
        && manifest::recover(&**medium, false)?
            .is_ok_and(|found| !found.state.log_place.is_on_devices())
    {
        return Err(Error::invalid("place of the log")
            .expected("another one than the store's directory, where it is"));
    }
    if let Some(name) = resident_keyspace(medium)? {
        return Err(Error::invalid("move of the log")
            .expected("a store without resident keyspaces, whose entries are in the log")
            .got(format_args!("the resident keyspace `{name}`")));
    }
    let mut settings = Settings::default();
    settings.scrub_rate = 0;
    let resources = Resources::builder().build()?;
    let operators = Operators::builtin().without_required_priorities();
    let events = Arc::default();
    let store = engine::open(
        without_object_store(medium),
        from,
        resources,
        settings,
        operators,
        events,
        None,
    )?;
    store.flush_for_copy()?;
    let last = store.log.last();
    store.close()?;
    drop(store);
    replace_log(medium, from, to, last)
}

/// A resident keyspace of the store, whose entries are in the log and cannot be flushed to tables.
///
/// # Errors
/// Those of the device.
pub(crate) fn resident_keyspace(medium: &Arc<dyn Medium>) -> Result<Option<String>> {
    if let Ok(found) = manifest::recover(&**medium, false)? {
        let mut keyspaces = found.state.keyspaces.values();
        let resident = keyspaces.find(|entry| entry.kind.is_resident());
        return Ok(resident.map(|entry| entry.name.clone()));
    }
    // Without a manifest, the files of the keyspaces say it.
    for file in medium.list()? {
        let Some(keyspace) = KeyspaceFile::parse_file_name(&file.name) else { continue };
        match KeyspaceFile::find(&**medium, keyspace) {
            Ok(Some(found)) if found.kind.is_resident() => return Ok(Some(found.name)),
            // A damaged file says nothing.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

/// Gives the closed store on `medium` a new log at `to` in place of the one at `from`, all of whose records
/// are in tables or given up. The new log assigns seqnos above `last`.
///
/// # Errors
/// As [`move_log`].
pub(crate) fn replace_log(
    medium: &Arc<dyn Medium>,
    from: &LogConfig,
    to: &LogConfig,
    last: Seqno,
) -> Result<LogMoveReport> {
    let _lock = medium.lock()?;
    let found = manifest::recover(&**medium, false)?;
    let found = found.map_err(|_| Error::corrupt("store").expected("a manifest").got("none"))?;
    let (store, mut state, number) = (found.store, found.state, found.number);
    let old = OldLog::open(medium, from, store, &state.log_place)?;
    check_new(to, &state.log_place)?;
    let devices = prepare_log(to, store)?;
    let place = devices.place.clone();
    let start = old.end(&state.log_start)?;
    let _guards = begin(medium, &state, store, devices, &start, last)?;

    // The record is in a manifest of its own, so that the store's next opening reads one or the other.
    for (lane, segment) in start.iter() {
        state.log_start.raise(lane, segment);
    }
    state.apply(Edit::LogPlaced { place: place.clone() })?;
    let next = number
        .checked_add(1)
        .ok_or_else(|| Error::corrupt("manifest number").expected("a number below").got(number))?;
    Manifest::start(Arc::clone(medium), store, state, next)?;
    let lanes = place.lanes().len();
    let places = place.devices.iter().map(|device| device.place.clone()).collect();
    Ok(LogMoveReport { places, lanes, left: old.remove(&place) })
}

/// Refuses a place on a device that the log has already: its records would be lost with the old log.
fn check_new(to: &LogConfig, old: &LogPlace) -> Result<()> {
    for place in &to.places {
        let Ok(medium) = to.devices.open(place, false) else { continue };
        let header = DeviceHeader::find(&*medium).ok().flatten();
        if header.is_some_and(|header| old.devices.iter().any(|old| old.id == header.device)) {
            return Err(Error::invalid("place of the log")
                .at(format_args!("`{place}`"))
                .expected("one that the log does not have")
                .got("a device of this store's log"));
        }
    }
    Ok(())
}

/// Begins the lanes of the new log, durably.
fn begin(
    medium: &Arc<dyn Medium>,
    state: &ManifestState,
    store: StoreId,
    devices: OpenLog,
    start: &Start,
    last: Seqno,
) -> Result<Vec<Box<dyn Any + Send + Sync>>> {
    let place = devices.place.clone();
    // The old segments stay out of sight: they must survive until the manifest gives them up.
    let home = match place.is_on_devices() {
        true => Arc::new(MemoryMedium::new()) as Arc<dyn Medium>,
        false => Arc::clone(medium),
    };
    let joined = Arc::new(Joined::new(home, wal::device_of));
    let guards = devices.attach(&joined)?;
    let options = wal::Options {
        segment_bytes: wal::SEGMENT_BYTES_MIN,
        floor: state.floor().max(last),
        start: start.clone(),
        lanes: place.lanes(),
        is_fenced: place.is_on_devices(),
        ..wal::Options::new(store)
    };
    let account = Account::unlimited("log");
    let (log, _) = wal::Log::open(joined, options, &account, &|_| None, &mut |_, _| Ok(()))?;
    // On a full device a log opens without a segment.
    log.prepare(0)?;
    Ok(guards)
}

/// The log that is replaced.
struct OldLog {
    joined: Arc<Joined>,
    _guards: Vec<Box<dyn Any + Send + Sync>>,
    media: Vec<Arc<dyn Medium>>,
}

impl OldLog {
    fn open(
        medium: &Arc<dyn Medium>,
        from: &LogConfig,
        store: StoreId,
        place: &LogPlace,
    ) -> Result<Self> {
        let devices = open_log(from, store, place)?;
        let media = devices.media.clone();
        let joined = Arc::new(Joined::new(Arc::clone(medium), wal::device_of));
        let guards = devices.attach(&joined)?;
        Ok(Self { joined, _guards: guards, media })
    }

    /// The segments.
    fn segments(&self) -> Result<Vec<(String, LaneId, SegmentId)>> {
        let files = self.joined.list()?.into_iter();
        let segments = files.filter_map(|file| {
            let (lane, segment) = wal::parse_segment_name(&file.name)?;
            Some((file.name, lane, segment))
        });
        Ok(segments.collect())
    }

    /// The start of a log without any of its segments, in each of its lanes.
    fn end(&self, start: &Start) -> Result<Start> {
        let mut end = start.clone();
        for (name, lane, segment) in self.segments()? {
            let next = segment.0.checked_add(1).ok_or_else(|| {
                Error::corrupt("log segment's number").expected("a number below").got(name)
            })?;
            end.raise(lane, SegmentId(next));
        }
        Ok(end)
    }

    /// Removes the segments, and the headers of the devices. Returns the names of the files that stay: the
    /// log has moved, so an error here is none of the move.
    fn remove(&self, new: &LogPlace) -> Vec<String> {
        let is_new = |lane: LaneId| !new.is_on_devices() && new.lanes().contains(&lane);
        let mut left = Vec::new();
        for (name, lane, _) in self.segments().unwrap_or_default() {
            // A log that moved to the directory has its first segment there.
            if !is_new(lane) && self.joined.remove(&name).is_err() {
                left.push(name);
            }
        }
        for device in &self.media {
            let remove = || device.remove(wal::DEVICE_FILE).and_then(|()| device.sync_names(&[]));
            let files = device.list().unwrap_or_default();
            // The header says to which store a segment belongs.
            let is_empty = !files.iter().any(|file| wal::parse_segment_name(&file.name).is_some());
            let is_there = files.iter().any(|file| file.name == wal::DEVICE_FILE);
            if is_empty && is_there && remove().is_err() {
                left.push(wal::DEVICE_FILE.to_owned());
            }
        }
        // A name that comes back with a power cut is not read.
        let _ = self.joined.sync_names(&[]);
        left
    }
}

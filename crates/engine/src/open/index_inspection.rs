//! What a checkpoint of indexes says, for tools. Read-only, without a store.

use base::{Account, Error, ErrorKind, KeyspaceId, LaneId, Result, SegmentId, StoreId};
use media::Medium;
use tree::checkpoint::{Header, Section, SegmentPart};
use wal::SegmentSummary;

use super::index_sections::Sections;

/// A fact of a checkpoint, in the order of its file.
#[derive(Clone, Debug)]
pub enum IndexFact {
    /// The header. Missing if the checkpoint was not finished.
    Header {
        /// The store.
        store: StoreId,
        /// The number of the checkpoint.
        number: u64,
        /// Length of the file, bytes.
        bytes: u64,
        /// When the checkpoint was begun, Unix seconds; 0 if its file does not say.
        begun: u32,
        /// Every write to a resident keyspace below this sequence number was in the indexes when the
        /// checkpoint was begun.
        below: u64,
    },
    /// The whole index of a keyspace.
    Keyspace {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Entries, with tombstones.
        entries: u64,
        /// Tombstones among them.
        tombstones: u64,
    },
    /// Entries of a segment. One with many records of several operations has several of these facts.
    Segment {
        /// The lane.
        lane: LaneId,
        /// The segment's number in the lane.
        segment: SegmentId,
        /// Operations on resident keyspaces that were written to it.
        operations: u64,
        /// Their bytes.
        bytes: u64,
        /// Records of several operations.
        batches: usize,
    },
    /// A full segment of the log, which an open need not read if its keyspaces need none of it.
    Full {
        /// The lane.
        lane: LaneId,
        /// The segment's number in the lane.
        segment: SegmentId,
        /// Written bytes.
        bytes: u64,
        /// No record has a sequence number below this one.
        first: u64,
        /// The keyspaces with records in it, and the sequence number after their last one.
        keyspaces: Vec<(KeyspaceId, u64)>,
    },
    /// The end.
    End {
        /// Whether the checkpoint was finished. An open passes over one that was not.
        is_finished: bool,
        /// Why the rest cannot be read, if it is damaged. An open passes over it too.
        damage: Option<Error>,
    },
}

/// Reports each fact of the checkpoint of indexes named `name` to `see`.
///
/// # Errors
/// `Invalid` if the name is no checkpoint's or a newer version wrote it, `NotFound` without the file, those
/// of the device, and those of `see`. Damage is a fact.
pub fn inspect_index(
    medium: &dyn Medium,
    name: &str,
    see: &mut dyn FnMut(IndexFact) -> Result<()>,
) -> Result<()> {
    let number = Header::parse_file_name(name).ok_or_else(|| {
        Error::invalid("name of an index checkpoint").expected("index-<number>").got(name)
    })?;
    let listed = medium.list()?.into_iter().find(|file| file.name == name);
    let length = listed.ok_or_else(|| Error::not_found("index checkpoint").got(name))?.len;
    let damage = match read(medium, number, length, see) {
        Ok(true) => None,
        Ok(false) => return see(IndexFact::End { is_finished: false, damage: None }),
        Err(error) if error.kind() == ErrorKind::Corrupt => Some(error),
        Err(error) => return Err(error),
    };
    see(IndexFact::End { is_finished: true, damage })
}

/// Reports the facts up to the end. False if there are none yet.
fn read(
    medium: &dyn Medium,
    number: u64,
    length: u64,
    see: &mut dyn FnMut(IndexFact) -> Result<()>,
) -> Result<bool> {
    let account = Account::unlimited("index inspection");
    let Some((header, mut sections)) = Sections::open(medium, number, length, &account)? else {
        return Ok(false);
    };
    let Header { begun, store, number, end, length } = header;
    see(IndexFact::Header { store, number, bytes: length, begun, below: end.get() })?;
    let mut entries = 0;
    while let Some(section) = sections.next()? {
        match section {
            Section::Slots { slots, .. } => entries += slots.len() as u64,
            // Behind all slots of its keyspace, and these before those of the next one.
            Section::Tombstones(keyspace, tombstones) => {
                let entries = std::mem::take(&mut entries);
                see(IndexFact::Keyspace { keyspace, entries, tombstones })?;
            }
            Section::Segment(part) => {
                let SegmentPart { id: (lane, segment), noted: (operations, bytes), .. } = part;
                let batches = part.records.len();
                see(IndexFact::Segment { lane, segment, operations, bytes, batches })?;
            }
            Section::Full(full) => {
                let SegmentSummary { lane, segment, bytes, first, pins, .. } = full;
                let keyspaces = pins.into_iter().map(|(id, end)| (id, end.get())).collect();
                let first = first.get();
                see(IndexFact::Full { lane, segment, bytes, first, keyspaces })?;
            }
        }
    }
    Ok(true)
}

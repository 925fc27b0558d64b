//! Whether the log has what the slots of a loaded checkpoint point to.
//!
//! A replay does not notice the loss of the newest segments of a lane: nothing follows them. The checkpoint
//! does: its slots point to records that were durable, and stay until the log begins behind them.

use std::collections::BTreeMap;

use base::{Error, ErrorKind, LaneId, Result, SegmentId};
use wal::Start;

use super::index::{hash_bits, hash_bits_of};
use super::place::Place;
use super::{LogSegments, Resident, hash_of};

impl LogSegments {
    /// The first loss at the end of a lane of the log, which begins at `start`: a segment that slots of
    /// `residents` point into and that `is_there` refuses, or the last record of a lane that they point to.
    /// To be called before [`LogSegments::restored`].
    ///
    /// # Errors
    /// `Corrupt` for a slot of a segment that the checkpoint does not name; the device's.
    pub fn lost_end<'a>(
        &self,
        residents: impl Iterator<Item = &'a Resident>,
        start: &Start,
        is_there: impl Fn((LaneId, SegmentId)) -> bool,
    ) -> Result<Option<Error>> {
        let mut last = BTreeMap::<(LaneId, SegmentId), (Place, u64)>::new();
        for resident in residents {
            for place in resident.index.places() {
                if !self.knows(place) {
                    return Err(Error::corrupt("slot of an index checkpoint")
                        .expected("the number of a segment that it names")
                        .got(place.segment()));
                }
                let (of, slots) = last.entry(self.get(place)?.id()).or_insert((place, 0));
                *slots += 1;
                if of.offset() < place.offset() {
                    *of = place;
                }
            }
        }
        last.retain(|(lane, segment), _| *segment >= start.of(*lane));
        let lost = |(lane, segment), slots| {
            Error::corrupt("end of the log (I11)")
                .at(wal::segment_name(lane, segment))
                .expected(format_args!("the records of {slots} entries of resident keyspaces"))
        };
        if let Some((id, (_, slots))) = last.iter().find(|(id, _)| !is_there(**id)) {
            return Ok(Some(lost(*id, *slots).got("no segment")));
        }
        let mut newest = BTreeMap::new();
        for (id, of) in last {
            newest.insert(id.0, (id, of));
        }
        for (id, (place, slots)) in newest.into_values() {
            let segment = self.get(place)?;
            let (record, _) = segment.record_of(place)?;
            match segment.stored().verify(record) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    return Ok(Some(lost(id, slots).got(error)));
                }
                verified => verified?,
            }
        }
        Ok(None)
    }
}

impl Resident {
    /// For a check of a loaded checkpoint: reads and verifies the entry of each slot, and calls `bad` with
    /// the error of one that is damaged or of another key. Returns the number of slots.
    ///
    /// # Errors
    /// The device's.
    pub fn verify_slots(&self, bad: &mut dyn FnMut(Error)) -> Result<u64> {
        let mut slots = 0;
        for shard in 0..Self::SHARDS {
            for slot in self.index.slots_of(shard) {
                slots += 1;
                let (hash, place) = hash_bits(shard, slot);
                let id = self.segments.get(place)?.id();
                let entry = match self.entry(place) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        bad(error);
                        continue;
                    }
                    entry => entry?,
                };
                if hash_bits_of(hash_of(&entry.key)?) != hash {
                    let name = wal::segment_name(id.0, id.1);
                    bad(Error::corrupt("slot of an index checkpoint")
                        .at(format_args!("offset {}", place.offset()))
                        .at(name)
                        .expected(format_args!("an entry of the hash {hash:08x}"))
                        .got(format_args!("{:08x}", hash_bits_of(hash_of(&entry.key)?))));
                }
            }
        }
        Ok(slots)
    }
}

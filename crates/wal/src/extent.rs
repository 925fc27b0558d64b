//! Extents: the byte ranges of the log's files that a copy of the log up to one point needs.
//!
//! A copy of these extents is the log that a process death at that point would have left: every record
//! before the point whole, none after it. The caller must keep segments from being removed meanwhile.
//! Bytes before the point are never written again. A full segment may be cut to its used length while it
//! is copied; the missing bytes were zeros.

use base::Result;
use media::Medium;

use crate::name::parse_segment_name;
use crate::position::LogEnd;
use crate::start::Start;

/// The part of a segment's file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub name: String,
    /// The bytes to copy.
    pub bytes: u64,
    /// Length of the copy, bytes: zeros fill it after `bytes`.
    pub len: u64,
}

/// The extents from `start` to `ends`, oldest first within each lane. Of a lane without an end: all from
/// `start` on.
///
/// # Errors
/// As listing the medium.
pub fn extents(medium: &dyn Medium, start: &Start, ends: &[LogEnd]) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    for file in medium.list()? {
        let Some((lane, segment)) = parse_segment_name(&file.name) else { continue };
        let whole = Extent { name: file.name, bytes: file.len, len: file.len };
        match ends.iter().find(|end| end.lane == lane) {
            _ if segment < start.of(lane) => {}
            // A segment made ahead of need, or begun after the point.
            Some(end) if segment > end.segment => {}
            Some(end) if segment == end.segment => {
                extents.push(Extent { bytes: end.bytes, len: end.capacity, ..whole });
            }
            _ => extents.push(whole),
        }
    }
    extents.sort_by_key(|extent| parse_segment_name(&extent.name));
    Ok(extents)
}

//! What of the log's files lies before a point, for whoever copies it.
//!
//! A copy of these extents is a log as the death of the process at that point would have left it:
//! every record before the point whole, none behind it. Segments must be kept from being removed
//! meanwhile; what lies before the point is never written again. A full segment may be cut to what
//! is used of it while it is copied: what is missing then were zeros.

use base::Result;
use media::Medium;

use crate::log::LogEnd;
use crate::name::parse_segment_name;
use crate::start::Start;

/// The part of a segment's file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub name: String,
    /// The bytes to copy.
    pub bytes: u64,
    /// The length of the copy: zeros behind the bytes.
    pub len: u64,
}

/// The extents from `start` to `end`, a lane's oldest first; all that follows where there is no end.
///
/// # Errors
/// As listing the medium.
pub fn extents(medium: &dyn Medium, start: &Start, end: Option<LogEnd>) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    for file in medium.list()? {
        let Some(place) = parse_segment_name(&file.name) else { continue };
        let whole = Extent { name: file.name, bytes: file.len, len: file.len };
        match end.filter(|end| end.lane == place.0) {
            _ if place.1 < start.of(place.0) => {}
            // Made ahead of need, or begun since.
            Some(end) if place.1 > end.segment => {}
            Some(end) if place.1 == end.segment => {
                extents.push(Extent { bytes: end.bytes, len: end.capacity, ..whole });
            }
            _ => extents.push(whole),
        }
    }
    extents.sort_by_key(|extent| parse_segment_name(&extent.name));
    Ok(extents)
}

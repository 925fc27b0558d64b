//! What is left of manifests that are damaged beyond their twins, for repair.

use base::{Result, StoreId};
use media::Medium;

use crate::header::{HEADERS_BYTES, encode_header};
use crate::name::parse_file_name;
use crate::reader::read_file;
use crate::{Edit, ManifestState, frame};

/// What the readable records of the newest manifests of `store` say, as far as they do not
/// contradict each other; with the highest number that a manifest has.
///
/// The header follows from store and number, so that a damaged one costs nothing. A manifest with a
/// readable first record holds all that older ones did; without it, those count too.
///
/// # Errors
/// The device's.
pub fn salvage_state(medium: &dyn Medium, store: StoreId) -> Result<(u64, ManifestState)> {
    let listed = medium.list()?;
    let mut numbers: Vec<_> =
        listed.iter().filter_map(|file| Some((parse_file_name(&file.name)?, &file.name))).collect();
    numbers.sort();
    let highest = numbers.last().map_or(0, |(number, _)| *number);
    let mut state = ManifestState::default();
    for (number, name) in numbers {
        let Ok(bytes) = read_file(medium, name) else { continue };
        let seed = frame::seed(&encode_header(store, number));
        let mut found = ManifestState::default();
        for body in frame::salvage_records(&bytes, seed, HEADERS_BYTES) {
            // What a lost record would have made possible is refused, one edit at a time.
            for edit in Edit::decode_all(body).unwrap_or_default() {
                let _ = found.apply(edit);
            }
        }
        if found != ManifestState::default() {
            state = found;
        }
    }
    Ok((highest, state))
}

//! Salvage: the state that can still be read from damaged manifests, for repair.

use std::collections::BTreeMap;

use base::{KeyspaceId, Result, StoreId};
use media::Medium;

use crate::header::{HEADERS_BYTES, VERSION, VERSION_FIRST, encode_header};
use crate::name::parse_file_name;
use crate::reader::read_file;
use crate::{Edit, ManifestState, frame};

/// What is left of the manifests of a store.
#[derive(Debug)]
pub struct Salvage {
    /// The highest number that a manifest has.
    pub highest: u64,
    /// The state that the readable records make.
    pub state: ManifestState,
    /// The merge operators that readable records name, also of keyspaces that lost their own record.
    pub operators: BTreeMap<KeyspaceId, String>,
}

/// Rebuilds a state from the readable records of the manifests of `store`. Records that contradict the
/// state are skipped.
///
/// The header follows from version, store id and file number, so a damaged header loses nothing. A manifest
/// with a readable first record holds everything that older ones held; without it, the older ones count too.
///
/// # Errors
/// The device's, when it lists the files.
pub fn salvage_state(medium: &dyn Medium, store: StoreId) -> Result<Salvage> {
    let listed = medium.list()?;
    let mut numbers: Vec<_> =
        listed.iter().filter_map(|file| Some((parse_file_name(&file.name)?, &file.name))).collect();
    numbers.sort();
    let highest = numbers.last().map_or(0, |(number, _)| *number);
    let mut state = ManifestState::default();
    let mut operators = BTreeMap::new();
    for (number, name) in numbers {
        let Ok(bytes) = read_file(medium, name) else { continue };
        let mut found = ManifestState::default();
        // Only the records of the file's own version have the right checksums.
        for version in VERSION_FIRST..=VERSION {
            let seed = frame::seed(&encode_header(version, store, number));
            for body in frame::salvage_records(&bytes, seed, HEADERS_BYTES) {
                // An edit that depends on a lost record is refused; the others of its record are applied.
                for edit in Edit::decode_all(body).unwrap_or_default() {
                    if let Edit::KeyspaceOperator { keyspace, name } = &edit {
                        operators.insert(*keyspace, name.clone());
                    }
                    let _ = found.apply(edit);
                }
            }
        }
        if found != ManifestState::default() {
            state = found;
        }
    }
    Ok(Salvage { highest, state, operators })
}

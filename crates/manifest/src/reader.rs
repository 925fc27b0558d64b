//! Reading a manifest: at recovery, and to show it to a person.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, ErrorKind, Result, StoreId};
use media::{Access, Buf, Medium, Purpose};

use crate::header::{HEADERS_BYTES, MAGIC, VERSION};
use crate::name::{file_name, parse_file_name};
use crate::{Edit, ManifestState, frame};

/// The longest manifest read, bytes: nine times the longest first record, doubled.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What the newest manifest says.
#[derive(Debug)]
pub struct Recovered {
    pub store: StoreId,
    pub state: ManifestState,
    /// The number of the manifest read; the next one must be higher.
    pub number: u64,
    /// Frames that were bad while their twin was good.
    pub repaired: usize,
    /// The manifest in force, to go on in where there is no space for a new one.
    pub in_force: InForce,
}

/// Where a manifest that was read ends.
#[derive(Clone, Copy, Debug)]
pub struct InForce {
    pub number: u64,
    pub seed: u32,
    /// The number of its next record.
    pub sequence: u64,
    /// Where its last record ends, where what a torn append left behind it ends, and the length of
    /// the file; bytes.
    pub end: u64,
    pub torn: u64,
    pub limit: u64,
}

/// Reads the manifest in force. `Err(number)` within `Ok` where there is none: no store is here,
/// and the next manifest must have a number above it.
///
/// `alone` says that there is no other file of a store: a manifest that is not whole then is what
/// an interrupted creation left.
///
/// # Errors
/// `Corrupt` where manifests exist and none is whole; `Invalid` where a newer version wrote them.
pub fn recover(medium: &dyn Medium, alone: bool) -> Result<Result<Recovered, u64>> {
    let listed = medium.list()?;
    let mut numbers: Vec<_> =
        listed.iter().filter_map(|file| Some((parse_file_name(&file.name)?, &file.name))).collect();
    numbers.sort();
    // Numbers above the one in force belong to files that were never finished.
    let highest = numbers.last().map_or(0, |(number, _)| *number);
    let mut damage = None;
    for (number, name) in numbers.into_iter().rev() {
        match read(medium, name, number) {
            Ok(Some((store, records))) => {
                let in_force = records.in_force;
                let mut state = ManifestState::default();
                for edit in records.edits.into_iter().flatten() {
                    state.apply(edit).map_err(|error| error.at(name))?;
                }
                let repaired = records.repaired;
                return Ok(Ok(Recovered { store, state, number: highest, repaired, in_force }));
            }
            // Never finished: the one before is still there.
            Ok(None) => {
                let unfinished = Error::corrupt("manifest").at(name);
                damage.get_or_insert(unfinished.expected("a whole first record"));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match damage {
        Some(error) if !alone => Err(error),
        _ => Ok(Err(highest)),
    }
}

struct Records {
    edits: Vec<Vec<Edit>>,
    repaired: usize,
    in_force: InForce,
}

/// Reads one manifest file; `None` where its first record was never finished.
fn read(medium: &dyn Medium, name: &str, number: u64) -> Result<Option<(StoreId, Records)>> {
    let bytes = read_file(medium, name)?;
    let Some((store, seed, mut repaired)) = decode_headers(&bytes, name, number)? else {
        return Ok(None);
    };
    let records =
        frame::decode_records(&bytes, seed, HEADERS_BYTES).map_err(|error| error.at(name))?;
    if records.bodies.is_empty() {
        return Ok(None);
    }
    repaired += records.repaired;
    let end = records.end;
    let rest = bytes.get(end..).unwrap_or_default();
    let torn = rest.iter().rposition(|byte| *byte != 0).map_or(end, |last| end + last + 1);
    let in_force = InForce {
        number,
        seed,
        sequence: records.bodies.len() as u64,
        end: end as u64,
        torn: torn as u64,
        limit: bytes.len() as u64,
    };
    let edits: Result<Vec<_>> = records.bodies.iter().map(|body| Edit::decode_all(body)).collect();
    Ok(Some((store, Records { edits: edits.map_err(|error| error.at(name))?, repaired, in_force })))
}

/// The bytes of a manifest up to the end of its records, which are as they were found.
///
/// # Errors
/// `Corrupt` where they are not, and the device's.
pub(crate) fn content(medium: &dyn Medium, in_force: &InForce) -> Result<Vec<u8>> {
    let name = file_name(in_force.number);
    let mut bytes = read_file(medium, &name)?;
    bytes.truncate(usize::try_from(in_force.end).unwrap_or(usize::MAX));
    let records = frame::decode_records(&bytes, in_force.seed, HEADERS_BYTES);
    let records = records.map_err(|error| error.at(&name))?;
    let found = (records.bodies.len() as u64, records.end as u64);
    if found != (in_force.sequence, in_force.end) {
        return Err(Error::corrupt("manifest, read again")
            .at(name)
            .expected(format_args!("{} records", in_force.sequence))
            .got(found.0));
    }
    Ok(bytes)
}

/// The store and checksum seed the headers state; `None` where both copies are unwritten.
fn decode_headers(bytes: &[u8], name: &str, number: u64) -> Result<Option<(StoreId, u32, usize)>> {
    let (mut found, mut bad, mut error) = (None, 0, None);
    for copy in bytes.chunks(HEADERS_BYTES / 2).take(2) {
        match decode_header(copy, number) {
            // Both are looked at, so that a damaged one is told while the other is good.
            Ok(header) => found = found.or(Some(header)),
            Err(e) if e.kind() == ErrorKind::Invalid => return Err(e.at(name)),
            Err(e) => {
                error = Some(e.at(name));
                bad += 1;
            }
        }
    }
    if let Some((store, seed)) = found {
        return Ok(Some((store, seed, bad)));
    }
    if bytes.iter().take(HEADERS_BYTES).all(|byte| *byte == 0) {
        return Ok(None);
    }
    // Torn as it was created, or damaged: either way nothing in it can be trusted.
    error.map_or(Ok(None), Err)
}

fn decode_header(bytes: &[u8], number: u64) -> Result<(StoreId, u32)> {
    let mut cursor = Cursor::new("manifest header", bytes);
    let magic = cursor.take(MAGIC.len())?;
    let version = cursor.u32()?;
    let store = StoreId(cursor.u128()?);
    let stated = cursor.u64()?;
    let covered = bytes.get(..cursor.position()).unwrap_or_default();
    let crc = cursor.u32()?;
    let header = bytes.get(..cursor.position()).unwrap_or_default();
    if magic != MAGIC || crc != base::crc32c(covered) {
        return Err(Error::corrupt("manifest header")
            .expected(format_args!("magic and CRC {:08x}", base::crc32c(covered)))
            .got(format_args!("{crc:08x}")));
    }
    if version > VERSION {
        return Err(Error::invalid("manifest format version")
            .expected(format_args!("at most {VERSION}; a newer TerraceDB wrote this store"))
            .got(version));
    }
    if stated != number {
        return Err(Error::corrupt("manifest number").expected(number).got(stated));
    }
    Ok((store, frame::seed(header)))
}

pub(crate) fn read_file(medium: &dyn Medium, name: &str) -> Result<Vec<u8>> {
    let file = medium.open(name, Access::Bytes)?;
    let size = file.size()?;
    if size > FILE_BYTES_MAX {
        return Err(Error::corrupt("manifest size")
            .at(name)
            .expected(format_args!("at most {FILE_BYTES_MAX} bytes"))
            .got(size));
    }
    let mut bytes = Vec::new();
    let mut buf = Buf::pages(64);
    while (bytes.len() as u64) < size {
        let left = size - bytes.len() as u64;
        let pages = left.div_ceil(PAGE_BYTES as u64).min(64) as usize;
        if buf.len() != pages * PAGE_BYTES {
            buf = Buf::pages(pages);
        }
        let (back, result) = file.read(bytes.len() as u64, buf, Purpose::Manifest);
        result?;
        buf = back;
        bytes.extend_from_slice(buf.get(..left as usize).unwrap_or(&buf));
    }
    Ok(bytes)
}

/// One record of a manifest, for people.
#[derive(Debug)]
pub struct ManifestRecord {
    /// The record's number in the file.
    pub number: usize,
    /// Its edits, one line each.
    pub edits: Vec<String>,
}

/// Reads the manifest file `name`, for `terrace inspect`.
///
/// # Errors
/// As opening the store.
pub fn inspect(medium: &dyn Medium, name: &str) -> Result<(StoreId, Vec<ManifestRecord>)> {
    let number = parse_file_name(name).ok_or_else(|| {
        Error::invalid("manifest name").expected("manifest-<16 hex digits>").got(name)
    })?;
    let (store, records) = read(medium, name, number)?
        .ok_or_else(|| Error::corrupt("manifest").at(name).expected("a whole first record"))?;
    let record = |(number, edits): (usize, Vec<Edit>)| ManifestRecord {
        number,
        edits: edits.iter().map(ToString::to_string).collect(),
    };
    Ok((store, records.edits.into_iter().enumerate().map(record).collect()))
}

//! Reads a manifest: for recovery, and for `terrace inspect`.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, ErrorKind, Result, StoreId};
use media::{Access, Buf, Medium, Purpose};

use crate::header::{HEADERS_BYTES, MAGIC, VERSION};
use crate::name::{file_name, parse_file_name};
use crate::{Edit, ManifestState, frame};

/// The longest manifest that is read, bytes: twice the largest file, which has nine times the longest first
/// record.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The state read from the manifest in force.
#[derive(Debug)]
pub struct Recovered {
    /// The store that the manifest belongs to.
    pub store: StoreId,
    /// The state that the edits add up to.
    pub state: ManifestState,
    /// The highest number that a manifest has, unfinished ones included; the next manifest must have a higher
    /// one.
    pub number: u64,
    /// Damaged headers and frames with an intact twin.
    pub repaired: usize,
    /// The manifest in force, so that it can be continued if there is no space for a new one.
    pub(crate) in_force: InForce,
}

/// Position and checksum seed of a manifest that was read, so that records can be appended to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    /// The number in the file's name.
    pub(crate) number: u64,
    /// The format version of the file.
    pub(crate) version: u32,
    /// The seed of the file's checksums.
    pub(crate) seed: u32,
    /// The number of the next record.
    pub(crate) sequence: u64,
    /// End of the last intact record, bytes.
    pub(crate) end: u64,
    /// End of the nonzero bytes that a torn append left behind the last record; `end` if there are none.
    pub(crate) torn: u64,
    /// Length of the file, bytes.
    pub(crate) limit: u64,
}

/// Reads the manifest in force. Returns `Ok(Err(number))` if there is no store: the next manifest must have a
/// number above `number`.
///
/// `alone` states that the directory has no other file of a store: an unfinished manifest is then the remains
/// of an interrupted creation.
///
/// # Errors
/// `Corrupt` if manifests exist and none is intact; `Invalid` if a newer version wrote them.
pub fn recover(medium: &dyn Medium, alone: bool) -> Result<Result<Recovered, u64>> {
    let listed = medium.list()?;
    let mut numbers: Vec<_> =
        listed.iter().filter_map(|file| Some((parse_file_name(&file.name)?, &file.name))).collect();
    numbers.sort();
    // Files with numbers above the one in force were never finished.
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
            // The file was never finished; the manifest before it still exists.
            Ok(None) => {
                let unfinished = Error::corrupt("manifest").at(name);
                damage.get_or_insert(unfinished.expected("an intact first record"));
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

/// The decoded records of one manifest file.
struct Records {
    edits: Vec<Vec<Edit>>,
    repaired: usize,
    in_force: InForce,
}

/// Reads one manifest file; `None` if its first record was never finished.
fn read(medium: &dyn Medium, name: &str, number: u64) -> Result<Option<(StoreId, Records)>> {
    let bytes = read_file(medium, name)?;
    let Some((Header { store, version, seed }, mut repaired)) =
        decode_headers(&bytes, name, number)?
    else {
        return Ok(None);
    };
    let records =
        frame::decode_records(&bytes, seed, HEADERS_BYTES).map_err(|error| error.at(name))?;
    if records.bodies.is_empty() {
        return Ok(None);
    }
    repaired += records.repaired;
    let end = records.end;
    let tail = bytes.get(end..).unwrap_or_default();
    let torn = tail.iter().rposition(|byte| *byte != 0).map_or(end, |last| end + last + 1);
    base::invariant!(
        end <= torn && torn <= bytes.len(),
        "a manifest's records end within its file"
    );
    let in_force = InForce {
        number,
        version,
        seed,
        sequence: records.bodies.len() as u64,
        end: end as u64,
        torn: torn as u64,
        limit: bytes.len() as u64,
    };
    let edits: Result<Vec<_>> = records.bodies.iter().map(|body| Edit::decode_all(body)).collect();
    Ok(Some((store, Records { edits: edits.map_err(|error| error.at(name))?, repaired, in_force })))
}

/// Reads a manifest's bytes up to the end of its last record, and checks that the records are those found
/// before.
///
/// # Errors
/// `Corrupt` if they are not, and the device's.
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

/// The fields of a header that the file's name does not state.
struct Header {
    store: StoreId,
    version: u32,
    /// The seed of the file's checksums.
    seed: u32,
}

/// Decodes both copies of the header, and counts the damaged copies. `None` if both copies are unwritten.
fn decode_headers(bytes: &[u8], name: &str, number: u64) -> Result<Option<(Header, usize)>> {
    let (mut found, mut bad, mut error) = (None, 0, None);
    for copy in bytes.chunks(HEADERS_BYTES / 2).take(2) {
        match decode_header(copy, number) {
            // The second copy is decoded even if the first is intact, so that a damaged one is reported.
            Ok(header) => found = found.or(Some(header)),
            Err(e) if e.kind() == ErrorKind::Invalid => return Err(e.at(name)),
            Err(e) => {
                error = Some(e.at(name));
                bad += 1;
            }
        }
    }
    if let Some(header) = found {
        return Ok(Some((header, bad)));
    }
    if bytes.iter().take(HEADERS_BYTES).all(|byte| *byte == 0) {
        return Ok(None);
    }
    // The creation was torn, or the file is damaged. Either way its content cannot be trusted.
    error.map_or(Ok(None), Err)
}

/// Decodes one copy of the header.
fn decode_header(bytes: &[u8], number: u64) -> Result<Header> {
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
    Ok(Header { store, version, seed: frame::seed(header) })
}

/// Reads the whole file `name`.
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

/// One record of a manifest, as text.
#[derive(Debug)]
pub struct ManifestRecord {
    /// The number of the record in the file.
    pub number: usize,
    /// The edits of the record, one line each.
    pub edits: Vec<String>,
}

/// Reads the manifest file `name`, for `terrace inspect`.
///
/// # Errors
/// `Invalid` if `name` is not the name of a manifest or a newer version wrote it; `Corrupt` if it is damaged;
/// the device's.
pub fn inspect(medium: &dyn Medium, name: &str) -> Result<(StoreId, Vec<ManifestRecord>)> {
    let number = parse_file_name(name).ok_or_else(|| {
        Error::invalid("manifest name").expected("manifest-<16 hex digits>").got(name)
    })?;
    let (store, records) = read(medium, name, number)?
        .ok_or_else(|| Error::corrupt("manifest").at(name).expected("an intact first record"))?;
    let record = |(number, edits): (usize, Vec<Edit>)| ManifestRecord {
        number,
        edits: edits.iter().map(ToString::to_string).collect(),
    };
    Ok((store, records.edits.into_iter().enumerate().map(record).collect()))
}

//! The file by which a device of a log is recognised: the id of the device and of its store.
//!
//! A directory may be mounted elsewhere, be empty because its device is not mounted, or belong to another
//! store. So the manifest records the ids of the log's devices, and each device states its own.
//! docs/format/log-device.md has the byte table.

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, ErrorKind, Result, StoreId, crc32c, put_u32, put_u64, put_u128};
use media::{Access, Buf, Listing, Medium, Purpose};

use crate::inspect::{LogEntry, inspect};
use crate::name::parse_segment_name;

/// The name of the file.
pub const DEVICE_FILE: &str = "log-device";

const MAGIC: u64 = u64::from_le_bytes(*b"TERRADEV");

/// The version of the format.
const VERSION: u32 = 1;

/// Offset of the checksum, which covers the bytes before it.
const CRC_AT: usize = PAGE_BYTES - 4;

/// Opens the devices of a log by their places.
pub trait OpenDevices: Send + Sync + fmt::Debug {
    /// The files at `place`, created with `create` if there is no directory.
    ///
    /// # Errors
    /// `Invalid` if there is no such place, or it is not on storage-class memory.
    fn open(&self, place: &str, create: bool) -> Result<Arc<dyn Medium>>;

    /// `place` as it is recorded: its meaning must not depend on the working directory of a process.
    ///
    /// # Errors
    /// `Invalid` if it cannot be made so.
    fn absolute(&self, place: &str) -> Result<String> {
        Ok(place.to_owned())
    }
}

/// The identity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHeader {
    /// The store of its log.
    pub store: StoreId,
    /// The device.
    pub device: u128,
}

impl DeviceHeader {
    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        put_u64(&mut page, MAGIC);
        put_u32(&mut page, VERSION);
        put_u32(&mut page, 0);
        put_u128(&mut page, self.store.0);
        put_u128(&mut page, self.device);
        page.resize(CRC_AT, 0);
        let crc = crc32c(&page);
        put_u32(&mut page, crc);
        page
    }

    /// Decodes the page.
    ///
    /// # Errors
    /// `Corrupt` if the page is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(page: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("header of a log device", page);
        let covered = cursor.take(CRC_AT)?;
        let (stored, computed) = (cursor.u32()?, crc32c(covered));
        if stored != computed {
            return Err(Error::corrupt("checksum of a log device's header")
                .expected(format_args!("{computed:#010x}"))
                .got(format_args!("{stored:#010x}")));
        }
        let mut cursor = Cursor::new("header of a log device", covered);
        let (magic, version, reserved) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        if magic != MAGIC {
            return Err(Error::corrupt("magic of a log device's header")
                .expected(format_args!("{MAGIC:#018x}"))
                .got(format_args!("{magic:#018x}")));
        }
        if version != VERSION {
            return Err(Error::invalid("version of a log device's header")
                .expected(VERSION)
                .got(version));
        }
        let header = Self { store: StoreId(cursor.u128()?), device: cursor.u128()? };
        if reserved != 0 || cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(
                Error::corrupt("header of a log device").expected("zeros in reserved bytes")
            );
        }
        Ok(header)
    }

    /// The header on `medium`; `None` if there is none.
    ///
    /// # Errors
    /// As [`DeviceHeader::decode`]; those of the device.
    pub fn find(medium: &dyn Medium) -> Result<Option<Self>> {
        if !medium.list()?.iter().any(|file| file.name == DEVICE_FILE) {
            return Ok(None);
        }
        let file = medium.open(DEVICE_FILE, Access::Bytes)?;
        let (page, read) = file.read(0, Buf::pages(1), Purpose::Replay);
        read?;
        Self::decode(&page).map(Some)
    }

    /// Makes `medium` this device, durably.
    ///
    /// # Errors
    /// `Invalid` if it has a log, or a header of a newer version; those of the device.
    pub fn install(&self, medium: &dyn Medium) -> Result<()> {
        let mut files = medium.list()?;
        let found = match Self::find(medium) {
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            found => found.ok().flatten(),
        };
        let is_segment = |file: &Listing| parse_segment_name(&file.name).is_some();
        // A move of this store's log that a crash interrupted left a log that was never used. A closed
        // store's log has no batch either, if all of them are in tables.
        let is_own = found.is_some_and(|found| found.store == self.store);
        let is_unused = |file: &Listing| !is_segment(file) || is_unused(medium, &file.name);
        if is_own && files.iter().all(is_unused) {
            for file in files.extract_if(.., |file| is_segment(file)) {
                medium.remove(&file.name)?;
            }
        }
        if let Some(segment) = files.iter().find(|file| is_segment(file)) {
            let of = found.map_or(String::new(), |found| format!(" of store {}", found.store));
            return Err(Error::invalid("device for a log")
                .expected("a directory without a log")
                .got(format_args!("`{}`{of}", segment.name)));
        }
        // Without segments it is left from a log that moved away, or was never finished.
        if files.iter().any(|file| file.name == DEVICE_FILE) {
            medium.remove(DEVICE_FILE)?;
        }
        let file = medium.create(DEVICE_FILE, Access::Bytes, PAGE_BYTES as u64)?;
        file.store(0, &self.encode(), Purpose::Log)?;
        file.sync(Purpose::Log)?;
        medium.sync_names(&[DEVICE_FILE])
    }

    /// Checks that the device on `medium` is this one.
    ///
    /// # Errors
    /// `Invalid` for another one or none.
    pub fn check(&self, medium: &dyn Medium) -> Result<()> {
        let wrong = |got: String| {
            Err(Error::invalid("device of the log")
                .expected(format_args!("device {:032x} of store {}", self.device, self.store))
                .got(got))
        };
        match Self::find(medium) {
            Ok(Some(found)) if found == *self => Ok(()),
            Ok(Some(Self { store, device })) if store != self.store => {
                wrong(format!("device {device:032x} of another store, {store}"))
            }
            Ok(Some(Self { device, .. })) => wrong(format!("device {device:032x} of this store")),
            Ok(None) => wrong("a directory without a log".to_owned()),
            Err(error) if error.kind() == ErrorKind::Corrupt => wrong(error.to_string()),
            Err(error) => Err(error),
        }
    }
}

/// Whether the segment `name` is certainly of a lane that was begun and never used.
fn is_unused(medium: &dyn Medium, name: &str) -> bool {
    let (mut records, mut is_whole) = (0, false);
    let seen = inspect(medium, name, &mut |entry| {
        match entry {
            LogEntry::Header(_) => {}
            // The first record of a lane. A store that was opened again has later ones.
            LogEntry::Begin { begin, .. } if begin.sequence == 0 => {}
            LogEntry::End { unreadable, .. } => is_whole = unreadable.is_none(),
            _ => records += 1,
        }
        Ok(())
    });
    seen.is_ok() && records == 0 && is_whole
}

#[cfg(test)]
mod tests {
    use media::MemoryMedium;

    use super::*;

    const HEADER: DeviceHeader = DeviceHeader { store: StoreId(7), device: 9 };

    #[test]
    fn a_device_is_recognised_and_others_are_refused_by_name() {
        let medium = MemoryMedium::new();
        assert_eq!(DeviceHeader::find(&medium).unwrap(), None);
        HEADER.install(&medium).unwrap();
        assert_eq!(DeviceHeader::find(&medium).unwrap(), Some(HEADER));
        HEADER.check(&medium).unwrap();
        let other = DeviceHeader { store: StoreId(8), ..HEADER };
        let error = other.check(&medium).unwrap_err();
        assert!(error.to_string().contains("another store"), "{error}");
        let error = HEADER.check(&MemoryMedium::new()).unwrap_err();
        assert!(error.to_string().contains("without a log"), "{error}");
        // A device with a log is not taken for another store; one that was given up is.
        medium.create("log-1-0000000001", Access::Bytes, 4096).unwrap();
        let error = other.install(&medium).unwrap_err();
        assert!(error.to_string().contains("log-1-0000000001"), "{error}");
        medium.remove("log-1-0000000001").unwrap();
        other.install(&medium).unwrap();
        other.check(&medium).unwrap();
    }

    /// The log of a closed store has no batch once all of them are in tables. Its device is not taken, by
    /// another store or by a copy of the same one; only a log that was never used is.
    #[test]
    fn a_log_without_batches_is_not_taken() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        HEADER.install(&*medium).unwrap();
        let open = || {
            let account = base::Account::unlimited("log");
            let segment_bytes = crate::SEGMENT_BYTES_MIN;
            let options = crate::Options { segment_bytes, ..crate::Options::new(HEADER.store) };
            let opened =
                crate::Log::open(Arc::clone(&medium), options, &account, &|_| None, &mut |_, _| {
                    Ok(())
                });
            drop(opened.unwrap());
        };
        let other = DeviceHeader { store: StoreId(8), ..HEADER };
        let again = DeviceHeader { device: 10, ..HEADER };
        open();
        assert!(other.install(&*medium).is_err());
        again.install(&*medium).unwrap();
        assert_eq!(medium.list().unwrap().len(), 1, "only the header is left");
        open();
        open();
        for taker in [other, again] {
            let error = taker.install(&*medium).unwrap_err();
            assert!(error.to_string().contains("log-0-"), "{error}");
        }
        assert_eq!(DeviceHeader::find(&*medium).unwrap(), Some(again));
        // A directory of a store, which has no header.
        medium.remove(DEVICE_FILE).unwrap();
        assert!(HEADER.install(&*medium).is_err());
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        let page = HEADER.encode();
        assert_eq!(page.len(), PAGE_BYTES);
        for at in 0..page.len() {
            let mut damaged = page.clone();
            damaged[at] ^= 1;
            assert_eq!(DeviceHeader::decode(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert!(DeviceHeader::decode(&page[..100]).is_err());
    }
}

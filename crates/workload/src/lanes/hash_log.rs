//! The stand-in for Redis in the same process: a hash map of all values in DRAM, with a log of its puts.

use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasherDefault;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use base::{Error, Result, crc32c};

/// A fixed hash function, so that the map takes the same time in each run.
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

/// One lock over both, as the one thread of Redis that executes commands.
pub(super) struct HashLog(Mutex<Inner>);

struct Inner {
    values: HashMap<Vec<u8>, Vec<u8>, Hasher>,
    log: File,
    record: Vec<u8>,
}

impl HashLog {
    pub(super) fn create(log: &Path) -> Result<Self> {
        let log = File::create(log).map_err(|error| Error::io("create", log.display(), error))?;
        let (values, record) = (HashMap::default(), Vec::new());
        Ok(Self(Mutex::new(Inner { values, log, record })))
    }

    /// Each put is one `write`, and one `fdatasync` if it is synced: `appendfsync always`.
    pub(super) fn put(&self, key: &[u8], value: &[u8], is_synced: bool) -> Result<()> {
        let mut inner = self.0.lock().map_err(|_| Error::retry("lock of the hash map"))?;
        let Inner { values, log, record } = &mut *inner;
        record.clear();
        record.extend((value.len() as u32).to_le_bytes());
        record.extend(key);
        record.extend(value);
        record.extend(crc32c(record).to_le_bytes());
        let written = log.write_all(record).and_then(|()| match is_synced {
            true => log.sync_data(),
            false => Ok(()),
        });
        written.map_err(|error| Error::io("write", "the log of the hash map", error))?;
        match values.get_mut(key) {
            Some(old) => {
                old.clear();
                old.extend(value);
            }
            None => {
                values.insert(key.to_vec(), value.to_vec());
            }
        }
        Ok(())
    }

    /// Calls `see` with the value of `key`.
    pub(super) fn get(&self, key: &[u8], see: impl FnOnce(&[u8])) -> Result<bool> {
        let inner = self.0.lock().map_err(|_| Error::retry("lock of the hash map"))?;
        let found = inner.values.get(key);
        Ok(found.map(|value| see(value)).is_some())
    }

    /// Bytes of memory an entry: the slots of the map with one control byte each, keys and values. The
    /// allocator's own bytes are left out.
    pub(super) fn bytes_per_entry(&self) -> Result<f64> {
        let inner = self.0.lock().map_err(|_| Error::retry("lock of the hash map"))?;
        let slot = size_of::<(Vec<u8>, Vec<u8>)>() + 1;
        let heap = |(key, value): (&Vec<u8>, &Vec<u8>)| key.capacity() + value.capacity();
        let heap: usize = inner.values.iter().map(heap).sum();
        // At most 7 of 8 slots are used.
        let slots = inner.values.capacity() * 8 / 7;
        Ok((slots * slot + heap) as f64 / inner.values.len().max(1) as f64)
    }
}

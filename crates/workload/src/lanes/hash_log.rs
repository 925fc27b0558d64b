//! The stand-in for Redis in the same process: a hash map of all values in DRAM, with a log of its puts.

use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasherDefault;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use base::{Error, Result, crc32c};

/// A fixed hash function, so that the map takes the same time in each run.
type Hasher = BuildHasherDefault<std::hash::DefaultHasher>;

/// One lock over both, as the one thread of Redis that executes commands.
#[derive(Debug)]
pub struct HashLog(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    values: HashMap<Vec<u8>, Vec<u8>, Hasher>,
    log: File,
    record: Vec<u8>,
}

impl HashLog {
    /// An empty map with a new log at `log`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(log: &Path) -> Result<Self> {
        let log = File::create(log).map_err(|error| Error::io("create", log.display(), error))?;
        let (values, record) = (HashMap::default(), Vec::new());
        Ok(Self(Mutex::new(Inner { values, log, record })))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        self.0.lock().map_err(|_| Error::retry("lock of the hash map"))
    }

    /// Puts an entry: one `write` to the log, and one `fdatasync` if it is synced (`appendfsync always`).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn put(&self, key: &[u8], value: &[u8], is_synced: bool) -> Result<()> {
        let mut inner = self.lock()?;
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

    /// Calls `see` with the value of `key`. Returns whether there is one.
    ///
    /// # Errors
    /// `Retry` after a thread panicked within an operation.
    pub fn get(&self, key: &[u8], see: impl FnOnce(&[u8])) -> Result<bool> {
        let inner = self.lock()?;
        let found = inner.values.get(key);
        Ok(found.map(|value| see(value)).is_some())
    }

    /// As [`HashLog::bytes`], for each entry.
    pub(super) fn bytes_per_entry(&self) -> Result<f64> {
        let entries = self.lock()?.values.len().max(1);
        Ok(self.bytes()? as f64 / entries as f64)
    }

    /// Bytes of memory: the slots of the map with one control byte each, keys and values. The allocator's own
    /// bytes are left out.
    ///
    /// # Errors
    /// As [`HashLog::get`].
    pub fn bytes(&self) -> Result<u64> {
        let inner = self.lock()?;
        let slot = size_of::<(Vec<u8>, Vec<u8>)>() + 1;
        let heap = |(key, value): (&Vec<u8>, &Vec<u8>)| key.capacity() + value.capacity();
        let heap: usize = inner.values.iter().map(heap).sum();
        // At most 7 of 8 slots are used.
        let slots = inner.values.capacity() * 8 / 7;
        Ok((slots * slot + heap) as u64)
    }
}

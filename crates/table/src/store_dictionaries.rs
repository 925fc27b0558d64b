//! The compression dictionaries of a store: each is read once and shared by all readers and writers, because
//! every block that was compressed with one asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, DictionaryId, Error, Reclaim, Result, StoreId, invariant};
use media::{Medium, Purpose};
use parking_lot::Mutex;

use crate::{Dictionaries, Dictionary};

/// Finds dictionaries by id, in memory or on the device.
///
/// `loaded` is held while a dictionary is read, so that others who need it wait instead of reading it too.
#[derive(Debug)]
pub struct StoreDictionaries {
    medium: Arc<dyn Medium>,
    store: StoreId,
    account: Account,
    loaded: Mutex<BTreeMap<DictionaryId, Arc<Dictionary>>>,
}

impl StoreDictionaries {
    /// The dictionaries of `store`, none of them loaded. Their memory is charged to `account`.
    pub fn new(medium: Arc<dyn Medium>, store: StoreId, account: Account) -> Self {
        Self { medium, store, account, loaded: Mutex::default() }
    }

    /// The account that is charged for dictionaries.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Writes a new dictionary's file and makes it durable (I3); the manifest may name it then.
    ///
    /// # Errors
    /// `Retry` if memory is short, or the device's error. No file is left then.
    pub fn add(&self, id: DictionaryId, bytes: &[u8]) -> Result<Arc<Dictionary>> {
        let dictionary = Arc::new(Dictionary::new(id, bytes, &self.account)?);
        let name = Dictionary::file_name(id);
        let written = dictionary
            .write(&*self.medium, self.store, Purpose::Flush)
            .and_then(|()| self.medium.sync_names(&[&name]));
        if let Err(error) = written {
            // No manifest names the file. If it cannot be removed, the next open removes it.
            let _ = self.medium.remove(&name);
            return Err(error);
        }
        let before = self.loaded.lock().insert(id, Arc::clone(&dictionary));
        invariant!(before.is_none(), "a dictionary id is used once");
        Ok(dictionary)
    }

    /// Unloads the dictionaries that the manifest no longer names. A reader that still uses a page of a
    /// dropped keyspace loads its dictionary again: the file stays until the next open.
    pub fn keep(&self, is_named: impl Fn(DictionaryId) -> bool) {
        self.loaded.lock().retain(|id, _| is_named(*id));
    }

    /// Removes a dictionary that the manifest does not name.
    pub fn withdraw(&self, id: DictionaryId) {
        self.loaded.lock().remove(&id);
        // If it cannot be removed, the next open removes it.
        let _ = self.medium.remove(&Dictionary::file_name(id));
    }
}

impl Reclaim for StoreDictionaries {
    /// Unloads the dictionaries that nobody uses at the moment; they are read again when needed.
    fn reclaim(&self, _bytes: u64) -> u64 {
        // A thread that loads a dictionary charges it with the lock held, and may be this thread.
        let Some(mut loaded) = self.loaded.try_lock() else { return 0 };
        let before = self.account.used();
        loaded.retain(|_, dictionary| Arc::strong_count(dictionary) > 1);
        before.saturating_sub(self.account.used())
    }
}

impl StoreDictionaries {
    /// A dictionary that tables name and that is missing is damage, not a caller's mistake.
    fn lost(&self, id: DictionaryId, error: Error) -> Error {
        let name = Dictionary::file_name(id);
        match self.medium.list() {
            Ok(files) if !files.iter().any(|file| file.name == name) => {
                Error::corrupt("dictionary").at(name).expected("its file").got("none")
            }
            _ => error,
        }
    }
}

impl Dictionaries for StoreDictionaries {
    fn get(&self, id: DictionaryId) -> Result<Arc<Dictionary>> {
        let mut loaded = self.loaded.lock();
        if let Some(dictionary) = loaded.get(&id) {
            return Ok(Arc::clone(dictionary));
        }
        let read = Dictionary::read(&*self.medium, self.store, id, &self.account);
        let dictionary = Arc::new(read.map_err(|error| self.lost(id, error))?);
        loaded.insert(id, Arc::clone(&dictionary));
        Ok(dictionary)
    }
}

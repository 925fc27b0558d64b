//! The dictionaries of a store: read once, digested once, shared by every reader and writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, DictionaryId, Error, Reclaim, Result, StoreId};
use media::{Medium, Purpose};
use parking_lot::Mutex;
use table::{Dictionaries, Dictionary};

/// Finds dictionaries by id: those in memory, then those on the device.
///
/// `loaded` is held while one is read: whoever else needs it then waits instead of reading it too.
#[derive(Debug)]
pub struct StoreDictionaries {
    medium: Arc<dyn Medium>,
    store: StoreId,
    account: Account,
    loaded: Mutex<BTreeMap<DictionaryId, Arc<Dictionary>>>,
}

impl StoreDictionaries {
    pub fn new(medium: Arc<dyn Medium>, store: StoreId, account: Account) -> Self {
        Self { medium, store, account, loaded: Mutex::default() }
    }

    /// What dictionaries charge.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Writes a new dictionary's file and makes it durable (I3), for the manifest to name.
    pub fn add(&self, id: DictionaryId, bytes: &[u8]) -> Result<Arc<Dictionary>> {
        let dictionary = Arc::new(Dictionary::new(id, bytes, &self.account)?);
        let name = Dictionary::file_name(id);
        let written = dictionary
            .write(&*self.medium, self.store, Purpose::Flush)
            .and_then(|()| self.medium.sync_names(&[&name]));
        if let Err(error) = written {
            // Nobody names the file; what stays behind goes at the next open.
            let _ = self.medium.remove(&name);
            return Err(error);
        }
        self.loaded.lock().insert(id, Arc::clone(&dictionary));
        Ok(dictionary)
    }

    /// Forgets the dictionaries that the manifest names no more. Whoever still reads a page of a
    /// dropped keyspace reads its dictionary again: the file stays until the next open.
    pub fn keep(&self, is_named: impl Fn(DictionaryId) -> bool) {
        self.loaded.lock().retain(|id, _| is_named(*id));
    }

    /// Takes back a dictionary that the manifest does not name.
    pub fn withdraw(&self, id: DictionaryId) {
        self.loaded.lock().remove(&id);
        // What stays behind goes at the next open.
        let _ = self.medium.remove(&Dictionary::file_name(id));
    }
}

impl Reclaim for StoreDictionaries {
    /// Forgets those that nobody uses at the moment: they are read again when a page needs them.
    fn reclaim(&self, _bytes: u64) -> u64 {
        // Whoever reads a dictionary charges it with the lock held: it may be this thread.
        let Some(mut loaded) = self.loaded.try_lock() else { return 0 };
        let before = self.account.used();
        loaded.retain(|_, dictionary| Arc::strong_count(dictionary) > 1);
        before.saturating_sub(self.account.used())
    }
}

impl StoreDictionaries {
    /// A dictionary that tables name and that is not there is damage, not a caller's mistake.
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

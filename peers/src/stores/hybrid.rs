//! Plain hybrid caches: objects of one page in DRAM, over a file. A page that misses in both is read from the
//! backing file and inserted. No other part of a store is involved.

mod backing;
pub(super) mod foyer;
pub(super) mod terrace;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use base::{Error, Result};
use media::Buf;
use workload::{Counters, Direction, Hits, Keys, ScanVisitor, Store};

use super::Setup;
use backing::Backing;

/// Size of the file below DRAM per byte of the backing file: room for the hottest objects.
const BELOW_PART: f64 = 0.3;

/// The tier that answered a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Dram,
    Below,
    Backing,
}

/// A cache of one-page objects with numbers as keys.
trait PageObjects: Send + Sync {
    /// Passes the object to `visit`. On a miss, `read` returns its page, which is inserted.
    fn get(
        &self,
        number: u32,
        read: &dyn Fn() -> Result<Buf>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Found>;
}

/// A cache over its backing file, as a store of the driver.
struct Hybrid<C> {
    cache: C,
    backing: Backing,
    keys: Keys,
    /// Numbers of gets by [`Found`].
    found: [AtomicU64; 3],
}

impl<C: PageObjects> Hybrid<C> {
    fn new(cache: C, backing: Backing) -> Result<Self> {
        Ok(Self { cache, backing, keys: Keys::new(16)?, found: Default::default() })
    }

    fn number(&self, key: &[u8]) -> Result<u32> {
        let number = self.keys.number(key).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| Error::invalid("key").expected("a number").got(format!("{key:x?}")))
    }
}

/// The size of the file below DRAM, bytes.
fn below_bytes(setup: &Setup<'_>) -> u64 {
    let pages = setup.data_bytes as f64 * BELOW_PART / 4096.0;
    (pages as u64 * 4096).max(64 << 20)
}

impl<C: PageObjects> Store for Hybrid<C> {
    /// Called only before the first get, when the cache is empty, so it need not be invalidated.
    fn put(&self, key: &[u8], value: &[u8], _sync: bool) -> Result<()> {
        self.backing.write(self.number(key)?, value)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let number = self.number(key)?;
        let found = self.cache.get(number, &|| self.backing.read(number), visit)?;
        if let Some(count) = self.found.get(found as usize) {
            count.fetch_add(1, Relaxed);
        }
        Ok(true)
    }

    fn delete(&self, _key: &[u8], _sync: bool) -> Result<()> {
        Err(Error::invalid("delete").expected("a store").got("a cache of a file"))
    }

    fn scan(
        &self,
        _from: Option<&[u8]>,
        _direction: Direction,
        _limit: usize,
        _visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        Err(Error::invalid("scan").expected("an ordered store").got("a cache of a file"))
    }

    fn flush(&self) -> Result<()> {
        self.backing.sync()
    }

    fn settle(&self) -> Result<()> {
        self.backing.sync()
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        let [page, scm, flash] = self.found.each_ref().map(|count| count.load(Relaxed));
        Counters { hits: Hits { row: 0, page, scm, flash }, ..Counters::default() }
    }
}

//! A hash map of all values in memory, with a log of its puts: what Redis does in one process with an
//! append-only file, without its protocol. It has no order, and its log is never shortened.

use base::{Error, Result};
use workload::lanes::HashLog;
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{Opened, Setup, option};

struct Map(HashLog);

pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    option(&mut options, "log", "one write a put, one fdatasync a synced put");
    let store = Box::new(Map(HashLog::create(&setup.dir.join("log"))?));
    Ok(Opened { store, options })
}

fn refused(what: &'static str) -> Error {
    Error::invalid(what).expected("a store with it").got("a hash map with a log")
}

impl Store for Map {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.0.put(key, value, sync)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get(key, visit)
    }

    fn delete(&self, _key: &[u8], _sync: bool) -> Result<()> {
        Err(refused("delete"))
    }

    fn scan(
        &self,
        _from: Option<&[u8]>,
        _direction: Direction,
        _limit: usize,
        _visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        Err(refused("scan"))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn index_bytes(&self) -> Option<u64> {
        self.0.bytes().ok()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

//! The search for one key: memtables newest first, then tables newest first, until a version.

use std::ops::Deref;
use std::sync::Arc;

use base::{EntryKind, Error, Result, Seqno, Trailer, key_hash};
use bytes::Bytes;
use table::{Pages, PointRead, Step, Table};

use super::ReadOp;
use crate::ordered::View;

/// Values up to this size are copied out of a memtable, bytes: a copy costs less than keeping the
/// memtable alive for the caller.
const COPY_BYTES_MAX: usize = 512;

/// Finds the newest version of a key that is visible at a sequence number.
///
/// `K` holds the key, `V` the view; a blocking get borrows both, a queued one owns them.
pub(crate) struct Lookup<K, V> {
    key: K,
    view: V,
    at: Trailer,
    hash: u64,
    memtables_searched: bool,
    /// The next run to search.
    run: usize,
    point: Option<PointRead<K>>,
}

impl<K: AsRef<[u8]> + Clone, V: Deref<Target = Arc<View>>> Lookup<K, V> {
    pub(crate) fn new(key: K, view: V, at: Seqno) -> Self {
        let at = Trailer::seek(at);
        Self { key, view, at, hash: 0, memtables_searched: false, run: 0, point: None }
    }

    fn search_memtables(&self) -> Option<(Trailer, Bytes)> {
        let key = self.key.as_ref();
        for memtable in self.view.memtables() {
            let Some((trailer, value)) = memtable.map().get(key, self.at) else { continue };
            if value.len() <= COPY_BYTES_MAX {
                return Some((trailer, Bytes::copy_from_slice(value)));
            }
            return memtable
                .map()
                .get_shared(key, self.at)
                .map(|(trailer, value)| (trailer, Bytes::from_owner(value)));
        }
        None
    }

    fn next_table(&mut self) -> Result<Option<PointRead<K>>> {
        let key = self.key.as_ref();
        while let Some(run) = self.view.version.runs().get(self.run) {
            self.run += 1;
            if let Some(handle) = run.find(key) {
                let table = Arc::clone(handle.table()?);
                return Ok(Some(PointRead::new(table, self.key.clone(), self.hash, self.at)));
            }
        }
        Ok(None)
    }
}

impl<K: AsRef<[u8]> + Clone, V: Deref<Target = Arc<View>>> ReadOp for Lookup<K, V> {
    /// The value, if the key has one.
    type Output = Option<Bytes>;

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<Option<Bytes>>> {
        if !self.memtables_searched {
            self.memtables_searched = true;
            if let Some((trailer, value)) = self.search_memtables() {
                return resolve(trailer, value).map(Step::Ready);
            }
            self.hash = key_hash(self.key.as_ref());
        }
        loop {
            if self.point.is_none() {
                self.point = self.next_table()?;
            }
            let Some(point) = &mut self.point else { return Ok(Step::Ready(None)) };
            match point.step(supplied.take())? {
                Step::Need(span) => return Ok(Step::Need(span)),
                Step::Ready(Some(found)) => {
                    return resolve(found.trailer, found.value).map(Step::Ready);
                }
                Step::Ready(None) => self.point = None,
            }
        }
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.point.as_ref().map(PointRead::table)
    }
}

/// What the newest visible version says of the key.
pub(crate) fn resolve(trailer: Trailer, value: Bytes) -> Result<Option<Bytes>> {
    match trailer.kind()? {
        EntryKind::Put => Ok(Some(value)),
        EntryKind::Delete => Ok(None),
        other => Err(Error::invalid("entry kind")
            .expected("a put or a delete; a newer TerraceDB may have written this")
            .got(format_args!("{other:?}"))),
    }
}

//! Refreshes rows of the row cache during a flush.
//!
//! A write makes the row of its key stale. While the new version is in a memtable, reads find it there; once
//! it is only in a table, a read would have to go to the device. So a flush inserts the rows of keys that
//! were read before they were written, or from the memtable since, and of no other keys. The header of
//! `cache::RowCache` explains why such rows are never stale (I1); [`RowRefresh::refresh`] meets the
//! conditions stated there.
//!
//! Called by flushes on a background thread. Cost: one lookup in the row cache's index per entry while any
//! row waits, else one load.

use std::sync::Arc;

use arena::PublishRing;
use base::{EntryKind, Trailer, expiry, key_hash};
use cache::rows::{Row, RowFrom};
use cache::{RowCache, RowOwner};

use crate::Tree;
use crate::row_compression::RowCompression;

/// Refreshes the rows of flushed keys.
#[derive(Debug)]
pub struct RowRefresh {
    cache: Arc<RowCache>,
    compression: Arc<RowCompression>,
}

impl RowRefresh {
    /// Refreshes rows of `cache`. Values are compressed by the rules of `compression`.
    pub fn new(cache: Arc<RowCache>, compression: Arc<RowCompression>) -> Self {
        Self { cache, compression }
    }

    /// The hash of the row of `key`, whose bucket is prefetched; `None` if no row at all waits for a flush.
    #[inline]
    pub fn prepare(&self, owner: &RowOwner, key: &[u8]) -> Option<u64> {
        self.cache.awaits_any().then(|| {
            let hash = owner.hash(key_hash(key));
            self.cache.prefetch(hash);
            hash
        })
    }

    /// Inserts the row of `key` if a row with this hash waits and `trailer` is the key's newest version.
    /// `trailer` and `stored` are an entry of a sealed memtable of `tree`.
    pub fn refresh(
        &self,
        tree: &Tree,
        ring: &PublishRing,
        hash: u64,
        key: &[u8],
        (trailer, stored): (Trailer, &[u8]),
    ) {
        let Some(awaited) = self.cache.awaited(hash) else { return };
        let (view, at) = tree.read_view(|| ring.visible());
        let seqno = trailer.seqno();
        if seqno > at || view.holds_newer(key, seqno) {
            return;
        }
        let live = match trailer.kind() {
            Ok(EntryKind::Put) => Some((0, stored)),
            Ok(EntryKind::PutExpiring) => expiry::split(stored).ok(),
            _ => None,
        };
        let Some((expiry, value)) = live else { return self.cache.give_up(hash) };
        let form = self.compression.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        // The key's page is being written now, and is in no cache.
        let from = RowFrom::Device;
        let row = Row { key, value, packed, seqno, as_of: at, expiry, from };
        // The cache counts refusals. Nobody waits for a flushed key without a row.
        if self.cache.renew(tree.rows(), hash, awaited, row).is_err() {
            self.cache.give_up(hash);
        }
    }
}

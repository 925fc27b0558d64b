//! Rows of keys that were written, put in as what was written is flushed.
//!
//! A write takes the row of its key. As long as the version lies in a memtable reads find it there; in a
//! table it would be read from the device. So a flush leaves rows of keys that reads asked for before they
//! were written or since, and of no others. `cache::RowCache` says what keeps such rows from being
//! stale; what it asks of the caller is done in [`RowRefresh::renew`].

use std::sync::Arc;

use arena::PublishRing;
use base::{EntryKind, Trailer, expiry, key_hash};
use cache::rows::{Row, RowFrom};
use cache::{RowCache, RowOwner};

use crate::Tree;
use crate::row_compression::RowCompression;

/// Renews rows for flushes.
#[derive(Debug)]
pub struct RowRefresh {
    cache: Arc<RowCache>,
    compression: Arc<RowCompression>,
}

impl RowRefresh {
    pub fn new(cache: Arc<RowCache>, compression: Arc<RowCompression>) -> Self {
        Self { cache, compression }
    }

    /// The hash of the row of `key`, whose bucket is asked for; none where no row waits at all.
    #[inline]
    pub fn prepare(&self, owner: &RowOwner, key: &[u8]) -> Option<u64> {
        self.cache.awaits_any().then(|| {
            let hash = owner.hash(key_hash(key));
            self.cache.prefetch(hash);
            hash
        })
    }

    /// Has the row of `key`, where one with this hash is awaited, say what this version of a sealed memtable
    /// of `tree` says, where that is the newest of the key.
    pub fn renew(
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
        let said = match trailer.kind() {
            Ok(EntryKind::Put) => Some((0, stored)),
            Ok(EntryKind::PutExpiring) => expiry::split(stored).ok(),
            _ => None,
        };
        let Some((expiry, value)) = said else { return self.cache.give_up(hash) };
        let form = self.compression.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        // Its page is written now, and in no cache.
        let from = RowFrom::Device;
        let row = Row { key, value, packed, seqno, as_of: at, expiry, from };
        // Refusals are counted there; nobody waits for what leaves the memtable without a row.
        if self.cache.renew(tree.rows(), hash, awaited, row).is_err() {
            self.cache.give_up(hash);
        }
    }
}

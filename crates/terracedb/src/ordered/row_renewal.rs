//! Rows of keys that were written, renewed as what was written is flushed.
//!
//! A write takes the row of its key. As long as the version lies in a memtable reads find it there; in a
//! table it would be read from the device. So a flush puts a row of it in the place of the one that was
//! taken: of keys that reads had asked for, and of no others. `cache::RowCache` says what keeps such rows from
//! being stale; what it asks of the caller is done in [`RowRenewal::renew`].

use std::sync::Arc;

use arena::PublishRing;
use base::{EntryKind, Trailer, expiry, key_hash};
use cache::rows::{Row, RowFrom};
use cache::{RowCache, RowOwner};

use super::Tree;
use crate::packing::Packing;

/// Renews rows for flushes.
#[derive(Debug)]
pub(crate) struct RowRenewal {
    cache: Arc<RowCache>,
    packing: Arc<Packing>,
}

impl RowRenewal {
    pub(crate) fn new(cache: Arc<RowCache>, packing: Arc<Packing>) -> Self {
        Self { cache, packing }
    }

    /// The hash of the row of `key`, whose bucket is asked for; none where no row waits at all.
    #[inline]
    pub(crate) fn prepare(&self, owner: &RowOwner, key: &[u8]) -> Option<u64> {
        self.cache.awaits_any().then(|| {
            let hash = owner.hash(key_hash(key));
            self.cache.prefetch(hash);
            hash
        })
    }

    /// Has the row of `key`, where one with this hash waits, say what this version of a sealed memtable
    /// of `tree` says, where that is the newest of the key.
    pub(crate) fn renew(
        &self,
        tree: &Tree,
        ring: &PublishRing,
        hash: u64,
        key: &[u8],
        (trailer, stored): (Trailer, &[u8]),
    ) {
        let Some(bucket) = self.cache.awaited(hash) else { return };
        let (expiry, value) = match trailer.kind() {
            Ok(EntryKind::Put) => (0, stored),
            Ok(EntryKind::PutExpiring) => match expiry::split(stored) {
                Ok(split) => split,
                Err(_) => return,
            },
            _ => return,
        };
        let (view, at) = tree.moment(ring);
        let seqno = trailer.seqno();
        if seqno > at || view.holds_newer(key, seqno) {
            return;
        }
        let form = self.packing.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        let row = Row { key, value, packed, seqno, as_of: at, expiry, from: RowFrom::Dram };
        // Refusals are counted there.
        let _ = self.cache.renew(tree.rows(), hash, bucket, row);
    }
}

//! The sequence numbers of the live snapshots.

use std::collections::BTreeMap;

use arena::PublishRing;
use base::{Seqno, invariant};
use compact::Horizon;
use parking_lot::Mutex;

/// The sequence numbers at which snapshots read, and how many snapshots read at each.
#[derive(Debug, Default)]
pub struct SnapshotList(Mutex<BTreeMap<Seqno, usize>>);

impl SnapshotList {
    /// Registers a snapshot at the newest visible sequence number, and returns it.
    ///
    /// The number is read under the lock that [`SnapshotList::horizon`] takes: a snapshot made after a
    /// horizon was taken is never older than it.
    pub fn acquire(&self, ring: &PublishRing) -> Seqno {
        let mut live = self.0.lock();
        let seqno = ring.visible();
        invariant!(
            live.last_key_value().is_none_or(|(newest, _)| *newest <= seqno),
            "the visible sequence number does not go back (I2)"
        );
        *live.entry(seqno).or_insert(0) += 1;
        seqno
    }

    /// Registers another snapshot at `seqno`, at which a snapshot is registered.
    pub fn share(&self, seqno: Seqno) {
        let mut live = self.0.lock();
        let count = live.get_mut(&seqno);
        invariant!(count.is_some(), "a snapshot that is copied was registered");
        if let Some(count) = count {
            *count += 1;
        }
    }

    /// Removes one registration at `seqno`.
    pub fn release(&self, seqno: Seqno) {
        let mut live = self.0.lock();
        let count = live.get_mut(&seqno);
        invariant!(count.is_some(), "a snapshot that is released was registered");
        if let Some(count) = count {
            *count -= 1;
            if *count == 0 {
                live.remove(&seqno);
            }
        }
    }

    /// The seqnos of the live snapshots, ascending, and last the newest visible one.
    pub fn horizon(&self, ring: &PublishRing) -> Horizon {
        let live = self.0.lock();
        Horizon::new(live.keys().copied().chain([ring.visible()]).collect())
    }

    /// The number of live snapshots.
    pub fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(numbers: &[u64]) -> Horizon {
        Horizon::new(numbers.iter().map(|number| Seqno::new(*number)).collect())
    }

    #[test]
    fn a_horizon_has_every_live_snapshot_and_the_newest_visible_seqno() {
        let ring = PublishRing::new(Seqno::new(7));
        let list = SnapshotList::default();
        let (a, b) = (list.acquire(&ring), list.acquire(&ring));
        ring.publish(Seqno::new(8), 2);
        assert_eq!(list.horizon(&ring), horizon(&[7, 9]));
        list.release(a);
        assert_eq!(list.count(), 1);
        assert_eq!(list.horizon(&ring), horizon(&[7, 9]));
        list.share(b);
        list.release(b);
        assert_eq!(list.horizon(&ring), horizon(&[7, 9]), "a copy holds it");
        list.release(b);
        assert_eq!(list.horizon(&ring), horizon(&[9]));
    }
}

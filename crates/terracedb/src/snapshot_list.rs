//! The live snapshots' sequence numbers, and which versions a flush may drop because of them.

use std::collections::BTreeMap;

use arena::PublishRing;
use base::Seqno;
use parking_lot::Mutex;

/// The sequence numbers at which snapshots read, with how many read at each.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList(Mutex<BTreeMap<Seqno, usize>>);

impl SnapshotList {
    /// Registers a snapshot at the newest visible sequence number.
    ///
    /// The number is read under the lock that [`SnapshotList::horizon`] takes: a snapshot made
    /// after a horizon was taken is never older than it.
    pub(crate) fn acquire(&self, ring: &PublishRing) -> Seqno {
        let mut live = self.0.lock();
        let seqno = ring.visible();
        *live.entry(seqno).or_insert(0) += 1;
        seqno
    }

    /// Takes back one registration at `seqno`.
    pub(crate) fn release(&self, seqno: Seqno) {
        let mut live = self.0.lock();
        if let Some(count) = live.get_mut(&seqno) {
            *count -= 1;
            if *count == 0 {
                live.remove(&seqno);
            }
        }
    }

    /// The live snapshots, ascending, and last the newest visible sequence number.
    pub(crate) fn horizon(&self, ring: &PublishRing) -> Horizon {
        let live = self.0.lock();
        let mut seqnos: Vec<_> = live.keys().copied().collect();
        let visible = ring.visible();
        if seqnos.last() != Some(&visible) {
            seqnos.push(visible);
        }
        Horizon(seqnos)
    }

    /// How many snapshots are live.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().values().sum()
    }
}

/// The sequence numbers at which anyone can still read, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Horizon(Vec<Seqno>);

impl Horizon {
    /// Whether a version at `older` is needed although the same key has one at `newer`, the next
    /// newer one: some reader sees the older and not the newer.
    pub(crate) fn needs(&self, older: Seqno, newer: Seqno) -> bool {
        let first = self.0.partition_point(|reader| *reader < older);
        self.0.get(first).is_some_and(|reader| *reader < newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqnos(numbers: &[u64]) -> Vec<Seqno> {
        numbers.iter().map(|number| Seqno::new(*number)).collect()
    }

    #[test]
    fn a_version_is_needed_where_a_reader_stands_between_it_and_the_next() {
        let horizon = Horizon(seqnos(&[10, 20, 30]));
        let needs = |older, newer| horizon.needs(Seqno::new(older), Seqno::new(newer));
        assert!(needs(5, 11));
        assert!(!needs(5, 10));
        assert!(needs(10, 11));
        assert!(!needs(11, 20));
        assert!(needs(11, 21));
        assert!(!needs(31, 32));
    }

    #[test]
    fn the_horizon_holds_every_live_snapshot_and_the_present() {
        let ring = PublishRing::new(Seqno::new(7));
        let list = SnapshotList::default();
        let (a, b) = (list.acquire(&ring), list.acquire(&ring));
        ring.publish(Seqno::new(8), 2);
        assert_eq!(list.horizon(&ring).0, seqnos(&[7, 9]));
        list.release(a);
        assert_eq!(list.len(), 1);
        assert_eq!(list.horizon(&ring).0, seqnos(&[7, 9]));
        list.release(b);
        assert_eq!(list.horizon(&ring).0, seqnos(&[9]));
    }
}

//! Pins: the keyspaces that keep a segment alive, each up to a seqno (I7).

use base::{KeyspaceId, Seqno};

/// For each keyspace with records in a segment, the seqno after its last record.
///
/// A record of several keyspaces counts for each of them as a whole: no flush splits a batch, because
/// memtables are sealed under the log's barrier. At most `KEYSPACES_MAX` entries, ordered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins(Vec<(KeyspaceId, Seqno)>);

impl Pins {
    /// Notes a record of `keyspace` with seqnos that end before `end`. Seqnos only grow.
    pub(crate) fn pin(&mut self, keyspace: KeyspaceId, end: Seqno) {
        match self.0.binary_search_by_key(&keyspace, |(id, _)| *id) {
            Ok(at) => {
                if let Some((_, old)) = self.0.get_mut(at) {
                    *old = end.max(*old);
                }
            }
            Err(at) => self.0.insert(at, (keyspace, end)),
        }
    }

    /// Whether no record was noted.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keyspaces with a record that is not dead. `below` returns the seqno below which a keyspace's
    /// records are dead.
    pub(crate) fn alive<'a>(
        &'a self,
        below: impl Fn(KeyspaceId) -> Seqno + 'a,
    ) -> impl Iterator<Item = (KeyspaceId, Seqno)> + 'a {
        self.0.iter().copied().filter(move |(keyspace, end)| below(*keyspace) < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // I7
    fn a_keyspace_is_alive_until_flushed_past_its_last_record() {
        let mut pins = Pins::default();
        for (keyspace, end) in [(2, 5), (1, 7), (2, 9)] {
            pins.pin(KeyspaceId(keyspace), Seqno::new(end));
        }
        let alive = |below: u64| -> Vec<u32> {
            pins.alive(move |_| Seqno::new(below)).map(|(keyspace, _)| keyspace.0).collect()
        };
        assert_eq!(alive(0), [1, 2]);
        assert_eq!(alive(7), [2]);
        assert_eq!(alive(8), [2]);
        assert_eq!(alive(9), [] as [u32; 0]);
    }
}

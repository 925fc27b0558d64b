//! The pinned filters of all runs of a version, by hash.
//!
//! A lookup asks about every run of a keyspace. In a window these are hundreds, and the way to a filter
//! through its run, piece and table takes longer than the probe. So what the probes need of the runs lies
//! together, and the cache lines of several filters are requested before the first is read.
//!
//! A run with range deletes, and a filter that is not pinned, are left to the search of the run.

use std::ops::Range;
use std::sync::Arc;

use table::{PinnedFilters, PinnedProbe, head_of};

use crate::{Piece, Run};

/// Runs that are probed together. While they are, the cache lines of as many others are on their way: about
/// as many as a core waits for at a time. A lookup that finds its key in the first run requests them in vain.
const TOGETHER: usize = 8;

/// The pinned filters of a version.
#[derive(Clone, Debug)]
pub(crate) struct VersionFilters {
    /// The parts of each run, newest first.
    runs: Box<[Range<u32>]>,
    /// Those of one run in order of hashes.
    parts: Box<[Part]>,
}

/// The filters of one piece.
#[derive(Clone, Debug)]
struct Part {
    /// The hash with which the first key begins.
    first: u64,
    /// The hash with which the end begins; `u64::MAX` if there is no end.
    end: u64,
    /// `None` if its table pins none, or its run has range deletes.
    filters: Option<PinnedFilters>,
}

/// A run that filters do not rule out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexcluded {
    /// Its index; the number of runs if there is none.
    pub(crate) run: usize,
    /// Whether its filter was asked, and may have the key.
    pub(crate) is_admitted: bool,
}

impl VersionFilters {
    /// The filters of `runs`; `None` if no table pins any.
    pub(crate) fn of(runs: &[Arc<Run>]) -> Option<Self> {
        let (mut all, mut parts) = (Vec::with_capacity(runs.len()), Vec::new());
        for run in runs {
            let start = parts.len() as u32;
            let has_range_deletes = run.has_range_deletes();
            parts.extend(run.pieces().iter().map(|piece| Part::of(piece, has_range_deletes)));
            all.push(start..parts.len() as u32);
        }
        let has_filters = parts.iter().any(|part| part.filters.is_some());
        has_filters.then(|| Self { runs: all.into(), parts: parts.into() })
    }

    /// The first run at or after run `from` that may have versions of `key`, which has the
    /// [`base::key_hash`] `hash`.
    #[inline]
    pub(crate) fn next(&self, from: usize, key: &[u8], hash: u64) -> Unexcluded {
        let Some(first) = key.first_chunk().map(|head| u64::from_be_bytes(*head)) else {
            return Unexcluded { run: from, is_admitted: false };
        };
        let groups = self.runs.get(from..).unwrap_or_default().chunks(TOGETHER);
        let mut requested = groups.map(|group| {
            let mut probes = [const { None }; TOGETHER];
            for (probe, parts) in probes.iter_mut().zip(group) {
                *probe = self.probe(parts, first, hash);
                probe.iter().for_each(PinnedProbe::prefetch);
            }
            (probes, group.len())
        });
        let (mut run, mut next) = (from, requested.next());
        while let Some((probes, count)) = next {
            next = requested.next();
            for probe in probes.iter().take(count) {
                match probe {
                    Some(probe) if !probe.may_contain() => run += 1,
                    asked => return Unexcluded { run, is_admitted: asked.is_some() },
                }
            }
        }
        Unexcluded { run, is_admitted: false }
    }

    /// A probe for a key that begins with `first` in the run with these parts; `None` if its filter is not
    /// pinned, or if the key may lie in several parts or in none.
    #[inline]
    fn probe(&self, parts: &Range<u32>, first: u64, hash: u64) -> Option<PinnedProbe<'_>> {
        let parts = self.parts.get(parts.start as usize..parts.end as usize)?;
        let at = if parts.len() == 1 { 0 } else { parts.partition_point(|it| it.end < first) };
        let part = parts.get(at).filter(|part| part.first < first && first < part.end)?;
        part.filters.as_ref()?.probe(first, hash)
    }
}

impl Part {
    fn of(piece: &Arc<Piece>, has_range_deletes: bool) -> Self {
        let table = piece.table().ok().filter(|_| !has_range_deletes);
        let range = piece.range();
        Self {
            first: head_of(&range.first),
            end: range.end.as_deref().map_or(u64::MAX, head_of),
            filters: table.and_then(|table| table.pinned_filters()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::{
        Account, Codec, EntryKind, KeyRange, KeyspaceId, Rng, RunId, Seqno, StoreId, TableId,
        Trailer, key_hash,
    };
    use cache::PageCache;
    use manifest::TableEntry;
    use media::{Medium, MemoryMedium, Purpose};
    use table::{Layout, NoDictionaries, Spec, Table, Writer};

    use super::*;
    use crate::obsolete_files::ObsoleteFiles;
    use crate::{TableFile, Version};

    type Keys = BTreeSet<Vec<u8>>;

    /// A table of `keys` in a medium of its own.
    fn file(id: u64, keys: &Keys, filter_bits: u8, deletes_ranges: bool) -> Arc<TableFile> {
        let (medium, account) = (Arc::new(MemoryMedium::new()), Account::unlimited("test"));
        let medium: Arc<dyn Medium> = medium;
        let spec = Spec {
            store: StoreId(7),
            table: TableId(id),
            keyspace: KeyspaceId(0),
            codec: Codec::None,
            level: 1,
            dictionary: None,
            filter_bits,
            layout: Layout::bins(keys.len() as u64 * 30, b"", None),
            purpose: Purpose::Flush,
            leave: table::Leave::Nothing,
        };
        let mut writer = Writer::create(&medium, spec, &account).unwrap();
        let put = Trailer::new(Seqno::new(id), EntryKind::Put);
        keys.iter().for_each(|key| writer.add(key, put, b"value").unwrap());
        if deletes_ranges {
            writer.add_range_delete(b"a", b"b", &[Seqno::new(id)]).unwrap();
        }
        let summary = writer.finish().unwrap();
        let dictionaries = Arc::new(NoDictionaries);
        let table =
            Table::open(&*medium, StoreId(7), TableId(id), None, None, dictionaries, &account);
        let cache = Arc::new(PageCache::new(&account, 4 << 20).unwrap());
        let obsolete = ObsoleteFiles::new(medium, cache);
        let entry = Arc::new(TableEntry::of(&summary, RunId(id), 0));
        TableFile::new(table, entry, Vec::new(), obsolete, &account)
    }

    /// Runs of one table, of a table that merges cut, without filters and with a range delete: every run that
    /// has a key is found, in order, and nearly no other with a filter.
    #[test]
    fn the_runs_that_have_a_key_are_found_in_order() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let key = |number: u64| {
            let hash = key_hash(&number.to_le_bytes());
            [&hash.to_be_bytes()[..], &number.to_le_bytes()].concat()
        };
        let keys_of = |rng: &mut Rng| -> Keys { (0..600).map(|_| key(rng.below(6000))).collect() };
        let mut runs: Vec<(Keys, bool)> = Vec::new();
        let mut pieces = Vec::new();
        for id in 1..=40 {
            let keys = keys_of(&mut rng);
            let (filter_bits, deletes_ranges) = (if id == 1 { 0 } else { 13 }, id == 9 || id == 40);
            let file = file(id, &keys, filter_bits, deletes_ranges);
            let parts = match id % 3 {
                // A slice of the hashes was merged elsewhere.
                0 if !deletes_ranges => vec![
                    KeyRange { end: Some(vec![0x40].into()), ..file.entry().range.clone() },
                    KeyRange { first: vec![0x60].into(), ..file.entry().range.clone() },
                ],
                _ => vec![file.entry().range.clone()],
            };
            let live = |key: &Vec<u8>| parts.iter().any(|part| part.holds(key));
            runs.push((keys.iter().filter(|key| live(key)).cloned().collect(), filter_bits > 0));
            let parts = parts.iter().map(|part| (part.clone(), 0)).collect();
            pieces.extend(Piece::parts(&file, parts).into_iter().map(|it| (RunId(id), it)));
        }
        runs.reverse();
        let version = Version::from_pieces(pieces).unwrap();
        let filters = version.filters().unwrap();
        let (mut asked, mut useless, mut unasked) = (0, 0, 0);
        for number in 0..6000 {
            let (key, mut from) = (key(number), 0);
            let mut had = runs.iter().enumerate().filter(|(_, (keys, _))| keys.contains(&key));
            let mut expected = had.next().map_or(runs.len(), |(run, _)| run);
            while from < runs.len() {
                let Unexcluded { run, is_admitted } = filters.next(from, &key, key_hash(&key));
                assert!(run <= expected, "key {number}: run {expected} has it");
                useless += usize::from(is_admitted && run < expected);
                // Without filters, with range deletes (40 - 9 = 31), and cut.
                let is_left = [0, 31, 39, 40].contains(&run) || run % 3 == 1;
                unasked += usize::from(!is_admitted && !is_left);
                asked += 1;
                if run == expected {
                    expected = had.next().map_or(runs.len(), |(run, _)| run);
                }
                from = run + 1;
            }
        }
        assert!(useless < 60, "{useless} of {asked}; 27 are expected of 13 bits");
        // Keys before the first of a run, and after its last.
        assert!(unasked < asked / 50, "{unasked} of {asked}");
        let short = Unexcluded { run: 3, is_admitted: false };
        assert_eq!(filters.next(3, b"short", 1), short);
        let sorted = file(1, &keys_of(&mut rng), 0, false);
        let version = Version::from_pieces(vec![(RunId(1), Piece::whole(sorted))]).unwrap();
        assert!(version.filters().is_none());
    }
}

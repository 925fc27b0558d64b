//! The survey of hot key ranges before a merge (`WarmOutputs`).

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, PAGE_BYTES};
use base::{Codec, KeyRange, ManualClock, Reclaim, RunId, Stepper};
use cache::{PageKey, PageKind};
use compact::RunHeat;
use media::MemoryMedium;
use tree::Piece;
use tree::compaction::{SURVEY_BYTES_MAX, WarmOutputs};

use crate::scm::{Placement, Scm};
use crate::{Db, Keyspace, Resources};

/// Keys with a long common prefix, so that separators between pages are as long.
fn key(number: usize) -> Vec<u8> {
    let mut key = vec![b'k'; 40_000];
    key.extend(format!("{number:06}").into_bytes());
    key
}

/// Two runs of the same keys, all of whose pages were read, and the inputs of a merge of both.
fn warm(scm: Scm, keys: usize) -> (Db, Keyspace, Vec<(RunId, Arc<Piece>)>) {
    // No merge runs meanwhile: background tasks run only while a caller waits for them.
    let executor = Arc::new(Stepper::new(0, Arc::new(ManualClock::at(1_700_000_000_000))));
    let resources = Resources::builder().memory(64 << 20).scm(scm).executor(executor);
    let resources = resources.build().unwrap();
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).resources(&resources);
    // Pages that were written through would not be read from the device, nor come to SCM.
    let db = db.codec(Codec::Lz4).write_through(false).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for _ in 0..2 {
        (0..keys).for_each(|number| keyspace.put(key(number), [7; 3000]).unwrap());
        keyspace.flush().unwrap();
        // A page that was read once is not warm.
        let numbers = (0..keys).cycle().take(3 * keys);
        numbers.for_each(|number| assert!(keyspace.get(key(number)).unwrap().is_some()));
    }
    let version = Arc::clone(&keyspace.tree().view().version);
    let pieces = version.runs().iter();
    let pieces =
        pieces.flat_map(|run| run.pieces().iter().map(|piece| (run.id(), Arc::clone(piece))));
    let inputs = pieces.collect();
    (db, keyspace, inputs)
}

#[test]
fn a_survey_of_long_keys_stops_within_one_of_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let scm = Scm::new(directory.path().to_str().unwrap(), 64 << 20).unwrap();
    // One key per page: the keys of either run exceed the bound.
    let (db, _keyspace, inputs) = warm(scm, 2 * SURVEY_BYTES_MAX / 80_000);
    let cache = &db.store().compactor.env().cache;
    let (mut it, _) = WarmOutputs::survey(cache, &inputs, &KeyRange::all(), false).unwrap();
    let heat = it.heat(&inputs, &KeyRange::all());
    let bytes: Vec<usize> = heat.iter().map(RunHeat::key_bytes).collect();
    let (most, page) = (SURVEY_BYTES_MAX, 2 * KEY_BYTES_MAX);
    assert!(bytes[0] > most && bytes[0] <= most + page, "{bytes:?}");
    assert!(heat[0].pages > heat[0].hot.len() as u64, "{heat:?}");
    // The first run used up the bound; the second run's pages are still counted.
    assert_eq!((bytes[1], heat[1].pages), (0, heat[0].pages));
}

#[test]
fn hot_ranges_are_found_after_other_pages_evicted_them_from_dram() {
    let directory = tempfile::tempdir().unwrap();
    let scm = Scm::new(directory.path().to_str().unwrap(), 64 << 20).unwrap();
    let (db, keyspace, inputs) = warm(scm.placement(Placement::ByKind), 50);
    let cache = &db.store().compactor.env().cache;
    while cache.lower_tier().unwrap().step(cache) {}
    (0..50).for_each(|number| drop(keyspace.get(key(number)).unwrap()));
    cache.reclaim(u64::MAX);
    // Pages of another file fill the rest of the DRAM cache.
    for page in 0..8192 {
        let other = PageKey { file: 0, page };
        drop(cache.insert(other, PageKind::Meta, &[0; PAGE_BYTES]));
        drop(cache.get(other, PageKind::Meta));
    }
    for (_, piece) in &inputs {
        let footer = piece.table().unwrap().footer();
        let mut keys = (0..footer.pages).map(|page| PageKey { file: footer.digest, page });
        assert!(keys.all(|key| cache.peek(key).is_none()));
    }
    let (it, hot) = WarmOutputs::survey(cache, &inputs, &KeyRange::all(), false).unwrap();
    assert!(it.slots() > 40 && !hot.is_empty(), "{} {}", it.slots(), hot.len());
}

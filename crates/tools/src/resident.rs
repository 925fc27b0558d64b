//! The keys of resident keyspaces that damage of the log costs.
//!
//! A stored key begins with its hash, so that a legible key of a damaged record is known to be right. Keys of
//! which the log has an intact version that is as new are not lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    Account, BatchOp, Error, KeyspaceId, LOST, Result, SegmentId, Seqno, StoreId, decode_moved,
    decode_ops, is_moved,
};
use engine::check_indexes;
use manifest::ManifestState;
use media::Medium;
use wal::{Loss, Recover, segment_name};

use crate::repair::{Lost, LostRange};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ResidentLosses {
    /// The keys, each as a range, in the order of keyspaces and keys.
    pub(crate) ranges: Vec<LostRange>,
    /// Whether they are all that the damaged records cost.
    pub(crate) is_all: bool,
    /// Entries that the collector gave up, because it could not read them. Their keys are not known.
    pub(crate) given_up: u64,
}

/// Keys of damaged records, with the first seqno and the segment of the newest of them.
type Damaged = BTreeMap<(KeyspaceId, Vec<u8>), (Seqno, String)>;

/// Finds the keys that `losses` cost.
///
/// # Errors
/// The device's; of a lack of memory.
pub(crate) fn resident_losses(
    medium: &Arc<dyn Medium>,
    store: Option<StoreId>,
    state: &ManifestState,
    losses: &[Loss],
    account: &Account,
) -> Result<ResidentLosses> {
    let mut found = ResidentLosses { is_all: true, ..ResidentLosses::default() };
    if !state.keyspaces.values().any(|entry| entry.kind.is_resident()) {
        found.is_all = losses.is_empty();
        return Ok(found);
    }
    let (mut damaged, mut is_all) = (Damaged::new(), true);
    for loss in losses {
        let whole = wal::damaged_batches(&**medium, loss, &mut |segment, first, body| {
            is_all &= note(state, loss, segment, first, body, &mut damaged);
        })?;
        is_all &= whole;
    }
    let mut given_up = BTreeSet::new();
    let mut see = |appended: wal::Appended, body: &[u8]| {
        each(appended.first, body, &mut |first, op| {
            let key = (op.keyspace, op.key.to_vec());
            if op.kind == LOST {
                given_up.insert(key);
            } else if damaged.get(&key).is_some_and(|(lost, _)| *lost <= first) {
                damaged.remove(&key);
            }
        });
        Ok(())
    };
    wal::read(medium, store, &state.known_log(), Recover::PastDamage, account, &mut see)?;
    found.is_all = is_all;
    found.given_up = given_up.len() as u64;
    let range = |((keyspace, key), (_, file)): ((KeyspaceId, Vec<u8>), (Seqno, String))| {
        let entry = state.keyspaces.get(&keyspace)?;
        let key = entry.kind.key_form().user(&key).ok()?.to_vec();
        let (keyspace, keys) = (Some(entry.name.clone()), Some((key.clone(), key)));
        Some(LostRange { file, pages: None, keyspace, keys, what: Lost::Versions })
    };
    found.ranges = damaged.into_iter().filter_map(range).collect();
    // A person looks for a key, and not for its hash.
    found
        .ranges
        .sort_by(|one, other| (&one.keyspace, &one.keys).cmp(&(&other.keyspace, &other.keys)));
    Ok(found)
}

/// Calls `of` with the operations of a body, each with the first seqno of the record that had it first.
/// Returns whether all of it is legible.
fn each(first: Seqno, body: &[u8], of: &mut dyn FnMut(Seqno, &BatchOp<'_>)) -> bool {
    if is_moved(body) {
        let ops = decode_moved(body).map_while(|moved| moved.ok());
        ops.for_each(|(_, moved)| of(moved.first, &moved.op));
        return decode_moved(body).all(|moved| moved.is_ok());
    }
    decode_ops(body).map_while(|op| op.ok()).for_each(|op| of(first, &op));
    decode_ops(body).all(|op| op.is_ok())
}

/// Notes the keys of a damaged batch. Returns whether all its operations are legible and of resident
/// keyspaces.
fn note(
    state: &ManifestState,
    loss: &Loss,
    segment: SegmentId,
    first: Seqno,
    body: &[u8],
    damaged: &mut Damaged,
) -> bool {
    let mut is_all = true;
    let is_legible = each(first, body, &mut |first, op| {
        let resident = state.keyspaces.get(&op.keyspace).filter(|it| it.kind.is_resident());
        match resident.map(|entry| entry.kind.key_form().user(op.key)) {
            Some(Ok(_)) => {
                let key = (op.keyspace, op.key.to_vec());
                let of = (first, segment_name(loss.from.lane, segment));
                let newest = damaged.entry(key).or_insert_with(|| of.clone());
                if newest.0 < first {
                    *newest = of;
                }
            }
            _ => is_all = false,
        }
    });
    is_all && is_legible
}

/// What a log of which every record is intact lacks.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// Its end.
    End(Error),
    /// Entries that the collector gave up.
    GivenUp(Error),
}

/// Why a log of which every record is intact lacks entries of resident keyspaces: the end that the newest
/// checkpoint of their indexes points to, or entries that the collector gave up.
///
/// # Errors
/// The device's; of a lack of memory.
pub(crate) fn lacking_entries(
    medium: &Arc<dyn Medium>,
    store: StoreId,
    state: &ManifestState,
    account: &Account,
) -> Result<Option<Lacking>> {
    if let Some(lost) = check_indexes(medium, store, state, account)?.lost {
        return Ok(Some(Lacking::End(lost)));
    }
    let found = resident_losses(medium, Some(store), state, &[], account)?;
    Ok((found.given_up > 0).then(|| Lacking::GivenUp(given_up_error(found.given_up))))
}

/// The damage of entries that the collector gave up.
pub(crate) fn given_up_error(entries: u64) -> Error {
    Error::corrupt("entries of resident keyspaces")
        .expected("all of them")
        .got(format_args!("{entries} that could not be read when their segments were collected"))
}

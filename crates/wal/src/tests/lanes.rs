//! Recovery of several lanes: merged in seqno order, up to the first gap. `fenced` has lanes that a log
//! appends to; these tests write each lane directly, so that they can leave any gap.

use super::*;
use crate::combiner::Writer;
use crate::group::Group;
use crate::lane::Lane;
use crate::retention::Retention;
use crate::shared::{LaneShared, Shared};
use crate::supply::{SegmentSpec, Supply};

/// Writes a lane with records at `seqnos`, one operation each. The first `synced` of them are durable.
fn lane(medium: &Arc<dyn Medium>, lane: u16, begin: u64, seqnos: &[u64]) {
    let log = Shared::new(1, begin, begin);
    let (shared, retention) = (LaneShared::new(&log, 0), Arc::new(Retention::default()));
    let account = Account::unlimited("log");
    let Options { store, segment_bytes, .. } = options();
    let lane = LaneId(lane);
    let spec = SegmentSpec {
        store,
        lane,
        segment_bytes,
        first_segment_bytes: segment_bytes,
        leave_bytes: 0,
        has_gaps: false,
        is_fenced: false,
    };
    let supply = Supply::new(medium, spec, 1, &account, &shared, &Arc::default());
    // Lanes share the counter of seqnos; the test sets each record's seqno.
    let mut writer = Lane::new(lane, supply, shared, &retention, 0);
    writer.rotate(0).unwrap();
    for seqno in seqnos {
        log.numbers.skip_to(*seqno);
        let body = seqno.to_le_bytes();
        let mut group = Group::default();
        let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: &body };
        group.push(&batch, base::crc32c(&body));
        assert_eq!(writer.write(&mut group, &[]).unwrap().first.get(), *seqno);
    }
}

fn seqnos(replayed: &Replayed) -> Vec<u64> {
    assert!(replayed.iter().all(|(seqno, body)| seqno.to_le_bytes() == **body));
    replayed.iter().map(|(seqno, _)| *seqno).collect()
}

#[test]
fn lanes_are_merged_in_seqno_order() {
    let medium = memory();
    lane(&medium, 0, 1, &[1, 4, 5, 8]);
    lane(&medium, 1, 1, &[2, 3, 6, 7]);
    let (log, recovery, replayed) = open(&medium).unwrap();
    assert_eq!(seqnos(&replayed), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((log.last().get(), recovery.torn), (8, None));
}

/// The record with seqno 3, the last of its lane, never became durable. So no later record was
/// acknowledged, although the other lane has one. That record stays cut off when its seqno is assigned
/// again.
#[test]
fn replay_stops_at_the_first_gap_for_good() {
    let medium = memory();
    lane(&medium, 0, 1, &[1, 4, 5]);
    lane(&medium, 1, 1, &[2]);
    let (log, recovery, replayed) = open(&medium).unwrap();
    assert_eq!(seqnos(&replayed), [1, 2]);
    assert_eq!(recovery.torn.unwrap().sequence, 2);
    for seqno in 3..=7u64 {
        assert_eq!(append(&log, 1, 1, &seqno.to_le_bytes()).unwrap().get(), seqno);
    }
    drop(log);
    for _ in 0..3 {
        let (_, recovery, replayed) = open(&medium).unwrap();
        assert_eq!(seqnos(&replayed), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(recovery.torn, None);
    }
}

/// If one lane's old segments were freed, gaps between the other lane's old records are valid.
#[test]
fn seqnos_before_the_oldest_segment_of_a_lane_are_no_gap() {
    let medium = memory();
    lane(&medium, 0, 10, &[10, 12]);
    lane(&medium, 1, 3, &[3, 7, 11]);
    let (_, _, replayed) = open(&medium).unwrap();
    assert_eq!(seqnos(&replayed), [3, 7, 10, 11, 12]);
}

/// A lane without further appends is freed like any other.
#[test]
fn a_lane_without_appends_is_freed() {
    let medium = memory();
    lane(&medium, 0, 1, &[1]);
    lane(&medium, 1, 1, &[2]);
    let (log, ..) = open(&medium).unwrap();
    log.flushed(KeyspaceId(1), Seqno::new(3));
    free(&log);
    let names: Vec<_> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["log-0-0000000002"]);
}

/// With `Recover::PastDamage`, the seqno of a damaged record is no gap, in any lane.
#[test]
fn recovery_past_damage_skips_the_gap_of_a_damaged_record() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    lane(&device, 0, 1, &[1, 4, 5, 8]);
    lane(&device, 1, 1, &[2, 3, 6, 7]);
    // An open vouches for all of it.
    drop(open(&device).unwrap());
    let name = "log-0-0000000001";
    let mut content = medium.content(name).unwrap();
    let at = content.windows(8).rposition(|bytes| bytes == 4u64.to_le_bytes()).unwrap();
    content[at] ^= 1;
    medium.insert(name, content).unwrap();
    assert_eq!(open(&device).unwrap_err().kind(), ErrorKind::Corrupt);
    let (_, recovery, replayed) =
        open_with(&device, salvage::salvage(), &|_| Some(Seqno::ZERO)).unwrap();
    assert_eq!(seqnos(&replayed), [1, 2, 3, 5, 6, 7, 8]);
    let [loss] = &recovery.losses[..] else { panic!("{:?}", recovery.losses) };
    assert_eq!((loss.from.lane, loss.records), (LaneId(0), Some(1)));
    assert!(loss.seqnos.0.get() <= 4 && loss.seqnos.1 == Some(Seqno::new(5)), "{loss:?}");
}

/// If every lane continues after a gap, no lost tail explains it: the log is damaged.
#[test]
fn a_gap_that_no_lost_tail_explains_is_damage() {
    let medium = memory();
    lane(&medium, 0, 1, &[1, 4]);
    lane(&medium, 1, 1, &[2, 5]);
    let error = open(&medium).unwrap_err();
    assert!(error.to_string().contains("seqno"), "{error}");
}

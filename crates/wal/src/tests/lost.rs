//! Lanes that fail apart from one another: a group that is lost, and a device that is full at an open.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use base::Error;
use media::{Access, Faulty, File, Joined, Purpose, Queue};
use parking_lot::Mutex;

use super::*;
use crate::log::tests::HOME;

fn append_in(log: &Log, lane: usize, body: &[u8]) -> Result<Seqno> {
    HOME.set(Some(lane));
    append(log, 1, 1, body)
}

/// Fences that wait for the test, by lane: it says whether they succeed.
type Gates = Arc<Mutex<BTreeMap<u16, Receiver<bool>>>>;

#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Medium>,
    gates: Gates,
}

impl Medium for Gated {
    media::delegate!(inner: capabilities, remove, rename, link, list, space, sync_names, lock);
    media::delegate!(inner: undecorated, open);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let inner = self.inner.create(name, access, reserve)?;
        let (LaneId(lane), _) = crate::parse_segment_name(name).unwrap();
        Ok(Arc::new(GatedFile { inner, lane, gates: Arc::clone(&self.gates) }))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }
}

#[derive(Debug)]
struct GatedFile {
    inner: Arc<dyn File>,
    lane: u16,
    gates: Gates,
}

impl File for GatedFile {
    media::delegate!(inner: name, size, read, write, store, prepare_stores, write_ahead, set_len);
    media::delegate!(inner: undecorated);

    fn sync(&self, purpose: Purpose) -> Result<()> {
        let gate = self.gates.lock().remove(&self.lane);
        match gate.map(|gate| gate.recv().unwrap()) {
            None | Some(true) => self.inner.sync(purpose),
            Some(false) => Err(Error::no_space("fence")),
        }
    }
}

/// A log of `lanes` lanes, and a function that stops the next fence of a lane until the test decides.
fn gated(lanes: u16) -> (Log, Arc<dyn Medium>, impl Fn(u16) -> Sender<bool>) {
    let (device, gates) = (memory(), Gates::default());
    let medium: Arc<dyn Medium> =
        Arc::new(Gated { inner: Arc::clone(&device), gates: Arc::clone(&gates) });
    let (log, ..) = open_with(&medium, fenced(lanes), &|_| Some(Seqno::ZERO)).unwrap();
    let stop = move |lane| {
        let (decide, gate) = channel();
        gates.lock().insert(lane, gate);
        decide
    };
    (log, device, stop)
}

fn wait_until_assigned(log: &Log, seqno: u64) {
    while log.last().get() < seqno {
        thread::yield_now();
    }
}

/// The lane of seqno 3 fails while seqno 1 is in flight in another lane and seqno 2 waits for it. Both are
/// acknowledged: had 2 failed with 3, nobody could see a later one of lane 1. Seqno 4, behind the loss, is
/// not, although it is stored.
#[test]
fn a_lost_group_fails_those_behind_it_and_none_before() {
    let (log, device, stop) = gated(4);
    let (first, lost) = (stop(1), stop(3));
    thread::scope(|scope| {
        let appending = |lane: usize, seqno: u64| {
            let log = &log;
            let thread = scope.spawn(move || append_in(log, lane, &[lane as u8; 10]));
            wait_until_assigned(log, seqno);
            thread
        };
        let (one, two) = (appending(0, 1), appending(1, 2));
        let (three, four) = (appending(2, 3), appending(3, 4));
        lost.send(false).unwrap();
        assert_eq!(three.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(four.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        first.send(true).unwrap();
        assert_eq!(one.join().unwrap().unwrap().get(), 1);
        assert_eq!(two.join().unwrap().unwrap().get(), 2);
    });
    assert!(log.lost(Seqno::new(2)).is_none() && log.lost(Seqno::new(3)).is_some());
    log.wait_until_stored(Seqno::new(2)).unwrap();
    assert_eq!(log.wait_until_stored(log.last()).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(log.last().get(), 4, "no seqno is assigned twice");
    // Conditional appends, logged or not, fail at once instead of waiting for the lost records.
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: b"x" };
    for refused in [
        log.append_if(batch, &mut |_| panic!("no place for a batch")).map(|it| it.first),
        log.assign_if(batch, &mut |_| panic!("no place for a batch")),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned);
    }
    drop(log);
    let (_, recovery, replayed) = open_with(&device, fenced(4), &|_| Some(Seqno::ZERO)).unwrap();
    assert!(replayed.len() >= 2, "{replayed:?}");
    assert_eq!(recovery.last.get(), replayed.len() as u64);
}

/// Two devices; the second is full at an open, and its lane has a record behind a gap. Its seqno must not be
/// assigned again while that record can come back.
#[test]
fn no_lane_is_appended_to_before_each_has_cut_off_its_tail() {
    let (one, two) = (Arc::new(MemoryMedium::new()), Arc::new(Faulty::new(1)));
    let log_at = |two: &Arc<Faulty>| -> Arc<dyn Medium> {
        let joined = Joined::new(memory(), crate::device_of);
        joined.attach(vec![Arc::clone(&one) as _, Arc::clone(two) as _]).unwrap();
        Arc::new(joined)
    };
    let options = || Options { lanes: vec![LaneId(1), LaneId(17)], ..fenced(1) };
    let open = |medium: &Arc<dyn Medium>| open_with(medium, options(), &|_| Some(Seqno::ZERO));
    let (log, ..) = open(&log_at(&two)).unwrap();
    for at in 0..4u8 {
        append_in(&log, usize::from(at % 2), &[at; 40]).unwrap();
    }
    drop(log);
    // Seqno 3 is lost, and 4 stays behind it.
    let name = "log-1-0000000001";
    let mut content = one.content(name).unwrap();
    let at = content.windows(40).position(|bytes| bytes == [2; 40]).unwrap();
    content[at..at + 40].fill(0);
    one.insert(name, content).unwrap();
    two.set_capacity(Some(0));
    let (log, recovery, _) = open(&log_at(&two)).unwrap();
    assert_eq!(recovery.last.get(), 2);
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: b"x" };
    for refused in [
        append_in(&log, 0, b"three"),
        log.append_deletes(batch).map(|it| it.first),
        log.append_if(batch, &mut |_| Ok(())).map(|it| it.first),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoSpace);
    }
    assert!(log.is_full());
    drop(log);
    let (_, recovery, replayed) = open(&log_at(&two)).unwrap();
    assert_eq!((recovery.last.get(), replayed.len()), (2, 2));
    two.set_capacity(None);
    for life in 0..3 {
        let (log, recovery, _) = open(&log_at(&two)).unwrap();
        assert_eq!(recovery.last.get(), 2 + life);
        assert_eq!(append_in(&log, 0, b"again").unwrap().get(), 3 + life);
        assert!(!log.is_full());
    }
}

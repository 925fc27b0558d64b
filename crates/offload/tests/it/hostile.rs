//! Hostile workers: whatever they send costs their own job, and no file that is not theirs.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use base::{
    Account, EntryKind, Rng, Seqno, TableId, Trailer, put_bytes, put_u32, put_u64, put_varint,
};
use compact::job::InputRun;
use compact::offload::Offload;
use compact::{Job, Outcome};
use media::{Access, Buf, Medium, MemoryMedium, Purpose};
use table::RangeDeletes;
use terrace_offload::{Address, Frame, FrameKind, Link, StreamLink, Timing};

use crate::support::{Content, Version, env, key, write};
use crate::workplace::{PATIENT, attempt, content, local, outputs, workers};

pub(crate) const WAIT: Duration = Duration::from_secs(300);
pub(crate) const MAX: usize = 64 << 20;

/// The worker's end of a link, past the hello and the offer.
pub(crate) struct Hostile {
    pub(crate) link: StreamLink,
    job: Job,
    number: u32,
}

impl Hostile {
    fn frame(&self, kind: FrameKind, body: Vec<u8>) -> Frame {
        Frame { kind, job: self.job.id, epoch: self.job.epoch, body }
    }

    pub(crate) fn send(&mut self, kind: FrameKind, body: Vec<u8>) {
        let frame = self.frame(kind, body);
        let _ = self.link.send(&frame);
    }

    /// Sends a request with `rest` and returns the answer: whether it was granted, and its content. `None`
    /// if the host ended the attempt.
    fn request(&mut self, kind: FrameKind, rest: &[u8]) -> Option<(bool, Vec<u8>)> {
        self.number += 1;
        let mut body = Vec::new();
        put_u32(&mut body, self.number);
        body.extend_from_slice(rest);
        self.send(kind, body);
        loop {
            let frame = self.link.receive(WAIT, MAX).ok()??;
            if frame.kind == FrameKind::Reply {
                return Some((frame.body[4] == 0, frame.body[5..].to_vec()));
            }
        }
    }
}

fn named(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, name.as_bytes());
    out
}

/// Runs one attempt at a worker that behaves as `behave` says. Returns why it failed, and its reason.
pub(crate) fn attempt_at(
    medium: &Arc<dyn Medium>,
    job: &Job,
    timing: Timing,
    behave: impl FnOnce(Hostile) + Send + 'static,
) -> Result<Outcome, (&'static str, String)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker");
    let listener = UnixListener::bind(&path).unwrap();
    let offered = job.clone();
    let thread = std::thread::spawn(move || greeted(&listener, offered, behave));
    let workers = workers(&Address::Unix(path), b"", timing);
    let ended = attempt(&workers, job, &env(medium));
    thread.join().unwrap();
    ended.map_err(|error| {
        let statistics = workers.statistics().remove(0);
        assert_eq!(statistics.failures.len(), 1, "{statistics:?}");
        (statistics.failures[0].0, error.to_string())
    })
}

/// Accepts one connection, says hello, and takes the offer of `offered`; then it behaves as `behave` says.
pub(crate) fn greeted(listener: &UnixListener, offered: Job, behave: impl FnOnce(Hostile)) {
    let (stream, _) = listener.accept().unwrap();
    let mut link = StreamLink::unix(stream).unwrap();
    assert_eq!(link.receive(WAIT, MAX).unwrap().unwrap().kind, FrameKind::Hello);
    let mut hello = Vec::new();
    // Protocol, slots, whole jobs, engine, operators, codecs.
    put_u32(&mut hello, 3);
    put_u32(&mut hello, 1);
    hello.push(1);
    put_bytes(&mut hello, b"soft");
    put_varint(&mut hello, 1);
    put_bytes(&mut hello, b"add.1");
    put_bytes(&mut hello, &[0, 1, 2, 3]);
    link.send(&Frame { kind: FrameKind::Hello, job: 0, epoch: 0, body: hello }).unwrap();
    assert_eq!(link.receive(WAIT, MAX).unwrap().unwrap().kind, FrameKind::Offer);
    behave(Hostile { link, job: offered, number: 0 });
}

pub(crate) fn accept(hostile: &mut Hostile) {
    let mut body = vec![0];
    put_bytes(&mut body, &[0; 16]);
    hostile.send(FrameKind::Accept, body);
}

pub(crate) fn done(outcome: &Outcome) -> Vec<u8> {
    let mut body = Vec::new();
    put_u64(&mut body, outcome.bytes_read);
    put_u64(&mut body, u64::MAX);
    put_bytes(&mut body, &outcome.encode());
    body
}

pub(crate) fn store() -> (Arc<dyn Medium>, Job) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(20), &medium, 200);
    (medium, job)
}

#[test]
fn false_proof_of_a_shared_directory_is_refused() {
    let (medium, job) = store();
    let (reason, _) = attempt_at(&medium, &job, PATIENT, |mut hostile| {
        let mut body = vec![1];
        put_bytes(&mut body, &[7; 16]);
        hostile.send(FrameKind::Accept, body);
        // The host says nothing more.
        let _ = hostile.link.receive(WAIT, MAX);
    })
    .unwrap_err();
    assert_eq!(reason, "proof");
}

#[test]
fn files_of_others_are_out_of_reach() {
    let (medium, job) = store();
    let before = medium.list().unwrap();
    let input = job.pieces().next().unwrap().id;
    let (reason, _) = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
        accept(&mut hostile);
        let output = table::file_name(hostile.job.output.ids.start);
        let input = table::file_name(input);
        let next_attempt = table::file_name(TableId(hostile.job.output.ids.end.0 + 3));
        for (kind, name) in [
            (FrameKind::Create, &*input),
            (FrameKind::Create, "x"),
            (FrameKind::Create, "../x"),
            (FrameKind::Create, &*next_attempt),
            (FrameKind::Remove, &*input),
            (FrameKind::Open, "MANIFEST-000001"),
            (FrameKind::Open, &*next_attempt),
        ] {
            let (granted, _) = hostile.request(kind, &named(name)).unwrap();
            assert!(!granted, "{kind:?} {name}");
        }
        // An input is read and not written, not cut, not synced.
        let (granted, _) = hostile.request(FrameKind::Open, &named(&input)).unwrap();
        assert!(granted);
        let mut write = [0u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat();
        write.resize(write.len() + 4096, 1);
        assert!(!hostile.request(FrameKind::Write, &write).unwrap().0);
        assert!(!hostile.request(FrameKind::SetLen, &write[..12]).unwrap().0);
        assert!(!hostile.request(FrameKind::Sync, &write[..4]).unwrap().0);
        // A read beyond the bound.
        let read = [&write[..12], &u32::MAX.to_le_bytes()].concat();
        assert!(!hostile.request(FrameKind::Read, &read).unwrap().0);
        // An output is created once, and has no holes.
        assert!(hostile.request(FrameKind::Create, &named(&output)).unwrap().0);
        assert!(!hostile.request(FrameKind::Create, &named(&output)).unwrap().0);
        let mut hole = [1u32.to_le_bytes().to_vec(), (1u64 << 40).to_le_bytes().to_vec()].concat();
        hole.resize(hole.len() + 4096, 1);
        assert!(!hostile.request(FrameKind::Write, &hole).unwrap().0);
        assert!(!hostile.request(FrameKind::SetLen, &hole[..12]).unwrap().0);
        assert!(hostile.request(FrameKind::Remove, &named(&output)).unwrap().0);
        hostile.send(FrameKind::Failed, vec![2, 0]);
    })
    .unwrap_err();
    assert_eq!(reason, "job failed");
    assert_eq!(medium.list().unwrap(), before);
}

#[test]
fn repeated_and_lost_requests_end_the_attempt() {
    for number in [1u32, 2, 7] {
        let (medium, job) = store();
        let (reason, _) = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
            accept(&mut hostile);
            // The first request is granted; the second is the same again, or a later one.
            let output = table::file_name(hostile.job.output.ids.start);
            assert!(hostile.request(FrameKind::Create, &named(&output)).unwrap().0);
            hostile.number = if number == 1 { 0 } else { number };
            assert!(hostile.request(FrameKind::Remove, &named(&output)).is_none());
        })
        .unwrap_err();
        assert_eq!(reason, "protocol");
        assert_eq!(outputs(&medium), [job.output.ids.start.0]);
    }
}

/// Fault 5: outcomes that are garbled, of another job, or lie.
#[test]
fn outcomes_that_lie_are_refused() {
    let (medium, job) = store();
    let honest = local(&job, &medium);
    let mut other_epoch = honest.clone();
    other_epoch.epoch += 1;
    let mut empty = honest.clone();
    empty.tables.clear();
    let mut unbalanced = honest.clone();
    unbalanced.counts.kept += 1;
    let nothing = Outcome { job: job.id, epoch: job.epoch, ..Outcome::default() };
    // Without the files.
    for lie in [&honest, &other_epoch, &empty, &unbalanced, &nothing] {
        let body = done(lie);
        let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
            accept(&mut hostile);
            hostile.send(FrameKind::Done, body);
            let _ = hostile.link.receive(WAIT, MAX);
        });
        let (reason, error) = ended.expect_err("a lie is refused");
        assert_eq!(reason, "outcome refused", "{error}");
    }
    let mut rng = Rng::new(21);
    for _ in 0..50 {
        let mut body = done(&honest);
        let at = rng.below(body.len() as u64) as usize;
        body[at] ^= 1 << rng.below(8);
        body.truncate(body.len() - rng.below(3) as usize);
        let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
            accept(&mut hostile);
            hostile.send(FrameKind::Done, body);
            let _ = hostile.link.receive(WAIT, MAX);
        });
        ended.unwrap_err();
    }
    assert!(outputs(&medium).is_empty());
}

/// Fault 6: a worker whose memory is bad, or that forgets an entry and balances its counts: one entry is
/// dropped, doubled under another key, or changed. Pages, digests, order and counts are right; the sums of
/// entries are not.
#[test]
fn an_entry_that_is_dropped_doubled_or_changed_is_found() {
    type Change = fn(&mut Vec<Version>);
    let changes: [(&str, Change); 5] = [
        ("dropped", |versions| drop(versions.remove(40))),
        ("doubled", |versions| {
            let (mut key, trailer, value) = versions[40].clone();
            key.push(0);
            versions.insert(41, (key, trailer, value));
        }),
        ("value", |versions| versions[40].2[3] ^= 0x10),
        ("key", |versions| *versions[40].0.last_mut().unwrap() ^= 0x40),
        ("seqno", |versions| {
            let trailer = versions[40].1;
            let seqno = Seqno::new(trailer.seqno().get() + 1);
            versions[40].1 = Trailer::new(seqno, trailer.kind().unwrap());
        }),
    ];
    for (what, change) in changes {
        for is_after_decoding in [false, true] {
            let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
            let mut content = Content::default();
            let versions: Vec<Version> = (0..200)
                .map(|number| {
                    let trailer = Trailer::new(Seqno::new(number * 3 + 5), EntryKind::Put);
                    (key(number * 10), trailer, vec![number as u8; 30])
                })
                .collect();
            let table = write(&medium, TableId(1), &versions, &RangeDeletes::default()).unwrap();
            content.runs.push(InputRun { tables: vec![table] });
            content.versions = versions.clone();
            let job = content.job(&[]);
            let honest = local(&job, &medium);
            // The outputs of the same job with other entries, in the place of the right ones.
            let mut wrong = versions;
            change(&mut wrong);
            let elsewhere: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
            let table = write(&elsewhere, TableId(1), &wrong, &RangeDeletes::default()).unwrap();
            let mut other = job.clone();
            other.inputs = vec![InputRun { tables: vec![table] }];
            let mut outcome = compact::run(other, &env(&elsewhere)).unwrap();
            for table in &outcome.tables {
                copy(&elsewhere, &medium, &table::file_name(table.table));
            }
            outcome.counts = honest.counts;
            outcome.counts.kept = outcome.tables.iter().map(|it| it.properties.entries).sum();
            let missing = honest.counts.kept.saturating_sub(outcome.counts.kept);
            outcome.counts.superseded += missing;
            outcome.counts.read = outcome.counts.kept + outcome.counts.dropped();
            let is_balanced = outcome.counts.read == honest.counts.read;
            if is_after_decoding {
                outcome.sums = honest.sums;
            }
            // Everything else is in order: without sums, nothing but a doubled entry would be found.
            let plain = Outcome { sums: None, ..outcome.clone() };
            let account = Account::unlimited("tables");
            assert_eq!(is_balanced, what != "doubled");
            compact::verify(&job, plain, &env(&medium), &account).unwrap();
            let body = done(&outcome);
            let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
                accept(&mut hostile);
                hostile.send(FrameKind::Done, body);
                let _ = hostile.link.receive(WAIT, MAX);
            });
            let (reason, error) = ended.expect_err(what);
            assert_eq!(reason, "outcome refused", "{error}");
            let expected = match (what, is_after_decoding) {
                ("doubled", _) => "versions that a job read",
                (_, true) => "entries that a job wrote",
                (_, false) => "entries that a job read",
            };
            assert!(error.contains(expected), "{what}: {error}");
        }
    }
}

/// A worker that states no sums is refused.
#[test]
fn an_outcome_without_sums_is_refused() {
    let (medium, job) = store();
    let outcome = Outcome { sums: None, ..compact::run(job.clone(), &env(&medium)).unwrap() };
    let body = done(&outcome);
    let ended = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
        accept(&mut hostile);
        hostile.send(FrameKind::Done, body);
        let _ = hostile.link.receive(WAIT, MAX);
    });
    assert!(ended.unwrap_err().1.contains("sums"));
}

fn copy(from: &Arc<dyn Medium>, to: &Arc<dyn Medium>, name: &str) {
    let file = from.open(name, Access::Direct).unwrap();
    let pages = (file.size().unwrap() as usize).div_ceil(4096);
    let (buf, result) = file.read(0, Buf::pages(pages), Purpose::Meta);
    result.unwrap();
    let copy = to.create(name, Access::Direct, 0).unwrap();
    copy.write(0, buf, Purpose::Meta).1.unwrap();
}

#[test]
fn garbled_frames_and_silence_end_the_attempt() {
    let (medium, job) = store();
    let silent = Timing { lease: Duration::from_millis(400), ..PATIENT };
    let (reason, _) = attempt_at(&medium, &job, silent, |mut hostile| {
        accept(&mut hostile);
        // The worker sends neither a request nor a beat, so the host gives up when the lease ends.
        while hostile.link.receive(WAIT, MAX).is_ok_and(|frame| frame.is_some()) {}
    })
    .unwrap_err();
    assert_eq!(reason, "lease lost");
    for kind in [FrameKind::Hello, FrameKind::Offer, FrameKind::Cancel, FrameKind::Reply] {
        let (reason, _) = attempt_at(&medium, &job, PATIENT, move |mut hostile| {
            accept(&mut hostile);
            hostile.send(kind, vec![1, 2, 3]);
            let _ = hostile.link.receive(WAIT, MAX);
        })
        .unwrap_err();
        assert_eq!(reason, "protocol");
    }
    // A frame of another job, with a right checksum.
    let (reason, _) = attempt_at(&medium, &job, PATIENT, |mut hostile| {
        accept(&mut hostile);
        hostile.job.epoch += 1;
        hostile.send(FrameKind::Beat, vec![0; 16]);
        let _ = hostile.link.receive(WAIT, MAX);
    })
    .unwrap_err();
    assert_eq!(reason, "protocol");
    assert!(outputs(&medium).is_empty());
}

//! An attempt: one job at one worker, on a thread of its own.
//!
//! The thread connects, offers, serves the worker's requests and keeps the lease. The task that polls the
//! [`Remote`] never waits for it, except in `drop` for the one write that may be in progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Clock, Codec, Cursor, Error, Result, StoreId, TableId};
use compact::offload::RemoteRun;
use compact::{Env, Job, Outcome};
use media::{Access, Purpose};
use parking_lot::Mutex;

use crate::credentials::Credentials;
use crate::frame::BODY_BYTES_MAX;
use crate::hello::{HELLO_BYTES_MAX, HostHello, WorkerHello};
use crate::link::must_be_within;
use crate::message::{
    FileRequest, Offer, PROOF_BYTES, Progress, REQUEST_BYTES_MAX, VerifyRequest, decode_error,
    encode_reply,
};
use crate::serve::{Gate, Server};
use crate::workers::{RemoteWorker, need_of};
use crate::{Frame, FrameKind, Link, Timing};

/// How often the thread looks whether it was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The reason of an attempt that was given up because this process would have been faster.
pub(crate) const SLOW: &str = "slower than here";

/// Inputs of an attempt.
pub(crate) struct Attempt {
    pub(crate) worker: Arc<RemoteWorker>,
    pub(crate) job: Job,
    /// The outcome of another worker that is to be verified; `None`: the job is to be run.
    pub(crate) verifies: Option<Outcome>,
    /// The time after which the job comes home; `None`: it stays.
    pub(crate) patience: Option<Duration>,
    pub(crate) env: Env,
    pub(crate) proof: TableId,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) timing: Timing,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Why an attempt failed: the reason it is counted under, and the error.
type Failed = (&'static str, Error);

/// The state that the thread and the handle share.
struct Shared {
    ended: Mutex<Option<Result<Outcome, Failed>>>,
    cancelled: AtomicBool,
    /// Open while the attempt may change files.
    gate: Arc<Gate>,
}

/// The handle of an attempt.
pub(crate) struct Remote {
    shared: Arc<Shared>,
    worker: Arc<RemoteWorker>,
    clock: Arc<dyn Clock>,
    codec: Codec,
    began: Duration,
    /// Bytes read and written, once there is an outcome.
    bytes: (u64, u64),
    /// Why it failed, until it was counted.
    reason: Option<&'static str>,
    is_judged: bool,
    is_verification: bool,
}

impl Remote {
    /// Starts the thread of `attempt`.
    ///
    /// # Errors
    /// `Retry` if there is none.
    pub(crate) fn start(attempt: Attempt) -> Result<Self> {
        let shared = Arc::new(Shared {
            ended: Mutex::default(),
            cancelled: AtomicBool::new(false),
            gate: Arc::new(Mutex::new(true)),
        });
        let remote = Self {
            shared: Arc::clone(&shared),
            worker: Arc::clone(&attempt.worker),
            clock: Arc::clone(&attempt.clock),
            codec: attempt.job.output.codec,
            began: attempt.clock.monotonic(),
            bytes: (0, 0),
            reason: None,
            is_judged: false,
            is_verification: attempt.verifies.is_some(),
        };
        let run = move || {
            let end = End { worker: Arc::clone(&attempt.worker), shared };
            let ended = attempt.run(&end.shared);
            *end.shared.ended.lock() = Some(ended);
        };
        let spawned = std::thread::Builder::new().name("offload".into()).spawn(run);
        match spawned {
            Ok(_) => Ok(remote),
            Err(error) => {
                drop(remote);
                Err(Error::retry("thread of an attempt").caused_by(error))
            }
        }
    }
}

/// Counts the end of an attempt, and tells its handle, even if the thread panics.
struct End {
    worker: Arc<RemoteWorker>,
    shared: Arc<Shared>,
}

impl Drop for End {
    fn drop(&mut self) {
        let cpu = base::thread_cpu_time();
        let mut state = self.worker.state.lock();
        state.ended();
        state.host_cpu += cpu;
        drop(state);
        let mut ended = self.shared.ended.lock();
        if std::thread::panicking() && ended.is_none() {
            *ended = Some(Err(("panic", Error::retry("thread of an attempt").got("a panic"))));
        }
    }
}

impl RemoteRun for Remote {
    fn poll(&mut self) -> Result<Option<Outcome>> {
        match self.shared.ended.lock().take() {
            None => Ok(None),
            Some(Ok(outcome)) => {
                self.bytes = (outcome.bytes_read, outcome.bytes_written());
                Ok(Some(outcome))
            }
            Some(Err((reason, error))) => {
                self.reason = Some(reason);
                Err(error.at(&self.worker.address))
            }
        }
    }

    fn worker(&self) -> String {
        self.worker.address.to_string()
    }

    fn judged(&mut self, verdict: Result<(), &Error>) {
        if std::mem::replace(&mut self.is_judged, true) {
            return;
        }
        let now = self.clock.monotonic();
        let mut state = self.worker.state.lock();
        match verdict {
            Ok(()) if self.is_verification => state.verified(),
            Ok(()) => state.succeeded(self.codec, self.bytes, now.saturating_sub(self.began)),
            Err(error) => {
                let reason = self.reason.unwrap_or("outcome refused");
                state.failed(reason, error.to_string(), now);
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.shared.cancelled.store(true, Ordering::Release);
        *self.shared.gate.lock() = false;
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.worker.address)
    }
}

impl Attempt {
    fn run(&self, shared: &Shared) -> Result<Outcome, Failed> {
        let address = &self.worker.address;
        let charge = self.env.account.charge(self.credentials.link_bytes(address));
        let _charge = charge.map_err(|error| ("memory", error))?;
        let mut link = self.credentials.connect(address, &self.timing)?;
        let ended = self.converse(&mut *link, shared);
        self.worker.state.lock().link_bytes += link.bytes();
        ended
    }

    fn frame(&self, kind: FrameKind, body: Vec<u8>) -> Frame {
        Frame { kind, job: self.job.id, epoch: self.job.epoch, body }
    }

    /// Hello, offer, and the job.
    fn converse(&self, link: &mut dyn Link, shared: &Shared) -> Result<Outcome, Failed> {
        let broken = |error| ("link", error);
        let hello = HostHello { token: self.credentials.token().to_vec() };
        link.send(&Frame { kind: FrameKind::Hello, job: 0, epoch: 0, body: hello.encode() })
            .map_err(broken)?;
        let hello = self.expect(link, shared, FrameKind::Hello, HELLO_BYTES_MAX)?;
        let hello = WorkerHello::decode(&hello.body).map_err(|error| ("hello", error))?;
        self.worker.state.lock().set_hello(&hello);
        if !hello.merges {
            let error =
                Error::invalid("worker").expected("one that merges").got("one that compresses");
            return Err(("refused", error));
        }
        if let Some(operator) = &self.job.operator
            && !hello.operators.contains(operator)
        {
            self.worker.state.lock().lacks(operator, self.clock.monotonic());
            let error = Error::invalid("merge operator of a worker").expected(operator);
            return Err(("operator", error));
        }
        let codec = self.job.output.codec;
        if !hello.codecs.contains(&(codec as u8)) {
            self.worker.state.lock().lacks(&need_of(codec), self.clock.monotonic());
            let error = Error::invalid("codec of a worker").expected(format_args!("{codec:?}"));
            return Err(("codec", error));
        }
        let proof = self.make_proof();
        let (kind, body) = self.offer();
        let accepted = link
            .send(&self.frame(kind, body))
            .map_err(broken)
            .and_then(|()| self.expect(link, shared, FrameKind::Accept, HELLO_BYTES_MAX));
        if proof.is_some() {
            let _ = self.env.medium.remove(&table::values_file_name(self.proof));
        }
        self.check_accept(&accepted?, proof.as_ref()).map_err(|error| ("proof", error))?;
        let gate = Arc::clone(&shared.gate);
        let server = Server::new(&self.job, &self.env, gate).map_err(|error| ("memory", error))?;
        self.host(link, shared, server)
    }

    /// The frame that offers the job, or the verification.
    fn offer(&self) -> (FrameKind, Vec<u8>) {
        let (proof, job) = (self.proof, self.job.encode());
        match &self.verifies {
            None => {
                let value_bytes_max = self.env.value_bytes_max as u64;
                (FrameKind::Offer, Offer { value_bytes_max, proof, job }.encode())
            }
            Some(outcome) => {
                let outcome = outcome.encode();
                (FrameKind::Verify, VerifyRequest { proof, job, outcome }.encode())
            }
        }
    }

    /// Makes the file that proves that both sides see the same directory. `None` if it cannot be made: then
    /// the worker cannot prove anything.
    fn make_proof(&self) -> Option<[u8; PROOF_BYTES]> {
        let proof = StoreId::random().ok()?.0.to_le_bytes();
        let name = table::values_file_name(self.proof);
        let file = self.env.medium.create(&name, Access::Bytes, PROOF_BYTES as u64).ok()?;
        match file.store(0, &proof, Purpose::Compaction) {
            Ok(()) => Some(proof),
            Err(_) => {
                let _ = self.env.medium.remove(&name);
                None
            }
        }
    }

    /// Checks that a worker that claims to have the directory proved it.
    fn check_accept(&self, frame: &Frame, proof: Option<&[u8; PROOF_BYTES]>) -> Result<()> {
        let mut cursor = Cursor::new("acceptance", &frame.body);
        let (is_shared, claimed) = (cursor.u8()? != 0, cursor.bytes(PROOF_BYTES)?);
        cursor.finish()?;
        if self.verifies.is_some() && !is_shared {
            return Err(Error::invalid("worker that verifies").expected("one with the directory"));
        }
        if is_shared && proof.is_none_or(|proof| proof != claimed) {
            return Err(Error::invalid("proof of a shared directory")
                .expected("the content of the file that the host made"));
        }
        Ok(())
    }

    /// Waits for a frame of `kind`.
    fn expect(
        &self,
        link: &mut dyn Link,
        shared: &Shared,
        kind: FrameKind,
        max: usize,
    ) -> Result<Frame, Failed> {
        let until = self.clock.monotonic().saturating_add(self.timing.connect);
        loop {
            self.must_go_on(link, shared)?;
            let frame = link.receive(LOOK_EVERY, max).map_err(|error| ("link", error))?;
            match frame {
                Some(frame) if frame.kind == kind => return Ok(frame),
                Some(frame) if frame.kind == FrameKind::Refuse => {
                    return Err(("refused", decode_error(&frame.body)));
                }
                Some(frame) => {
                    let error = Error::corrupt("frame of a worker");
                    let (expected, got) = (format!("{kind:?}"), format!("{:?}", frame.kind));
                    return Err(("protocol", error.expected(expected).got(got)));
                }
                None if self.clock.monotonic() >= until => {
                    return Err(("silent", Error::retry("worker").expected("an answer in time")));
                }
                None => {}
            }
        }
    }

    /// Fails if the attempt was cancelled, and tells the worker.
    fn must_go_on(&self, link: &mut dyn Link, shared: &Shared) -> Result<(), Failed> {
        if !shared.cancelled.load(Ordering::Acquire) {
            return Ok(());
        }
        let _ = link.send(&self.frame(FrameKind::Cancel, Vec::new()));
        Err(("cancelled", Error::closed("attempt")))
    }

    /// Serves the worker until it is done.
    fn host(
        &self,
        link: &mut dyn Link,
        shared: &Shared,
        mut server: Server,
    ) -> Result<Outcome, Failed> {
        let start = self.clock.monotonic();
        let (mut heard, mut beaten, mut moved) = (start, start, start);
        let mut progress = Progress::default();
        let mut charge = self.env.account.empty_charge();
        loop {
            self.must_go_on(link, shared)?;
            let now = self.clock.monotonic();
            if now.saturating_sub(beaten) >= self.timing.beat {
                beaten = now;
                let beat = self.frame(FrameKind::Beat, Vec::new());
                link.send(&beat).map_err(|error| ("link", error))?;
            }
            // A longer frame, of an outcome or of names, is charged before it is received.
            let admit = &mut |bytes: usize| {
                must_be_within(bytes, BODY_BYTES_MAX)?;
                let most = 3 * bytes as u64;
                match bytes > REQUEST_BYTES_MAX && most > charge.bytes() {
                    true => charge.grow(most - charge.bytes()),
                    false => Ok(()),
                }
            };
            let took = now.saturating_sub(start);
            if self.patience.is_some_and(|patience| took > patience) {
                let mut state = self.worker.state.lock();
                state.was_slow(self.job.output.codec, progress.bytes_read, took);
                drop(state);
                let _ = link.send(&self.frame(FrameKind::Cancel, Vec::new()));
                return Err((SLOW, Error::retry("worker").expected("the time of a job here")));
            }
            let frame = link.receive_if(LOOK_EVERY, admit);
            let frame = frame.map_err(|error| ("link", error))?;
            let now = self.clock.monotonic();
            let Some(frame) = frame else {
                if now.saturating_sub(heard) > self.timing.lease {
                    return Err(("lease lost", Error::retry("lease").got("silence of the worker")));
                }
                continue;
            };
            if (frame.job, frame.epoch) != (self.job.id, self.job.epoch) {
                let error = Error::corrupt("frame of a worker").expected("the job it runs");
                return Err(("protocol", error.got(frame.job)));
            }
            heard = now;
            match frame.kind {
                FrameKind::Beat => {
                    let mut cursor = Cursor::new("beat", &frame.body);
                    let news = Progress::get(&mut cursor).map_err(|error| ("protocol", error))?;
                    if news.bytes_read > progress.bytes_read {
                        moved = now;
                    }
                    self.note(&mut progress, news);
                }
                FrameKind::Verified if self.verifies.is_some() => {
                    return self.verified(&frame.body, &mut progress);
                }
                FrameKind::Done if self.verifies.is_none() => {
                    return self.outcome(&frame.body, &mut progress);
                }
                FrameKind::Failed => return Err(("job failed", decode_error(&frame.body))),
                kind => {
                    let request = FileRequest::decode(kind, &frame.body);
                    let request = request.map_err(|error| ("protocol", error))?;
                    let request = request.filter(|_| self.verifies.is_none());
                    let Some((number, request)) = request else {
                        let error = Error::corrupt("frame of a worker").got(format!("{kind:?}"));
                        return Err(("protocol", error));
                    };
                    let answer = server.serve(number, &request);
                    // A sync may take longer than a lease; the worker waits for it.
                    let now = self.clock.monotonic();
                    (heard, moved) = (now, now);
                    let answer = answer.map_err(|error| ("protocol", error))?;
                    let reply = self.frame(FrameKind::Reply, encode_reply(number, &answer));
                    link.send(&reply).map_err(|error| ("link", error))?;
                }
            }
            if now.saturating_sub(moved) > self.timing.stall {
                return Err(("stalled", Error::retry("worker").got("beats without progress")));
            }
        }
    }

    /// Adds the processor time that a worker reports to its sum.
    fn note(&self, progress: &mut Progress, news: Progress) {
        // No thread has more processor time than time passes; a worker may say anything.
        let more = news.cpu.saturating_sub(progress.cpu).min(Duration::from_secs(3600));
        self.worker.state.lock().cpu += more;
        *progress = news;
    }

    /// The outcome that was verified.
    fn verified(&self, body: &[u8], progress: &mut Progress) -> Result<Outcome, Failed> {
        let mut cursor = Cursor::new("verification", body);
        let news = Progress::get(&mut cursor).and_then(|news| cursor.finish().map(|()| news));
        self.note(progress, news.map_err(|error| ("protocol", error))?);
        let outcome = self.verifies.clone();
        outcome.ok_or_else(|| ("protocol", Error::corrupt("verification that nobody asked for")))
    }

    fn outcome(&self, body: &[u8], progress: &mut Progress) -> Result<Outcome, Failed> {
        let mut cursor = Cursor::new("outcome", body);
        let decoded = Progress::get(&mut cursor).and_then(|news| {
            let outcome = Outcome::decode(cursor.bytes(BODY_BYTES_MAX)?)?;
            cursor.finish()?;
            outcome.expect(&self.job)?;
            Ok((news, outcome))
        });
        let (news, outcome) = decoded.map_err(|error| ("outcome refused", error))?;
        self.note(progress, news);
        Ok(outcome)
    }
}

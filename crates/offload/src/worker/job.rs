//! One connection to a worker: hello, offer, and the job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::sync::{Condvar, Mutex};
use base::{
    Budget, Clock, Codec, Error, ReclaimOrder, Result, SystemClock, TableId, put_bytes,
    thread_cpu_time,
};
use compact::{Env, Job, Outcome, Run};
use media::{Access, Buf, FileMedium, FileOptions, Medium, Purpose};
use table::{StoreDictionaries, values_file_name};

use super::{Client, Shared, WINDOW_BYTES, compress, verify};
use crate::emulated::engine_cpu_of_thread;
use crate::frame::BODY_BYTES_MAX;
use crate::hello::{HELLO_BYTES_MAX, HostHello, WorkerHello};
use crate::message::{Offer, PROOF_BYTES, Progress, put_error};
use crate::remote_medium::RemoteMedium;
use crate::{Frame, FrameKind, Link};

/// How soon a worker notices that its host cancelled a job.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Most memory of a job for reading, bytes.
const READ_BYTES_MAX: u64 = 8 << 20;

/// Memory of the writers of a job, with Zstandard, a value file and bins, bytes.
const WRITER_BYTES: u64 = (5 << 20) + (9 << 18);

/// Memory of the dictionaries of a job with Zstandard, one of them digested for compression, bytes.
const DICTIONARIES_BYTES: u64 = 3 << 20;

/// Memory of open inputs and range deletes, bytes, for each input table.
const TABLE_BYTES: u64 = 64 << 10;

/// Serves one connection to its end.
///
/// # Errors
/// Those of the link, and why the job failed; the host was told.
pub(super) fn serve(mut link: Box<dyn Link>, shared: &Arc<Shared>) -> Result<()> {
    let say = |link: &mut Box<dyn Link>, kind, (job, epoch), body| {
        link.send(&Frame { kind, job, epoch, body })
    };
    let timing = shared.options.timing;
    // Before the token is checked, a stranger must not make the worker hold much memory.
    let hello = expect(&mut *link, timing.connect, HELLO_BYTES_MAX, FrameKind::Hello)?;
    let welcome = HostHello::decode(&hello.body).and_then(|hello| match &shared.options.token {
        Some(token) if !hello.has_token(token) => {
            Err(Error::invalid("token of a host").expected("that of the worker"))
        }
        _ => Ok(()),
    });
    if let Err(error) = welcome {
        refuse(&mut *link, (0, 0), &error)?;
        return Err(error);
    }
    let operators = shared.options.operators.names().map(str::to_owned).collect();
    let own = WorkerHello {
        slots: shared.options.slots as u32,
        merges: shared.options.merges,
        engine: shared.options.engine_name.to_owned(),
        operators,
        codecs: codecs(),
    };
    say(&mut link, FrameKind::Hello, (0, 0), own.encode())?;
    // An offer comes at once; blocks to compress come once a merge has packed some.
    let first = link.receive(timing.connect.max(compress::SILENCE_MAX), BODY_BYTES_MAX)?;
    let offer = match first {
        Some(frame) if frame.kind == FrameKind::Offer => frame,
        Some(frame) if frame.kind == FrameKind::Verify => {
            return verify::serve(link, shared, &frame);
        }
        Some(frame) => {
            let served = compress::serve(&mut *link, shared, frame);
            return served.or_else(|error| {
                refuse(&mut *link, (0, 0), &error)?;
                Err(error)
            });
        }
        None => return Err(Error::retry("frame of a host").expected("one in time")),
    };
    let ids = (offer.job, offer.epoch);
    let prepared = Offer::decode(&offer.body).and_then(|offer| prepare(offer, ids, shared));
    let (job, offer, memory) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            refuse(&mut *link, ids, &error)?;
            return Err(error);
        }
    };
    let (medium, proof) = match shared_directory(offer.proof, shared) {
        Some((medium, proof)) => (Some(medium), proof),
        None => (None, [0; PROOF_BYTES]),
    };
    let mut body = vec![u8::from(medium.is_some())];
    put_bytes(&mut body, &proof);
    say(&mut link, FrameKind::Accept, ids, body)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let client = Arc::new(Client::new(link, ids, timing, clock));
    let medium = medium.unwrap_or_else(|| Arc::new(RemoteMedium(Arc::clone(&client))));
    let ended = run(job, &offer, medium, &client, shared, &memory);
    let done = ended.map(|(outcome, progress)| {
        let mut body = progress.encode();
        put_bytes(&mut body, &outcome.encode());
        body
    });
    finish(&client, FrameKind::Done, done)
}

/// Sends `done` with the body of a job that ended well, or the error that ended it, which is then returned.
pub(super) fn finish(client: &Client, done: FrameKind, ended: Result<Vec<u8>>) -> Result<()> {
    let (kind, body, ended) = match ended {
        Ok(body) => (done, body, Ok(())),
        Err(error) => {
            let mut body = Vec::new();
            put_error(&mut body, &error);
            (FrameKind::Failed, body, Err(error))
        }
    };
    client.send(kind, body)?;
    client.linger();
    ended
}

/// Sends why a job is not taken.
pub(super) fn refuse(link: &mut dyn Link, (job, epoch): (u64, u64), error: &Error) -> Result<()> {
    let mut body = Vec::new();
    put_error(&mut body, error);
    link.send(&Frame { kind: FrameKind::Refuse, job, epoch, body })
}

/// The codecs of this build.
fn codecs() -> Vec<u8> {
    let mut codecs = vec![Codec::None as u8, Codec::Lz4 as u8, Codec::Deflate as u8];
    if cfg!(feature = "zstd") {
        codecs.push(Codec::Zstd as u8);
    }
    codecs
}

/// The next frame, which must be of `kind`.
fn expect(link: &mut dyn Link, wait: Duration, max: usize, kind: FrameKind) -> Result<Frame> {
    let frame = link.receive(wait, max)?;
    let frame = frame.ok_or_else(|| Error::retry("frame of a host").expected("one in time"))?;
    match frame.kind == kind {
        true => Ok(frame),
        false => Err(Error::corrupt("frame")
            .expected(format_args!("{kind:?}"))
            .got(format_args!("{:?}", frame.kind))),
    }
}

/// The memory of a job, taken from the worker's until it is dropped.
pub(super) struct Grant<'a> {
    granted: &'a AtomicU64,
    bytes: u64,
    _slot: Running<'a>,
}

/// A slot of the worker, taken until it is dropped.
pub(super) struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    pub(super) fn start(shared: &'a Shared) -> Option<Self> {
        let take = |taken: usize| (taken < shared.options.slots).then_some(taken + 1);
        let taken = shared.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then_some(Self(&shared.running))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Grant<'a> {
    /// The bytes that were granted.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` of the worker's memory.
    pub(super) fn take(shared: &'a Shared, bytes: u64, slot: Running<'a>) -> Result<Self> {
        let limit = shared.options.memory;
        let take = |taken: u64| {
            let all = taken.saturating_add(bytes);
            (all <= limit).then_some(all)
        };
        let taken = shared.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        match taken {
            Ok(_) => Ok(Self { granted: &shared.granted, bytes, _slot: slot }),
            Err(taken) => Err(Error::retry("memory of a worker")
                .expected(format_args!("{bytes} bytes for a job"))
                .got(format_args!("{taken} of {limit} in use"))),
        }
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.granted.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Decides whether to take an offered job.
fn prepare<'a>(
    offer: Offer,
    (id, epoch): (u64, u64),
    shared: &'a Shared,
) -> Result<(Job, Offer, Grant<'a>)> {
    let job = Job::decode(&offer.job)?;
    if !shared.options.merges {
        return Err(
            Error::invalid("job").expected("blocks to compress: this worker does not merge")
        );
    }
    if (job.id, job.epoch) != (id, epoch) {
        return Err(Error::corrupt("offer").expected("the job of its frame").got(job.id));
    }
    if let Some(name) = &job.operator
        && shared.options.operators.get(name).is_none()
    {
        return Err(Error::invalid("merge operator").expected("a known one").got(name));
    }
    let runs = job.inputs.len() as u64;
    let tables = job.pieces().count() as u64;
    let bytes = runs * Env::RUN_BYTES_MIN as u64
        + read_bytes(shared)
        + WRITER_BYTES
        + 2 * WINDOW_BYTES as u64
        + shared.options.link_bytes()
        + tables.saturating_mul(TABLE_BYTES)
        + if shared.options.engine.is_some() { Env::ENGINE_BYTES } else { 0 }
        + if job.output.codec == Codec::Zstd { DICTIONARIES_BYTES } else { 0 };
    let slot = Running::start(shared).ok_or_else(|| {
        Error::retry("slots of a worker")
            .expected(format_args!("a free one of {}", shared.options.slots))
    })?;
    Ok((job, offer, Grant::take(shared, bytes, slot)?))
}

fn read_bytes(shared: &Shared) -> u64 {
    (shared.options.memory / 4 / shared.options.slots.max(1) as u64).min(READ_BYTES_MAX)
}

/// The files of the store, if they are in one of the worker's roots or other media: if it has the file that
/// the host just made there, and the host confirms the file's content.
pub(super) fn shared_directory(
    proof: TableId,
    shared: &Shared,
) -> Option<(Arc<dyn Medium>, [u8; PROOF_BYTES])> {
    let name = values_file_name(proof);
    let roots = shared.options.roots.iter().map(|root| {
        let options = FileOptions { create: false, ..FileOptions::default() };
        FileMedium::open(&root.directory, options).map(|medium| Arc::new(medium) as Arc<dyn Medium>)
    });
    let others = shared.options.media.iter().map(|medium| medium.open());
    roots.chain(others).find_map(|medium| {
        let medium = medium.ok()?;
        let file = medium.open(&name, Access::Direct).ok()?;
        let (buf, result) = file.read(0, Buf::pages(1), Purpose::Compaction);
        result.ok()?;
        let proof = buf.first_chunk::<PROOF_BYTES>().copied()?;
        Some((medium, proof))
    })
}

fn run(
    job: Job,
    offer: &Offer,
    medium: Arc<dyn Medium>,
    client: &Client,
    shared: &Shared,
    grant: &Grant<'_>,
) -> Result<(Outcome, Progress)> {
    let began = own_cpu_time();
    let budget = Budget::new(grant.bytes);
    let account = budget.account("job");
    // Frames in flight, and those received while one is sent.
    let link_bytes = 2 * WINDOW_BYTES as u64 + shared.options.link_bytes();
    let _window = budget.account("link").charge(link_bytes)?;
    let dictionaries = StoreDictionaries::new(Arc::clone(&medium), job.store, account.clone());
    let dictionaries = Arc::new(dictionaries);
    let reclaimer = Arc::downgrade(&dictionaries);
    budget.add_reclaimer(ReclaimOrder::Optional, reclaimer);
    let env = Env {
        medium,
        dictionaries,
        operators: Arc::clone(&shared.options.operators),
        account: account.clone(),
        tables: account,
        read_bytes: read_bytes(shared) as usize / PAGE_BYTES * PAGE_BYTES,
        value_bytes_max: usize::try_from(offer.value_bytes_max).unwrap_or(usize::MAX),
        engine: shared.options.engine.clone(),
        sums_entries: true,
    };
    let mut run = Run::new(job, &env)?;
    let (outcome, cpu) = step_with_beats(client, shared, began, || {
        let outcome = run.step()?;
        Ok((run.bytes_read(), outcome))
    })?;
    Ok((outcome, Progress { bytes_read: run.bytes_read(), cpu }))
}

/// Steps until there is a result, and sends beats meanwhile. `step` also returns the bytes read so far.
/// Returns the processor time since `began` as well.
///
/// # Errors
/// Those of `step`; the link's, and then nothing is stepped any more.
pub(super) fn step_with_beats<T>(
    client: &Client,
    shared: &Shared,
    began: Duration,
    mut step: impl FnMut() -> Result<(u64, Option<T>)>,
) -> Result<(T, Duration)> {
    let beats = Beats::default();
    std::thread::scope(|scope| {
        let _over = Over(&beats);
        let beater = std::thread::Builder::new().name("beats".into());
        let spawned = beater.spawn_scoped(scope, || beats.keep(client));
        spawned.map_err(|error| Error::retry("thread for beats").caused_by(error))?;
        loop {
            let (bytes_read, done) = step()?;
            let cpu = own_cpu_time().saturating_sub(began);
            let spent = beats.progress.lock().cpu;
            *beats.progress.lock() = Progress { bytes_read, cpu };
            if let Some(done) = done {
                return Ok((done, cpu));
            }
            // A run that is dropped removes its outputs.
            if let Some(error) = beats.failed.lock().take() {
                return Err(error);
            }
            shared.quota.spend(cpu.saturating_sub(spent));
        }
    })
}

/// The beats of a job, which a thread of their own sends: a step of the job may sync a file for long.
#[derive(Default)]
struct Beats {
    progress: Mutex<Progress>,
    failed: Mutex<Option<Error>>,
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// Ends the beats when it is dropped.
struct Over<'a>(&'a Beats);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *self.0.is_over.lock() = true;
        self.0.ended.notify_one();
    }
}

impl Beats {
    /// Sends beats until the job is over, or the host cancelled it or is gone.
    fn keep(&self, client: &Client) {
        let mut is_over = self.is_over.lock();
        while !*is_over {
            let wait = client.beat_interval().min(LOOK_EVERY);
            is_over = self.ended.wait_for(is_over, wait);
            if *is_over {
                return;
            }
            let progress = *self.progress.lock();
            if let Err(error) = client.beat(&|| progress) {
                *self.failed.lock() = Some(error);
                return;
            }
        }
    }
}

/// Processor time of this thread so far, without that of an emulated engine.
pub(super) fn own_cpu_time() -> Duration {
    thread_cpu_time().saturating_sub(engine_cpu_of_thread())
}

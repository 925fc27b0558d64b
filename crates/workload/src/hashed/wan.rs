//! The WAN optimizer of BufferHash (Anand et al., NSDI 2010): a stream is cut into chunks; the fingerprint of
//! each is looked up, and inserted if it is new. A chunk that is found need not be sent again.
//!
//! Keys are fingerprints of 20 B, values are pointers to chunks. Each thread has a stream of its own: with
//! the given probability the next chunk is one of its stream's recent chunks, all of which a window of the
//! expected size still holds; otherwise it is new. A wrong pointer, a new chunk that is found, and, in a
//! keyspace that keeps everything, a recent chunk that is missing count as wrong.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use base::{Error, Result, Rng};
use serde::Serialize;

use super::dedup::check_chunk_bytes;
use super::figures::{HashedFigures, HashedMeter};
use crate::figures::ratio;
use crate::{Engine, Latencies, LatencySummary, Permutation, Store};

/// Bytes of a fingerprint.
const KEY_BYTES: usize = 20;

/// Bytes of a pointer: the number of the chunk, and its length.
const POINTER_BYTES: usize = 12;

/// Numbers of the chunks of one thread.
const STREAM: u64 = 1 << 40;

/// The most threads, whose streams have distinct numbers below the bound of the permutation.
const THREADS_MAX: usize = 1 << 8;

/// A fixed permutation makes fingerprints of numbers.
const SEED: u64 = 0x57a4;

/// Operations between two looks at the clock of the run.
const BURST: u64 = 64;

/// The options of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WanOptions {
    /// The share of chunks that are recent ones.
    pub hit_share: f64,
    /// Chunks, of all threads together, that a hit may lie in the past.
    pub recent: u64,
    /// Chunks inserted before the measurement, all threads together.
    pub num: u64,
    /// Mean bytes of a chunk, from which the rate of the stream follows.
    pub chunk_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// Length of the measurement.
    pub duration: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

impl WanOptions {
    /// Checks the range of every option.
    ///
    /// # Errors
    /// `Invalid` for the first option out of range.
    pub fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.hit_share) {
            return Err(Error::invalid("hit share").expected("0..=1").got(self.hit_share));
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(Error::invalid("threads")
                .expected(format_args!("1..={THREADS_MAX}"))
                .got(self.threads));
        }
        let each = self.num / self.threads as u64;
        if !(1..STREAM / 2).contains(&each) {
            return Err(Error::invalid("chunks of a thread")
                .expected(format_args!("1..{}", STREAM / 2))
                .got(each));
        }
        check_chunk_bytes(self.chunk_bytes)?;
        if self.recent == 0 {
            return Err(Error::invalid("recent chunks").expected("at least 1").got(0));
        }
        Ok(())
    }
}

/// The result of one run. Field names are an interface that scripts parse.
#[derive(Clone, Debug, Serialize)]
pub struct WanReport {
    /// `wan`.
    pub bench: &'static str,
    /// Threads.
    pub threads: usize,
    /// The share of chunks that were recent ones, as asked.
    pub hit_share: f64,
    /// The share that was found.
    pub found_share: f64,
    /// Chunks looked up.
    pub ops: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Chunks per second.
    pub ops_per_sec: f64,
    /// The rate of the stream that was cut into these chunks.
    pub megabits_per_second: f64,
    /// Latency of an insert, microseconds.
    pub insert_us: LatencySummary,
    /// Latency of a lookup, microseconds.
    pub lookup_us: LatencySummary,
    /// Wrong answers; must be 0.
    pub wrong: u64,
    /// Recent chunks that were missing; 0 unless the keyspace is a window that is too small.
    pub evicted: u64,
    /// The figures of hashed keyspaces.
    #[serde(flatten)]
    pub hashed: HashedFigures,
}

/// One thread's stream.
struct Stream<'a> {
    engine: &'a Engine,
    options: &'a WanOptions,
    permutation: Permutation,
    first: u64,
    /// Chunks so far.
    count: u64,
    rng: Rng,
    tally: Tally,
}

/// Counts of one thread.
struct Tally {
    found: u64,
    wrong: u64,
    evicted: u64,
    written_bytes: u64,
    inserts: Latencies,
    lookups: Latencies,
}

impl<'a> Stream<'a> {
    fn new(engine: &'a Engine, options: &'a WanOptions, thread: usize) -> Result<Self> {
        let tally = Tally {
            found: 0,
            wrong: 0,
            evicted: 0,
            written_bytes: 0,
            inserts: Latencies::new()?,
            lookups: Latencies::new()?,
        };
        Ok(Self {
            engine,
            options,
            permutation: Permutation::new(1 << 48, SEED),
            first: thread as u64 * STREAM,
            count: 0,
            rng: Rng::new(options.seed.wrapping_add(thread as u64 + 1)),
            tally,
        })
    }

    /// The fingerprint of chunk `number` of the stream, and the pointer to it.
    fn entry(&self, number: u64) -> ([u8; KEY_BYTES], [u8; POINTER_BYTES]) {
        let chunk = self.first + number;
        let (mut key, mut pointer) = ([0; KEY_BYTES], [0; POINTER_BYTES]);
        let print = self.permutation.apply(chunk).to_be_bytes();
        // As random as a fingerprint: the rest follows from the part that identifies the chunk.
        let rest = base::key_hash(&print).to_be_bytes();
        let bytes = print.iter().skip(2).chain(rest.iter()).chain(print.iter()).copied();
        key.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let length = (self.options.chunk_bytes as u32).to_be_bytes();
        let bytes = chunk.to_be_bytes().into_iter().chain(length);
        pointer.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        (key, pointer)
    }

    fn insert(&mut self) -> Result<()> {
        let (key, pointer) = self.entry(self.count);
        self.engine.put(&key, &pointer, false)?;
        self.count += 1;
        self.tally.written_bytes += (KEY_BYTES + POINTER_BYTES) as u64;
        Ok(())
    }

    /// Looks up the next chunk, and inserts it if it is new.
    fn chunk(&mut self) -> Result<()> {
        let recent =
            (self.options.recent / self.options.threads as u64).clamp(1, self.count.max(1));
        let is_recent = self.count > 0 && self.rng.unit() < self.options.hit_share;
        let number = if is_recent { self.count - 1 - self.rng.below(recent) } else { self.count };
        let (key, pointer) = self.entry(number);
        let mut is_right = false;
        let start = Instant::now();
        let found = self.engine.get(&key, &mut |value| is_right = value == pointer)?;
        let tally = &mut self.tally;
        tally.lookups.record(start.elapsed());
        tally.found += u64::from(found);
        tally.wrong += u64::from(found && !(is_right && is_recent));
        if is_recent && !found {
            match self.engine.may_drop() {
                true => tally.evicted += 1,
                false => tally.wrong += 1,
            }
        }
        if !is_recent {
            let start = Instant::now();
            self.insert()?;
            self.tally.inserts.record(start.elapsed());
        }
        Ok(())
    }
}

/// Runs the workload on `engine`, in an empty keyspace.
///
/// # Errors
/// `Invalid` for an option out of its range; the first error of the store.
pub fn run_wan(engine: &Engine, options: &WanOptions) -> Result<WanReport> {
    options.check()?;
    let all = each_thread(options.threads, |thread| {
        let mut stream = Stream::new(engine, options, thread)?;
        for _ in 0..options.num / options.threads as u64 {
            stream.insert()?;
        }
        stream.tally.written_bytes = 0;
        Ok(stream)
    })?;
    engine.flush()?;
    engine.settle()?;
    let meter = std::sync::Mutex::new(HashedMeter::start(engine));
    let (start, ops) = (Instant::now(), AtomicU64::new(0));
    let streams: Vec<_> =
        all.into_iter().map(|stream| std::sync::Mutex::new(Some(stream))).collect();
    let all = each_thread(options.threads, |thread| {
        let stream = streams.get(thread).and_then(|stream| stream.lock().ok()?.take());
        let Some(mut stream) = stream else {
            return Err(base::broken_invariant!("each thread takes its own stream"));
        };
        loop {
            for _ in 0..BURST {
                stream.chunk()?;
            }
            ops.fetch_add(BURST, Relaxed);
            let elapsed = start.elapsed();
            if let Ok(mut meter) = meter.try_lock() {
                meter.tick(elapsed);
            }
            if elapsed >= options.duration {
                return Ok(stream);
            }
        }
    })?;
    let seconds = start.elapsed().as_secs_f64();
    engine.flush()?;
    engine.settle()?;
    let ops = ops.into_inner();
    let (mut inserts, mut lookups) = (Latencies::new()?, Latencies::new()?);
    let (mut found, mut wrong, mut evicted, mut written, mut entries) = (0, 0, 0, 0, 0);
    for stream in &all {
        let tally = &stream.tally;
        inserts.merge(&tally.inserts);
        lookups.merge(&tally.lookups);
        found += tally.found;
        wrong += tally.wrong;
        evicted += tally.evicted;
        written += tally.written_bytes;
        entries += stream.count;
    }
    let meter = meter.into_inner();
    let meter = meter.map_err(|_| base::broken_invariant!("no thread panics with the meter"))?;
    let (hashed, _) = meter.finish(entries, (KEY_BYTES + POINTER_BYTES) as f64, written);
    let ops_per_sec = ratio(ops as f64, seconds).unwrap_or_default();
    Ok(WanReport {
        bench: "wan",
        threads: options.threads,
        hit_share: options.hit_share,
        found_share: ratio(found as f64, ops as f64).unwrap_or_default(),
        ops,
        seconds,
        ops_per_sec,
        megabits_per_second: ops_per_sec * options.chunk_bytes as f64 * 8.0 / 1e6,
        insert_us: inserts.summary(),
        lookup_us: lookups.summary(),
        wrong,
        evicted,
        hashed,
    })
}

/// Runs `work` on `threads` threads, and returns the results in order of threads.
fn each_thread<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let mut handles = Vec::with_capacity(threads);
        for number in 0..threads {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || work(number));
            handles.push(spawned.map_err(|e| Error::io("start", "a thread of the run", e))?);
        }
        let joined = handles.into_iter().map(|handle| {
            handle.join().unwrap_or_else(|_| Err(base::broken_invariant!("no thread panics")))
        });
        joined.collect()
    })
}

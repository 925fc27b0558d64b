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

use base::{Error, Result, Rng, SystemClock};
use serde::Serialize;

use super::dedup::check_chunk_bytes;
use super::figures::{HashedFigures, HashedMeter};
use crate::figures::{Figures, Meter, Tally as RunTally, ratio};
use crate::{Engine, Latencies, LatencySummary, Permutation, Store};

/// Bytes of a fingerprint.
pub(crate) const KEY_BYTES: usize = 20;

/// Bytes of a pointer: the number of the chunk, and its length.
pub(crate) const POINTER_BYTES: usize = 12;

/// Numbers of the chunks of one thread.
const STREAM: u64 = 1 << 40;

/// The most threads, whose streams have distinct numbers below the bound of the permutation.
const THREADS_MAX: usize = 1 << 8;

/// A fixed permutation makes fingerprints of numbers.
const SEED: u64 = 0x57a4;

/// Most inserts that no lookup precedes, as a part of the chunks before the measurement.
const ALONE_PART: u64 = 8;

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

/// The result of one run on any store.
#[derive(Clone, Debug)]
pub struct WanFigures {
    /// The figures of every bench. An operation is a chunk; latencies are those of lookups.
    pub figures: Figures,
    /// The rate of the stream that was cut into these chunks.
    pub megabits_per_second: f64,
    /// Latency of an insert, microseconds.
    pub insert_us: LatencySummary,
    /// Latency of a lookup that found its chunk, microseconds.
    pub hit_us: LatencySummary,
    /// Latency of a lookup that found none, microseconds.
    pub miss_us: LatencySummary,
    /// Inserts per second.
    pub inserts_per_sec: f64,
    /// Recent chunks that were missing in a store that may drop entries.
    pub evicted: u64,
    /// Inserts after the stream, each without a lookup.
    pub inserts_alone: InsertsAlone,
}

/// Inserts of new chunks that no lookup precedes. In a stream the lookup of a chunk brings in the page that
/// its insert changes, and an earlier insert's page is written during a later lookup; here inserts pay for
/// both.
#[derive(Clone, Copy, Debug)]
pub struct InsertsAlone {
    /// How many.
    pub count: u64,
    /// Mean time of one, microseconds, with the flush at the end, which writes what they deferred.
    pub mean_us: f64,
    /// Latency of the calls, microseconds.
    pub us: LatencySummary,
    /// Bytes that the process wrote to the device, per byte of keys and values.
    pub write_amplification: Option<f64>,
}

/// One thread's stream.
struct Stream<'a> {
    store: &'a dyn Store,
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
    hits: Latencies,
    misses: Latencies,
}

impl Tally {
    fn new() -> Result<Self> {
        Ok(Self {
            found: 0,
            wrong: 0,
            evicted: 0,
            written_bytes: 0,
            inserts: Latencies::new()?,
            hits: Latencies::new()?,
            misses: Latencies::new()?,
        })
    }

    fn merge(&mut self, other: &Self) {
        self.found += other.found;
        self.wrong += other.wrong;
        self.evicted += other.evicted;
        self.written_bytes += other.written_bytes;
        self.inserts.merge(&other.inserts);
        self.hits.merge(&other.hits);
        self.misses.merge(&other.misses);
    }

    fn lookups(&self) -> Latencies {
        let mut lookups = self.hits.clone();
        lookups.merge(&self.misses);
        lookups
    }
}

impl<'a> Stream<'a> {
    fn new(store: &'a dyn Store, options: &'a WanOptions, thread: usize) -> Result<Self> {
        Ok(Self {
            store,
            options,
            permutation: Permutation::new(1 << 48, SEED),
            first: thread as u64 * STREAM,
            count: 0,
            rng: Rng::new(options.seed.wrapping_add(thread as u64 + 1)),
            tally: Tally::new()?,
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
        self.store.put(&key, &pointer, false)?;
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
        let found = self.store.get(&key, &mut |value| is_right = value == pointer)?;
        let took = start.elapsed();
        let tally = &mut self.tally;
        let latencies = if found { &mut tally.hits } else { &mut tally.misses };
        latencies.record(took);
        tally.found += u64::from(found);
        tally.wrong += u64::from(found && !(is_right && is_recent));
        if is_recent && !found {
            match self.store.may_drop() {
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

/// Inserts the chunks before the measurement into `store`, which must be empty, and settles it.
///
/// # Errors
/// `Invalid` for an option out of its range; the first error of the store.
pub fn load_wan(store: &dyn Store, options: &WanOptions) -> Result<()> {
    load(store, options).map(drop)
}

fn load<'a>(store: &'a dyn Store, options: &'a WanOptions) -> Result<Vec<Stream<'a>>> {
    options.check()?;
    let all = each_thread(options.threads, |thread| {
        let mut stream = Stream::new(store, options, thread)?;
        for _ in 0..options.num / options.threads as u64 {
            stream.insert()?;
        }
        stream.tally.written_bytes = 0;
        Ok(stream)
    })?;
    store.flush()?;
    store.settle()?;
    Ok(all)
}

/// The outcome of a measurement.
struct Outcome {
    seconds: f64,
    ops: u64,
    /// Chunks inserted, those before the measurement included.
    entries: u64,
    tally: Tally,
}

/// Runs the streams for the duration. `on_tick` gets the time since the start, from one thread at a time.
fn measure(
    options: &WanOptions,
    streams: Vec<Stream<'_>>,
    on_tick: &mut (dyn FnMut(Duration) + Send),
) -> Result<Outcome> {
    let (start, ops) = (Instant::now(), AtomicU64::new(0));
    let on_tick = std::sync::Mutex::new(on_tick);
    let streams: Vec<_> =
        streams.into_iter().map(|stream| std::sync::Mutex::new(Some(stream))).collect();
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
            if let Ok(mut on_tick) = on_tick.try_lock() {
                on_tick(elapsed);
            }
            if elapsed >= options.duration {
                return Ok(stream);
            }
        }
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut tally, mut entries) = (Tally::new()?, 0);
    for stream in &all {
        tally.merge(&stream.tally);
        entries += stream.count;
    }
    Ok(Outcome { seconds, ops: ops.into_inner(), entries, tally })
}

fn megabits_per_second(ops_per_sec: f64, options: &WanOptions) -> f64 {
    ops_per_sec * options.chunk_bytes as f64 * 8.0 / 1e6
}

/// Runs the workload on `engine`, in an empty keyspace.
///
/// # Errors
/// `Invalid` for an option out of its range; the first error of the store.
pub fn run_wan(engine: &Engine, options: &WanOptions) -> Result<WanReport> {
    let streams = load(engine, options)?;
    let mut meter = HashedMeter::start(engine);
    let outcome = measure(options, streams, &mut |elapsed| meter.tick(elapsed))?;
    engine.flush()?;
    engine.settle()?;
    let Outcome { seconds, ops, entries, tally } = outcome;
    let (hashed, _) =
        meter.finish(entries, (KEY_BYTES + POINTER_BYTES) as f64, tally.written_bytes);
    let ops_per_sec = ratio(ops as f64, seconds).unwrap_or_default();
    Ok(WanReport {
        bench: "wan",
        threads: options.threads,
        hit_share: options.hit_share,
        found_share: ratio(tally.found as f64, ops as f64).unwrap_or_default(),
        ops,
        seconds,
        ops_per_sec,
        megabits_per_second: megabits_per_second(ops_per_sec, options),
        insert_us: tally.inserts.summary(),
        lookup_us: tally.lookups().summary(),
        wrong: tally.wrong,
        evicted: tally.evicted,
        hashed,
    })
}

/// Runs the workload on `store`, as [`load_wan`] with the same options left it.
///
/// # Errors
/// `Invalid` for an option out of its range; the first error of the store.
pub fn run_wan_on(store: &dyn Store, options: &WanOptions) -> Result<WanFigures> {
    options.check()?;
    let streams = (0..options.threads).map(|thread| {
        let mut stream = Stream::new(store, options, thread)?;
        stream.count = options.num / options.threads as u64;
        Ok(stream)
    });
    let streams = streams.collect::<Result<_>>()?;
    let clock = SystemClock::new();
    let meter = Meter::start(store, &clock);
    let Outcome { seconds, ops, tally, entries } = measure(options, streams, &mut |_| {})?;
    let run = RunTally {
        ops,
        lookups: ops,
        found: tally.found,
        missing: ops.saturating_sub(tally.found),
        wrong: tally.wrong,
        written_bytes: tally.written_bytes,
        latencies: tally.lookups(),
        ..RunTally::new()?
    };
    // Flushes count with the run, as in every bench.
    let figures = meter.finish(&run, Duration::from_secs_f64(seconds), None, true)?;
    let inserts_alone = insert_alone(store, options, entries)?;
    Ok(WanFigures {
        megabits_per_second: megabits_per_second(figures.ops_per_sec, options),
        insert_us: tally.inserts.summary(),
        hit_us: tally.hits.summary(),
        miss_us: tally.misses.summary(),
        inserts_per_sec: ratio(tally.inserts.count() as f64, seconds).unwrap_or_default(),
        evicted: tally.evicted,
        inserts_alone,
        figures,
    })
}

/// Inserts new chunks, in one thread, after `entries` of them. As many as a part of the chunks before the
/// measurement, or for as long as the measurement took, whichever is less.
fn insert_alone(store: &dyn Store, options: &WanOptions, entries: u64) -> Result<InsertsAlone> {
    let mut stream = Stream::new(store, options, 0)?;
    // Numbers that no thread used.
    stream.count = entries;
    let clock = SystemClock::new();
    let meter = Meter::start(store, &clock);
    let start = Instant::now();
    let most = (options.num / ALONE_PART).max(1);
    while stream.tally.inserts.count() < most && start.elapsed() < options.duration {
        let start = Instant::now();
        stream.insert()?;
        stream.tally.inserts.record(start.elapsed());
    }
    store.flush()?;
    let seconds = start.elapsed().as_secs_f64();
    let Tally { inserts, written_bytes, .. } = stream.tally;
    let count = inserts.count();
    let run = RunTally { ops: count, written_bytes, ..RunTally::new()? };
    let figures = meter.finish(&run, Duration::from_secs_f64(seconds), None, true)?;
    Ok(InsertsAlone {
        count,
        mean_us: seconds * 1e6 / count.max(1) as f64,
        us: inserts.summary(),
        write_amplification: ratio(figures.process_write_bytes as f64, written_bytes as f64),
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

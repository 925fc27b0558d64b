//! An emulated compression engine: the rates of a real one, the bytes of software, and no processor time.
//!
//! The payload of a block comes from a memo: a first run of the same work fills it in software, and later
//! runs find it there. So the payloads are real DEFLATE, and readers decompress them for real. A block is
//! ready at a deadline that follows from the stated rates, and its caller sleeps until then.
//!
//! Blocks that the memo lacks are compressed in software. That processor time counts as the engine's: it
//! delays the engine, and [`engine_cpu_of_thread`] lets a job subtract it from its own.
//!
//! Any thread may call. Each call takes one lock for a hash lookup.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Account, Codec, Error, Result, hash64, thread_cpu_time};
use parking_lot::Mutex;
use table::{BlockCompressor, BlockEngine, BlockStream};

/// Stated properties of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineProfile {
    /// Its name.
    pub name: &'static str,
    /// Bytes of raw blocks that it compresses per second.
    pub compress_rate: f64,
    /// Bytes of raw blocks that it makes per second when it decompresses.
    pub decompress_rate: f64,
    /// Time from submission to result of a block, when idle.
    pub latency: Duration,
    /// Where the rates come from.
    pub source: &'static str,
}

/// The DEFLATE engine of a BlueField-2 DPU.
pub const BLUEFIELD_2: EngineProfile = EngineProfile {
    name: "emulated:bf2",
    compress_rate: 788e6,
    decompress_rate: 788e6,
    latency: Duration::from_micros(50),
    source: "github.com/takashimakazuki/dpdk_compression, README: 100,000,000 bytes (QVAPORf01.bin) are \
             compressed by the engine in 0.126884 s. Its rate of decompression is not stated and taken \
             to be the same; the latency is an assumption",
};

/// Calls that are ahead of the engine by less than this do not wait: the engine works while their thread
/// does.
const AHEAD: Duration = Duration::from_millis(1);

thread_local! {
    static ENGINE_CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Processor time of this thread that emulated an engine: not the time of the job that it runs.
pub(crate) fn engine_cpu_of_thread() -> Duration {
    ENGINE_CPU.get()
}

/// Runs `work` and counts its processor time as an engine's.
fn as_engine<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = thread_cpu_time();
    let done = work();
    let took = thread_cpu_time().saturating_sub(began);
    ENGINE_CPU.set(ENGINE_CPU.get() + took);
    (done, took)
}

/// Counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStatistics {
    /// Blocks compressed and decompressed.
    pub blocks: u64,
    /// Blocks that the memo had.
    pub hits: u64,
    /// Raw bytes of all blocks.
    pub bytes: u64,
    /// Processor time of blocks that the memo lacked.
    pub miss_cpu: Duration,
}

/// A raw block and its payload.
#[derive(Clone)]
struct Known {
    raw: Arc<Vec<u8>>,
    payload: Arc<Vec<u8>>,
    level: i32,
}

#[derive(Default)]
struct State {
    by_raw: HashMap<u64, Known>,
    by_payload: HashMap<u64, Known>,
    memo_bytes: u64,
    /// When the engine has done all that it was given.
    busy_until: Duration,
    statistics: EngineStatistics,
}

impl State {
    /// Gives the engine work of `time`, at `now`. Returns when it is done.
    fn admit(&mut self, now: Duration, time: Duration) -> Duration {
        self.busy_until = self.busy_until.max(now) + time;
        self.busy_until
    }

    fn count(&mut self, raw_bytes: usize, is_hit: bool, miss_cpu: Duration) {
        self.statistics.blocks += 1;
        self.statistics.hits += u64::from(is_hit);
        self.statistics.bytes += raw_bytes as u64;
        self.statistics.miss_cpu += miss_cpu;
    }

    fn learn(&mut self, known: Known, memo_bytes_max: u64) {
        if self.learn_payload(known.clone(), memo_bytes_max) {
            self.by_raw.insert(hash64(0, &known.raw), known);
        }
    }

    /// Learns a payload that the engine did not make. Returns whether there was room.
    fn learn_payload(&mut self, known: Known, memo_bytes_max: u64) -> bool {
        let bytes = (known.raw.len() + known.payload.len()) as u64;
        if self.memo_bytes + bytes > memo_bytes_max {
            return false;
        }
        self.memo_bytes += bytes;
        self.by_payload.insert(hash64(0, &known.payload), known);
        true
    }
}

struct Inner {
    profile: EngineProfile,
    began: Instant,
    memo_bytes_max: u64,
    state: Mutex<State>,
    account: Account,
}

impl Inner {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The payload of `raw`, and when the engine has it.
    fn compress(&self, raw: &Arc<Vec<u8>>, level: i32) -> Result<(Vec<u8>, Duration)> {
        let (found, _) = as_engine(|| {
            let found = self.state.lock().by_raw.get(&hash64(0, raw)).cloned();
            // The whole block is compared: a hash may collide.
            found.filter(|known| known.level == level && known.raw == *raw)
        });
        let time = Duration::from_secs_f64(raw.len() as f64 / self.profile.compress_rate);
        if let Some(known) = found {
            let mut state = self.state.lock();
            state.count(raw.len(), true, Duration::ZERO);
            let done = state.admit(self.now(), time);
            return Ok((known.payload.to_vec(), done + self.profile.latency));
        }
        let (compressed, cpu) =
            as_engine(|| BlockCompressor::new(Codec::Deflate, level, &self.account)?.compress(raw));
        let payload = compressed?;
        let known = Known { raw: Arc::clone(raw), payload: Arc::new(payload.clone()), level };
        let mut state = self.state.lock();
        state.count(raw.len(), false, cpu);
        state.learn(known, self.memo_bytes_max);
        let done = state.admit(self.now(), time.max(cpu));
        Ok((payload, done + self.profile.latency))
    }

    fn sleep_until(&self, done: Duration) {
        let left = done.saturating_sub(self.now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}

/// An emulated engine. See the module.
pub struct EmulatedEngine(Arc<Inner>);

impl EmulatedEngine {
    /// An engine with the rates of `profile`, and a memo of at most `memo_bytes_max` bytes.
    #[must_use]
    pub fn new(profile: EngineProfile, memo_bytes_max: u64) -> Self {
        let account = Account::unlimited("emulated engine");
        let (began, state) = (Instant::now(), Mutex::default());
        Self(Arc::new(Inner { profile, began, memo_bytes_max, state, account }))
    }

    /// Its counters.
    #[must_use]
    pub fn statistics(&self) -> EngineStatistics {
        self.0.state.lock().statistics
    }
}

impl BlockEngine for EmulatedEngine {
    fn stream(&self, codec: Codec, level: i32, _: &Account) -> Option<Box<dyn BlockStream>> {
        let stream = EmulatedStream { engine: Arc::clone(&self.0), level, flight: VecDeque::new() };
        (codec == Codec::Deflate).then(|| Box::new(stream) as _)
    }

    fn decompress(&self, codec: Codec, payload: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
        if codec != Codec::Deflate {
            return None;
        }
        let inner = &*self.0;
        let (found, _) =
            as_engine(|| inner.state.lock().by_payload.get(&hash64(0, payload)).cloned());
        let time = Duration::from_secs_f64(raw_bytes as f64 / inner.profile.decompress_rate);
        let known = found.filter(|it| **it.payload == *payload && it.raw.len() == raw_bytes);
        let (raw, cpu) = match &known {
            Some(known) => as_engine(|| Ok(known.raw.to_vec())),
            None => as_engine(|| table::decompress_block(codec, payload, raw_bytes)),
        };
        // A damaged payload: the caller finds the error.
        let raw = raw.ok()?;
        let mut state = inner.state.lock();
        if known.is_none() {
            // Remembers the block: a repeated run decompresses it again, and then without the processor's
            // time.
            let (raw, payload) = (Arc::new(raw.clone()), Arc::new(payload.to_vec()));
            state.learn_payload(Known { raw, payload, level: 0 }, inner.memo_bytes_max);
        }
        let miss_cpu = if known.is_some() { Duration::ZERO } else { cpu };
        state.count(raw_bytes, known.is_some(), miss_cpu);
        let now = inner.now();
        let done = state.admit(now, time.max(miss_cpu));
        drop(state);
        // Reads are ahead of a merge, so only the rate counts, not the latency of each block.
        if done > now + AHEAD {
            inner.sleep_until(done);
        }
        Some(raw)
    }
}

impl fmt::Debug for EmulatedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmulatedEngine({}, {:?})", self.0.profile.name, self.statistics())
    }
}

struct EmulatedStream {
    engine: Arc<Inner>,
    level: i32,
    flight: VecDeque<(Vec<u8>, Duration)>,
}

impl BlockStream for EmulatedStream {
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> Result<()> {
        let compressed = self.engine.compress(raw, self.level)?;
        self.flight.push_back(compressed);
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<u8>> {
        let taken = self.flight.pop_front();
        let taken = taken.ok_or_else(|| Error::invalid("block to take").expected("one submitted"));
        let (payload, done) = taken?;
        self.engine.sleep_until(done);
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_keeps_its_rate_by_deadlines() {
        let (mut state, millis) = (State::default(), Duration::from_millis);
        assert_eq!(state.admit(millis(5), millis(2)), millis(7));
        assert_eq!(state.admit(millis(6), millis(2)), millis(9), "behind the first block");
        assert_eq!(state.admit(millis(20), millis(1)), millis(21), "it was idle");
    }

    #[test]
    fn repeated_work_is_found_in_the_memo_and_decompresses() {
        let account = Account::unlimited("test");
        let engine = EmulatedEngine::new(BLUEFIELD_2, 1 << 20);
        let raw = |number: u8| Arc::new(vec![number; 5000]);
        for round in 0..2 {
            let mut stream = engine.stream(Codec::Deflate, 6, &account).unwrap();
            (0..20).for_each(|number| stream.submit(&raw(number)).unwrap());
            for number in 0..20 {
                let payload = stream.take().unwrap();
                let found = engine.decompress(Codec::Deflate, &payload, 5000).unwrap();
                assert_eq!(found, **raw(number));
                assert_eq!(table::decompress_block(Codec::Deflate, &payload, 5000).unwrap(), found);
            }
            let statistics = engine.statistics();
            assert_eq!(statistics.blocks, 40 * (round + 1));
            // The second round finds all, and every payload was known when it was decompressed.
            assert_eq!(statistics.hits, 20 + 40 * round);
        }
        assert!(engine.statistics().miss_cpu > Duration::ZERO);
        // Another level has other payloads; and a damaged payload is left to the caller.
        let mut stream = engine.stream(Codec::Deflate, 1, &account).unwrap();
        stream.submit(&raw(1)).unwrap();
        assert_eq!(engine.statistics().hits, 60);
        assert!(engine.decompress(Codec::Deflate, b"damaged", 5000).is_none());
        assert!(engine.stream(Codec::Zstd, 1, &account).is_none());
    }

    #[test]
    fn the_memo_is_bounded() {
        let engine = EmulatedEngine::new(BLUEFIELD_2, 20_000);
        let mut stream = engine.stream(Codec::Deflate, 6, &Account::unlimited("test")).unwrap();
        for number in 0..50 {
            stream.submit(&Arc::new(vec![number; 5000])).unwrap();
        }
        assert!(engine.0.state.lock().memo_bytes <= 20_000);
    }
}

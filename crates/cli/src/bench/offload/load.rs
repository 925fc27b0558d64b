//! The load of one configuration of `bench offload`.
//!
//! Writes come in rounds: puts of random keys while the merges of the round before run, then, once nothing is
//! left to merge, a flush. One merge runs at a time. So the same merges follow from the same puts at any
//! speed, and the memo of an emulated engine knows them: a store that is not settled merges further after
//! some seconds without writes, which slow configurations have and fast ones have not. The rate of puts is
//! that of the slower of the two, writes and merges, as in a store that is written for long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::{Rng, SystemClock};
use serde::{Deserialize, Serialize};
use terracedb::compaction::{Address, Credentials, PlacementMode, Timing, Verify, Workers};
use terracedb::events::{Event, Listener};
use terracedb::{Codec, Db, Durability, Error, Keyspace, Result};

use super::processes::HOST_CORE;
use super::{Configuration, Measured, Mode};
use crate::core::hold_to_core;

/// Bytes of a value.
const VALUE_BYTES: usize = 400;

/// Reads per second while writes are measured: enough for a percentile, too few to change the rate.
const PROBES_PER_SECOND: u64 = 250;

/// How much is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    /// Puts of a round.
    puts: u64,
    /// Rounds for the rate of puts, and for that of gets.
    rounds: u64,
    read_rounds: u64,
}

impl Load {
    pub(super) const QUICK: Self = Self { puts: 1500, rounds: 6, read_rounds: 2 };
    pub(super) const DEFAULT: Self = Self { puts: 15_000, rounds: 16, read_rounds: 6 };
    // A round fits a memtable.
    pub(super) const FULL: Self = Self { puts: 24_000, rounds: 30, read_rounds: 15 };

    const fn keys(self) -> u64 {
        4 * self.puts
    }
}

/// The merges of a run, from events.
#[derive(Debug, Default)]
struct Merges {
    running: AtomicU64,
    /// Bytes read and written, and the time that they took.
    ended: Mutex<(u64, Duration)>,
}

impl Listener for Merges {
    fn event(&self, event: &Event) {
        match event {
            Event::CompactionBegan { .. } => {
                self.running.fetch_add(1, Ordering::Relaxed);
            }
            Event::CompactionEnded { bytes_read, bytes_written, took, .. } => {
                self.running.fetch_sub(1, Ordering::Relaxed);
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                ended.0 += bytes_read + bytes_written;
                ended.1 += *took;
            }
            _ => {}
        }
    }
}

/// Values of words: they compress as text does.
fn value(rng: &mut Rng, out: &mut Vec<u8>) {
    out.clear();
    while out.len() < VALUE_BYTES {
        let mut word = rng.below(3000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..3 + word % 6 {
            out.push(b'a' + (word % 26) as u8);
            word /= 26;
        }
        out.push(if rng.one_in(4) { b'0' + rng.below(10) as u8 } else { b' ' });
    }
    out.truncate(VALUE_BYTES);
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    for (at, digit) in key.iter_mut().rev().take(12).enumerate() {
        *digit = b'0' + (number / 10_u64.pow(at as u32) % 10) as u8;
    }
    key
}

fn open(configuration: &Configuration, merges: &Arc<Merges>) -> Result<Db> {
    let codec = match configuration.codec.as_str() {
        "deflate" => Codec::Deflate,
        "lz4" => Codec::Lz4,
        _ => Codec::Zstd,
    };
    let builder = Db::builder(&configuration.directory)
        .memory(256 << 20)
        .codec(codec)
        .zstd_level(1)
        .durability(Durability::None)
        .background_threads(1)
        // Gets read blocks, not cached rows.
        .without_rows()
        .listener(Arc::clone(merges) as _);
    let Some(worker) = &configuration.worker else { return builder.open() };
    let (mode, verify) = match configuration.mode {
        Mode::Compress => (PlacementMode::Compress, Verify::Full),
        Mode::Dispatcher => (PlacementMode::Auto, Verify::Full),
        Mode::NearStorage => (PlacementMode::Remote, Verify::Sampled),
        Mode::NearCompute | Mode::Local => (PlacementMode::Remote, Verify::Full),
    };
    let address: Address = worker.parse()?;
    let clock = Arc::new(SystemClock::new());
    let credentials = Credentials::default();
    let workers = Workers::new(vec![address], credentials, Timing::default(), clock)?;
    builder.workers(Arc::new(workers.placing(mode).verifying(verify))).open()
}

/// The state of one run.
struct Run {
    db: Db,
    keyspace: Keyspace,
    merges: Arc<Merges>,
    load: Load,
    rng: Rng,
}

impl Run {
    /// One round; `rate` puts per second at most.
    fn round(&mut self, rate: Option<f64>) -> Result<()> {
        let began = Instant::now();
        let mut bytes = Vec::with_capacity(VALUE_BYTES + 16);
        for put in 0..self.load.puts {
            if let Some(rate) = rate.filter(|_| put % 64 == 0) {
                let due = Duration::from_secs_f64(put as f64 / rate);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
            value(&mut self.rng, &mut bytes);
            self.keyspace.put(key(self.rng.below(self.load.keys())), &bytes)?;
        }
        self.db.wait_until_settled()?;
        self.db.flush()
    }
}

/// Runs `work` while another thread reads; returns the latencies of its reads during merges, and their
/// number. Paced: some reads per second, as due; otherwise as many as there can be.
fn beside_reads(
    run: &mut Run,
    is_paced: bool,
    work: impl FnOnce(&mut Run) -> Result<()>,
) -> Result<(Vec<Duration>, u64)> {
    let (stop, merges) = (AtomicBool::new(false), Arc::clone(&run.merges));
    let (keyspace, keys) = (run.keyspace.clone(), run.load.keys());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut rng, mut latencies, mut reads) = (Rng::new(99), Vec::new(), 0_u64);
            let began = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let due = Duration::from_micros(reads * 1_000_000 / PROBES_PER_SECOND);
                if is_paced {
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                }
                let from = if is_paced { due } else { began.elapsed() };
                let is_merging = merges.running.load(Ordering::Relaxed) > 0;
                keyspace.get(key(rng.below(keys)))?;
                reads += 1;
                if is_merging {
                    latencies.push(began.elapsed().saturating_sub(from));
                }
            }
            Ok((latencies, reads))
        });
        let worked = work(run);
        stop.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap_or_else(|_| Err(Error::retry("reading thread")));
        worked.and(read)
    })
}

fn p99_us(latencies: &mut [Duration]) -> f64 {
    latencies.sort_unstable();
    let at = latencies.len().saturating_sub(1) * 99 / 100;
    latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
}

/// Runs a configuration in this process.
pub(super) fn measure(configuration: &Configuration) -> Result<Measured> {
    let is_pinned = hold_to_core(HOST_CORE);
    let merges = Arc::new(Merges::default());
    let db = open(configuration, &merges)?;
    let keyspace = db.open_or_create_keyspace("bench")?;
    let load = configuration.load;
    let mut run = Run { db, keyspace, merges, load, rng: Rng::new(7) };
    let began = Instant::now();
    let (mut latencies, _) = beside_reads(&mut run, true, |run| {
        (0..load.rounds).try_for_each(|_| run.round(None))?;
        run.db.wait_until_settled()
    })?;
    let puts_per_second = (load.puts * load.rounds) as f64 / began.elapsed().as_secs_f64();
    let (bytes, took) = *run.merges.ended.lock().unwrap_or_else(PoisonError::into_inner);
    let compaction = run.db.statistics().compaction;
    let link: u64 = compaction.workers.iter().map(|worker| worker.link_bytes).sum();
    // Near the storage, pages that the host reads to verify them come over the network.
    let read_back =
        if configuration.mode == Mode::NearStorage { compaction.verified_bytes } else { 0 };
    let own = compaction.workers.iter().map(|worker| worker.host_cpu).sum::<Duration>();
    let host_cpu = (compaction.host_cpu + own).as_secs_f64();
    let worker_cpu = compaction.workers.iter().map(|worker| worker.cpu).sum::<Duration>();
    let worker_cpu = worker_cpu.as_secs_f64();
    let mut gets_per_second = 0.0;
    if let Some(rate) = configuration.write_rate {
        let began = Instant::now();
        let (_, reads) = beside_reads(&mut run, false, |run| {
            (0..load.read_rounds).try_for_each(|_| run.round(Some(rate)))
        })?;
        gets_per_second = reads as f64 / began.elapsed().as_secs_f64();
    }
    Ok(Measured {
        compaction_mb_per_second: bytes as f64 / 1e6 / took.as_secs_f64().max(1e-9),
        puts_per_second,
        gets_per_second,
        p99_us_during_compaction: p99_us(&mut latencies),
        host_compaction_cpu_share: host_cpu / (host_cpu + worker_cpu).max(1e-9),
        link_share: (link + read_back) as f64 / (bytes as f64).max(1.0),
        host_cpu_seconds: host_cpu,
        worker_cpu_seconds: worker_cpu,
        compaction_mb: bytes as f64 / 1e6,
        local_jobs: compaction.done - compaction.remote,
        remote_jobs: compaction.remote,
        fallbacks: compaction.fallbacks,
        is_pinned,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_their_numbers_and_values_compress() {
        assert!(key(9) < key(10) && key(99_999) < key(100_000));
        assert_eq!(&key(120), b"user000000000120");
        let (mut rng, mut bytes) = (Rng::new(1), Vec::new());
        value(&mut rng, &mut bytes);
        assert_eq!(bytes.len(), VALUE_BYTES);
        assert!(bytes.iter().all(|byte| byte.is_ascii()));
    }

    #[test]
    fn percentile_of_few_latencies() {
        assert_eq!(p99_us(&mut []), 0.0);
        let mut latencies: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(p99_us(&mut latencies).round(), 198.0);
    }
}

//! Gets of zipfian keys over many connections, by the protocol of Redis or of memcached, with every value
//! verified.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Result;

/// Skew of YCSB.
const THETA: f64 = 0.99;
const FILL_CONNECTIONS: usize = 8;
const FILL_PIPELINE: usize = 32;
/// Bytes a second.
const MEMCACHED_FILL_RATE: f64 = 10e6;
/// How often a key is written before a cache that refuses it goes without.
const SETS_MAX: usize = 3;

#[derive(Clone, Copy)]
pub(super) enum Protocol {
    Redis,
    Memcached,
}

/// A server with keys `0..keys`.
pub(super) struct Load<'a> {
    pub(super) port: &'a str,
    pub(super) protocol: Protocol,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
}

/// What was read.
pub(super) struct Reads {
    pub(super) gets: u64,
    pub(super) hits: u64,
    /// Latencies of pipelines.
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl Load<'_> {
    /// Writes every key once; to memcached at a rate that its one writer keeps up with, because it evicts
    /// what that is late for.
    pub(super) fn fill(&self) -> Result {
        let (connections, pipeline) = match self.protocol {
            Protocol::Redis => (FILL_CONNECTIONS, FILL_PIPELINE),
            Protocol::Memcached => (1, 1),
        };
        let begun = Instant::now();
        self.on_each(connections, |number, mut connection| {
            let mut keys = (number as u64..self.keys).step_by(connections).peekable();
            while keys.peek().is_some() {
                let now: Vec<u64> = keys.by_ref().take(pipeline).collect();
                let written = now.last().map_or(0, |key| key * self.value_bytes as u64);
                self.set(&mut connection, now)?;
                if let Protocol::Memcached = self.protocol {
                    let due = Duration::from_secs_f64(written as f64 / MEMCACHED_FILL_RATE);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Writes `keys`. memcached refuses some while its memory waits for its device: they are written again.
    fn set(&self, connection: &mut Connection, mut keys: Vec<u64>) -> Result {
        for _ in 0..SETS_MAX {
            keys.iter().for_each(|key| connection.ask_set(*key, self.value_bytes));
            connection.send()?;
            let mut refused = Vec::new();
            for key in keys {
                if !connection.read_set()? {
                    refused.push(key);
                }
            }
            if refused.is_empty() {
                return Ok(());
            }
            keys = refused;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Reads for `time`, `pipeline` keys at once on each connection.
    pub(super) fn read(
        &self,
        connections: usize,
        pipeline: usize,
        time: Duration,
    ) -> Result<Reads> {
        let zipf = Zipf::new(self.keys);
        let read = self.on_each(connections, |number, mut connection| {
            let mut random = seed(number);
            let (mut hits, mut latencies, mut keys) = (0, Vec::new(), Vec::new());
            let begun = Instant::now();
            while begun.elapsed() < time {
                keys.clear();
                keys.extend((0..pipeline).map(|_| zipf.key(&mut random)));
                let from = Instant::now();
                keys.iter().for_each(|key| connection.ask_get(*key));
                connection.send()?;
                for key in &keys {
                    hits += u64::from(connection.read_get(*key, self.value_bytes)?);
                }
                latencies.push(from.elapsed());
            }
            Ok((hits, latencies))
        })?;
        let hits = read.iter().map(|(hits, _)| hits).sum();
        let mut latencies: Vec<Duration> = read.into_iter().flat_map(|(_, all)| all).collect();
        latencies.sort_unstable();
        Ok(Reads {
            gets: (latencies.len() * pipeline) as u64,
            hits,
            p50: percentile(&latencies, 50.0),
            p99: percentile(&latencies, 99.0),
        })
    }

    /// Reads a key at each multiple of `distance` on each connection until `ends`, and returns the latencies,
    /// ascending. That of a get which had to wait for the one before counts from when it was due.
    pub(super) fn read_paced(
        &self,
        connections: usize,
        distance: Duration,
        ends: &AtomicBool,
    ) -> Result<Vec<Duration>> {
        let zipf = Zipf::new(self.keys);
        let read = self.on_each(connections, |number, mut connection| {
            let mut random = seed(number);
            let (mut latencies, mut due) = (Vec::new(), Instant::now());
            while !ends.load(Relaxed) {
                due += distance;
                let wait = due.saturating_duration_since(Instant::now());
                std::thread::sleep(wait);
                let from = if wait.is_zero() { due } else { Instant::now() };
                let key = zipf.key(&mut random);
                connection.ask_get(key);
                connection.send()?;
                if !connection.read_get(key, self.value_bytes)? {
                    return Err(format!("key {key} is missing").into());
                }
                latencies.push(from.elapsed());
            }
            Ok(latencies)
        })?;
        let mut latencies: Vec<_> = read.into_iter().flatten().collect();
        latencies.sort_unstable();
        Ok(latencies)
    }

    /// Runs `work` on a thread for each connection.
    fn on_each<T: Send>(
        &self,
        connections: usize,
        work: impl Fn(usize, Connection) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let run = |number| work(number, Connection::new(self.port, self.protocol)?);
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..connections)
                .map(|number| scope.spawn(move || run(number).map_err(|error| error.to_string())))
                .collect();
            let ended =
                threads.into_iter().map(|it| it.join().unwrap_or_else(|_| Err("panic".into())));
            Ok(ended.collect::<std::result::Result<Vec<T>, String>>()?)
        })
    }
}

struct Connection {
    replies: BufReader<TcpStream>,
    protocol: Protocol,
    asked: Vec<u8>,
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

/// The latency that `share` per cent of the `latencies`, ascending, do not exceed.
pub(super) fn percentile(latencies: &[Duration], share: f64) -> Duration {
    let at = (latencies.len() as f64 * share / 100.0) as usize;
    latencies.get(at).or(latencies.last()).copied().unwrap_or_default()
}

/// The first state of the random numbers of a connection.
const fn seed(number: usize) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1)
}

impl Connection {
    fn new(port: &str, protocol: Protocol) -> Result<Self> {
        let stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
        stream.set_nodelay(true)?;
        let replies = BufReader::with_capacity(64 << 10, stream);
        Ok(Self { replies, protocol, asked: Vec::new() })
    }

    fn ask_set(&mut self, key: u64, value_bytes: usize) {
        let mut value = name(key).into_bytes();
        // Half of it does not compress.
        let mut random = key.wrapping_add(1);
        value.extend(
            (value.len()..value_bytes)
                .map(|at| if at % 2 == 0 { next(&mut random) as u8 } else { b'v' }),
        );
        let name = name(key);
        let head = match self.protocol {
            Protocol::Redis => {
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len())
            }
            Protocol::Memcached => format!("set {name} 0 0 {}\r\n", value.len()),
        };
        self.asked.extend_from_slice(head.as_bytes());
        self.asked.extend_from_slice(&value);
        self.asked.extend_from_slice(b"\r\n");
    }

    fn ask_get(&mut self, key: u64) {
        let name = name(key);
        let text = match self.protocol {
            Protocol::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()),
            Protocol::Memcached => format!("get {name}\r\n"),
        };
        self.asked.extend_from_slice(text.as_bytes());
    }

    fn send(&mut self) -> Result {
        self.replies.get_mut().write_all(&self.asked)?;
        self.asked.clear();
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Whether the server stored it.
    fn read_set(&mut self) -> Result<bool> {
        match self.line()?.as_str() {
            "+OK" | "STORED" => Ok(true),
            "SERVER_ERROR out of memory storing object" => Ok(false),
            other => Err(format!("a set was answered: {other}").into()),
        }
    }

    /// Whether the server had `key`.
    fn read_get(&mut self, key: u64, value_bytes: usize) -> Result<bool> {
        let line = self.line()?;
        if line == "$-1" || line == "END" {
            return Ok(false);
        }
        if !line.starts_with('$') && !line.starts_with("VALUE ") {
            return Err(format!("a get was answered: {line}").into());
        }
        let mut value = vec![0; value_bytes + 2];
        self.replies.read_exact(&mut value)?;
        if !value.starts_with(name(key).as_bytes()) {
            return Err(format!("a get of {key} was answered with another value").into());
        }
        if let Protocol::Memcached = self.protocol {
            self.line()?;
        }
        Ok(true)
    }
}

/// A connection for single commands of Redis.
pub(super) struct Client(Connection);

impl Client {
    pub(super) fn connect(port: &str) -> Result<Self> {
        Ok(Self(Connection::new(port, Protocol::Redis)?))
    }

    /// The reply to a command that replies with one line or one string.
    pub(super) fn call(&mut self, words: &[&str]) -> Result<String> {
        let asked = &mut self.0.asked;
        asked.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            asked.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.0.send()?;
        let line = self.0.line()?;
        if line.starts_with('-') {
            return Err(format!("{} was answered: {line}", words.join(" ")).into());
        }
        let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
            return Ok(line);
        };
        let mut text = vec![0; len + 2];
        self.0.replies.read_exact(&mut text)?;
        Ok(String::from_utf8(text)?)
    }

    /// Waits until the section of INFO has the line.
    pub(super) fn wait_for_info(&mut self, section: &str, wanted: &str) -> Result {
        while !self.call(&["INFO", section])?.lines().any(|line| line == wanted) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The next number of a xorshift generator; its state is not 0.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// YCSB's zipfian numbers (Gray et al., SIGMOD 1994), scattered over the keys, of which there are less than
/// 2^31.
struct Zipf {
    keys: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        let zeta = (1..=keys).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta_2 = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta);
        Self { keys, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn key(&self, random: &mut u64) -> u64 {
        let uniform = (next(random) >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            (self.keys as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        // A prime above the number of keys: a permutation of them.
        rank % self.keys * 2_654_435_761 % self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfian_keys_are_in_range_and_skewed() {
        let (zipf, mut random) = (Zipf::new(1000), 7);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[zipf.key(&mut random) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // Of 1,000 keys the hottest has a share of 1 / zeta, 0.134 at this skew.
        assert!((12_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!(counts.iter().filter(|count| **count > 0).count() > 800);
    }
}

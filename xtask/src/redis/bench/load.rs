//! Gets of zipfian keys over many connections, by the protocol of Redis or of memcached, with every value
//! verified.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Result;

/// Skew of YCSB.
const THETA: f64 = 0.99;
const FILL_CONNECTIONS: usize = 8;
const FILL_PIPELINE: usize = 32;
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
    /// Writes every key once, at a rate that a device keeps up with: memcached evicts what its writer is late
    /// for.
    pub(super) fn fill(&self) -> Result {
        let (connections, pipeline) = match self.protocol {
            Protocol::Redis => (FILL_CONNECTIONS, FILL_PIPELINE),
            Protocol::Memcached => (1, 1),
        };
        self.on_each(connections, |number, mut connection| {
            let mut keys = (number as u64..self.keys).step_by(connections).peekable();
            while keys.peek().is_some() {
                let now: Vec<u64> = keys.by_ref().take(pipeline).collect();
                self.set(&mut connection, now)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Writes `keys`. A memcached whose memory waits for its device refuses some: they are written again.
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
            let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
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
        let at = |share: usize| latencies.get(latencies.len() * share / 100).copied();
        Ok(Reads {
            gets: (latencies.len() * pipeline) as u64,
            hits,
            p50: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
        })
    }

    /// Runs `work` on a thread for each connection.
    fn on_each<T: Send>(
        &self,
        connections: usize,
        work: impl Fn(usize, Connection) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let run = |number| {
            let stream = TcpStream::connect(format!("127.0.0.1:{}", self.port))?;
            stream.set_nodelay(true)?;
            let replies = BufReader::with_capacity(64 << 10, stream);
            let connection = Connection { replies, protocol: self.protocol, asked: Vec::new() };
            work(number, connection)
        };
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

impl Connection {
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

/// The next number of a xorshift generator whose state is not 0.
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

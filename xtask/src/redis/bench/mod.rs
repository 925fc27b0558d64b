//! `cargo xtask redis-bench`: `terrace serve` beside redis-server and memcached, as Markdown tables.
//!
//! In memory: redis-benchmark against redis-server and us by turns, each command without a pipeline and with
//! one of 16. Larger than memory: the load of [`load`] against memcached with extstore and us. There every
//! server is held in a cgroup of its memory and a quarter, so that the system's page cache holds no more of
//! the data for one than for the other; a cache may evict, so the hits stand beside the rate. Pauses:
//! latencies of gets while something else happens. The client runs on the same cores.

mod load;
mod pauses;
mod peer;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::load::{Load, Protocol};
use self::peer::Peer;
use crate::{Result, command};

/// Commands, by their names in redis-benchmark.
const COMMANDS: &str = "set,get,incr,mset,lpush,hset,zadd,sadd";
const CLIENTS: usize = 50;
const PIPELINES: [usize; 2] = [1, 16];
/// Each server and pipeline, by turns; the table has the range.
const ROUNDS: usize = 2;

/// Memory of a server whose data is larger, bytes, and how many times larger the values are.
const MEMORY: u64 = 128 << 20;
const TIMES: u64 = 8;
/// Headers of memcached's items stay in memory, 96 bytes each: those of shorter values would fill it.
const VALUE_BYTES: usize = 4000;

/// Runs `[memory|flash|pauses] [--quick]`, or all parts, with the release build of the server.
pub(crate) fn run(program: &Path, arguments: &[&str]) -> Result {
    let (quick, parts): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|it| **it == "--quick");
    let is_quick = !quick.is_empty();
    if let Some(unknown) = parts.iter().find(|it| !["memory", "flash", "pauses"].contains(it)) {
        return Err(
            format!("usage: redis-bench [memory|flash|pauses] [--quick], got: {unknown}").into()
        );
    }
    let runs = |part| parts.is_empty() || parts.contains(&part);
    if runs("memory") {
        in_memory(program, is_quick)?;
    }
    if runs("flash") {
        larger_than_memory(program, is_quick)?;
    }
    if runs("pauses") {
        pauses::run(program, is_quick)?;
    }
    Ok(())
}

/// Rates of one command, by round.
type Row = (String, Vec<f64>);

fn in_memory(program: &Path, is_quick: bool) -> Result {
    let tools = super::programs().ok_or("redis-bench needs redis-server and redis-benchmark")?;
    let mut table: Vec<(usize, Vec<[Row; 2]>)> = Vec::new();
    for pipeline in PIPELINES {
        let mut rows: Vec<[Row; 2]> = Vec::new();
        for _ in 0..ROUNDS {
            let theirs = Peer::redis(&tools)?;
            let theirs = benchmark(&tools, &theirs, pipeline, is_quick)?;
            let ours = Peer::terrace(program, 4 << 30)?;
            let ours = benchmark(&tools, &ours, pipeline, is_quick)?;
            for (at, (theirs, ours)) in theirs.into_iter().zip(ours).enumerate() {
                if rows.len() == at {
                    rows.push([(theirs.0, Vec::new()), (ours.0, Vec::new())]);
                }
                if let Some([first, second]) = rows.get_mut(at) {
                    first.1.push(theirs.1);
                    second.1.push(ours.1);
                }
            }
        }
        table.push((pipeline, rows));
    }
    println!(
        "\n| command | -P | redis-server, thousand a second | `terrace serve` | ratio of the means |"
    );
    println!("|---|---|---|---|---|");
    for (pipeline, rows) in table {
        for [(name, theirs), (_, ours)] in rows {
            let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
            let shown = |rates: &[f64]| {
                let all = rates.iter().map(|rate| format!("{:.0}", rate / 1e3));
                all.collect::<Vec<_>>().join(", ")
            };
            let ratio = mean(&ours) / mean(&theirs);
            println!(
                "| {name} | {pipeline} | {} | {} | {ratio:.2} |",
                shown(&theirs),
                shown(&ours)
            );
        }
    }
    Ok(())
}

/// The rates of redis-benchmark's commands against `peer`.
fn benchmark(
    tools: &Path,
    peer: &Peer,
    pipeline: usize,
    is_quick: bool,
) -> Result<Vec<(String, f64)>> {
    let requests = if is_quick { 20_000 } else { 100_000 * pipeline.min(8) };
    let mut client = Command::new(tools.join("redis-benchmark"));
    client.args(["-h", "127.0.0.1", "-p", &peer.port, "-t", COMMANDS, "--csv"]);
    client.args(["-r", "1000000", "-d", "100"]);
    for (flag, number) in [("-c", CLIENTS), ("-P", pipeline), ("-n", requests)] {
        client.args([flag, &number.to_string()]);
    }
    let printed = command::output(client)?;
    let rates = printed.lines().skip(1).filter_map(|line| {
        // "SET","83333.34","0.3",...; the name of MSET has a comment.
        let mut fields = line.trim_matches('"').split("\",\"");
        let name = fields.next()?.split(' ').next()?.to_owned();
        Some((name, fields.next()?.parse().ok()?))
    });
    let rates: Vec<(String, f64)> = rates.collect();
    if rates.is_empty() {
        return Err(format!("redis-benchmark printed no rates: {printed}").into());
    }
    Ok(rates)
}

fn larger_than_memory(program: &Path, is_quick: bool) -> Result {
    let memory = if is_quick { MEMORY / 2 } else { MEMORY };
    let keys = memory * TIMES / VALUE_BYTES as u64;
    let seconds = if is_quick { 3 } else { 20 };
    let mut lines = Vec::new();
    for name in ["memcached, extstore", "terrace serve", "terrace serve, window"] {
        let (peer, protocol) = match name {
            "memcached, extstore" => (Peer::memcached(memory)?, Protocol::Memcached),
            "terrace serve" => (Peer::terrace(program, memory)?, Protocol::Redis),
            _ => (Peer::window(program, memory)?, Protocol::Redis),
        };
        let load = Load { port: &peer.port, protocol, keys, value_bytes: VALUE_BYTES };
        load.fill()?;
        for pipeline in PIPELINES {
            // Caches fill first.
            load.read(CLIENTS, pipeline, Duration::from_secs(seconds))?;
            let read = load.read(CLIENTS, pipeline, Duration::from_secs(seconds))?;
            let rss = peer.rss()? as f64 / memory as f64;
            lines.push(format!(
                "| {name} | {pipeline} | {:.1} | {:.1} % | {:.2}, {:.2} ms | {rss:.2} |",
                read.gets as f64 / seconds as f64 / 1e3,
                read.hits as f64 * 100.0 / read.gets as f64,
                read.p50.as_secs_f64() * 1e3,
                read.p99.as_secs_f64() * 1e3,
            ));
        }
    }
    println!(
        "\n| server | -P | gets, thousand a second | hits | P50, P99 of a pipeline | RSS over memory |"
    );
    println!("|---|---|---|---|---|---|");
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

//! The demand that a store measured, from its statistics in the form of `terrace stats --json`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use terracedb::stats::{MissCurve, MissPoint};
use terracedb::{Error, Result};
use workload::plan::Demand;

/// The largest statistics file, in bytes. They take a few KiB.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
struct File {
    curves: Option<Curves>,
}

/// The answer of `/stats.json`.
#[derive(Debug, Deserialize)]
struct Server {
    store: Option<File>,
}

#[derive(Debug, Deserialize)]
struct Curves {
    operations: u64,
    row_hits: u64,
    rows: Curve,
    pages: Curve,
}

#[derive(Debug, Deserialize)]
struct Curve {
    accesses: u64,
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Point {
    bytes: u64,
    misses: f64,
}

impl Curve {
    fn to_miss_curve(&self) -> MissCurve {
        let mut points: Vec<_> = self
            .points
            .iter()
            .map(|Point { bytes, misses }| MissPoint { bytes: *bytes, misses: *misses })
            .collect();
        points.sort_by_key(|point| point.bytes);
        MissCurve { accesses: self.accesses, points }
    }
}

/// The demand in the statistics at `path`, less that of the earlier statistics at `since`.
///
/// # Errors
/// `Invalid` if a file has no miss-ratio curves, or there are no lookups.
pub(super) fn demand(path: &Path, since: Option<&Path>) -> Result<Demand> {
    let now = read(path)?;
    let (mut operations, mut row_hits) = (now.operations, now.row_hits);
    let (mut rows, mut pages) = (now.rows.to_miss_curve(), now.pages.to_miss_curve());
    if let Some(path) = since {
        let then = read(path)?;
        operations = operations.saturating_sub(then.operations);
        row_hits = row_hits.saturating_sub(then.row_hits);
        rows = rows.since(&then.rows.to_miss_curve());
        pages = pages.since(&then.pages.to_miss_curve());
    }
    if operations == 0 {
        return Err(Error::invalid("statistics")
            .at(path.display())
            .expected("lookups")
            .got("none"));
    }
    Ok(Demand::measured(operations, &rows, &pages, row_hits))
}

/// The demand of a running server: the statistics of its admin port at `address`.
///
/// # Errors
/// `Invalid` if it cannot be reached, or has no curves; there are no lookups.
pub(super) fn demand_of_server(address: &str) -> Result<Demand> {
    let refused = |got: String| {
        Error::invalid("--addr")
            .at(address)
            .expected("the admin port of `terrace serve`, with statistics")
            .got(got)
    };
    let text = fetch(address).map_err(|error| refused(error.to_string()))?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    if head.split(' ').nth(1).is_none_or(|status| status != "200") {
        return Err(refused(head.lines().next().unwrap_or_default().to_owned()));
    }
    let server: Server = serde_json::from_str(body).map_err(|error| refused(error.to_string()))?;
    let now = server.store.and_then(|file| file.curves);
    let now = now.filter(|it| !it.rows.points.is_empty() || !it.pages.points.is_empty());
    let now = now.ok_or_else(|| refused("no curves".to_owned()))?;
    if now.operations == 0 {
        return Err(refused("no lookups yet".to_owned()));
    }
    let (rows, pages) = (now.rows.to_miss_curve(), now.pages.to_miss_curve());
    Ok(Demand::measured(now.operations, &rows, &pages, now.row_hits))
}

/// A server that says nothing for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of the admin port at `address`, with its head.
fn fetch(address: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    write!(socket, "GET /stats.json HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    socket.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn read(path: &Path) -> Result<Curves> {
    let refused = |got: String| {
        Error::invalid("statistics")
            .at(path.display())
            .expected("a file of `terrace replay --stats` or `terrace bench --stats`")
            .got(got)
    };
    let metadata = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(refused(
            if metadata.is_file() { "over 16 MiB" } else { "no regular file" }.to_owned(),
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let file: File = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let curves = file.curves.filter(|it| !it.rows.points.is_empty() || !it.pages.points.is_empty());
    curves.ok_or_else(|| refused("no curves, because the store had no memory for them".to_owned()))
}

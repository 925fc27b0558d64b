//! The admin port: `GET /` is a page with live charts, of `GET /stats.json`; `GET /metrics` has the
//! Prometheus text format, and `GET /healthz` says whether the store takes writes. HTTP/1.0 with one request
//! a connection: these paths need no more, and no HTTP library.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::latency::BOUNDS_US;
use crate::metrics::metrics;
use crate::shared::Shared;

/// A request line and its headers, bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that are answered at once.
const ANSWERS: usize = 16;

/// Answers requests until the server ends, each within a few seconds.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let answers = Arc::new(Semaphore::new(ANSWERS));
    loop {
        let Ok(permit) = Arc::clone(&answers).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::task::spawn_local(async move {
            // A client that is slow or leaves gets no answer.
            drop(tokio::time::timeout(TIMEOUT, answer(socket, &shared)).await);
            drop(permit);
        });
    }
}

/// The page: one file with its style and code.
const PAGE: &str = include_str!("page.html");

async fn answer(mut socket: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let mut piece = [0; 1024];
        let read = socket.read(&mut piece).await?;
        if read == 0 {
            break;
        }
        request.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let plain = "text/plain; version=0.0.4";
    let (status, kind, text) = match line.split(|byte| *byte == b' ').nth(1) {
        Some(b"/metrics") => {
            let shared = Arc::clone(shared);
            let text = tokio::task::spawn_blocking(move || metrics(&shared)).await;
            match text {
                Ok(text) => ("200 OK", plain, text),
                Err(error) => ("500 Internal Server Error", plain, format!("{error}\n")),
            }
        }
        Some(b"/stats.json") => {
            let shared = Arc::clone(shared);
            match tokio::task::spawn_blocking(move || statistics(&shared)).await {
                Ok(text) => ("200 OK", "application/json", text),
                Err(error) => ("500 Internal Server Error", plain, format!("{error}\n")),
            }
        }
        Some(b"/") => ("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        Some(b"/healthz") => match shared.keys.db.statistics().poisoned {
            None => ("200 OK", plain, "ok\n".to_owned()),
            Some(why) => {
                ("503 Service Unavailable", plain, format!("the store refuses writes: {why}\n"))
            }
        },
        _ => {
            let paths = "the paths are /, /stats.json, /metrics and /healthz\n";
            ("404 Not Found", plain, paths.to_owned())
        }
    };
    let length = text.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; \
         script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(text.as_bytes()).await?;
    socket.shutdown().await
}

/// The statistics of the store and the server, as JSON.
fn statistics(shared: &Shared) -> String {
    let store = shared.config.statistics.map(|to_json| to_json(&shared.keys.db));
    let counts = &shared.counts;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    format!(
        "{{\"server\":{{\"version\":\"{}\",\"uptime_seconds\":{},\"clients\":{},\"commands\":{},\
         \"errors\":{},\"input_bytes\":{},\"output_bytes\":{},\
         \"latency\":{{\"bounds_us\":{BOUNDS_US:?},\"counts\":{:?}}}}},\"store\":{}}}\n",
        env!("CARGO_PKG_VERSION"),
        shared.started.elapsed().as_secs_f64(),
        shared.clients.count(),
        load(&counts.commands),
        load(&counts.failed),
        load(&counts.input_bytes),
        load(&counts.output_bytes),
        counts.latency.counts(),
        store.as_deref().unwrap_or("null"),
    )
}

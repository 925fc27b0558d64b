//! The admin port: `GET /metrics`, in the Prometheus text format, and `GET /healthz`. HTTP/1.0 with one
//! request a connection: the two paths need no more, and no HTTP library.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

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
    let (status, text) = match line.split(|byte| *byte == b' ').nth(1) {
        Some(b"/metrics") => {
            let shared = Arc::clone(shared);
            let text = tokio::task::spawn_blocking(move || metrics(&shared)).await;
            match text {
                Ok(text) => ("200 OK", text),
                Err(error) => ("500 Internal Server Error", format!("{error}\n")),
            }
        }
        Some(b"/healthz") => match shared.keys.db.statistics().poisoned {
            None => ("200 OK", "ok\n".to_owned()),
            Some(why) => ("503 Service Unavailable", format!("the store refuses writes: {why}\n")),
        },
        _ => ("404 Not Found", "the paths are /metrics and /healthz\n".to_owned()),
    };
    let length = text.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(text.as_bytes()).await?;
    socket.shutdown().await
}

/// The metrics, from the statistics of the store and the counters of the server.
fn metrics(shared: &Shared) -> String {
    let statistics = shared.keys.db.statistics();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, u64)>| {
        // Writing to a string cannot fail.
        let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _written = writeln!(text, "{name}{labels} {value}");
        }
    };
    let one = |value: u64| vec![(String::new(), value)];
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &shared.counts;
    family("terrace_connected_clients", "gauge", "Clients.", one(shared.clients.count() as u64));
    for (name, help, counter) in [
        ("connections", "Connections accepted.", &counts.connections),
        ("connections_rejected", "Connections refused by a limit.", &counts.rejected),
        ("connections_cut_off", "Connections ended at a buffer limit.", &counts.cut_off),
        ("commands", "Commands executed.", &counts.commands),
        ("command_errors", "Commands that replied with an error.", &counts.failed),
        ("network_input_bytes", "Bytes read from clients.", &counts.input_bytes),
        ("network_output_bytes", "Bytes of replies.", &counts.output_bytes),
        ("keys_expired", "Keys deleted because they expired.", &shared.keys.expired),
    ] {
        family(&format!("terrace_{name}_total"), "counter", help, one(load(counter)));
    }
    let databases = (0..crate::keys::DATABASES).map(|number| {
        let count = u64::try_from(shared.keys.count(number)).unwrap_or(0);
        (format!("{{database=\"{number}\"}}"), count)
    });
    family("terrace_keys", "gauge", "Keys, with those not swept yet.", databases.collect());
    let hits = &statistics.hits;
    let tiers = [
        ("memtable", hits.memtable),
        ("row", hits.row),
        ("page", hits.page),
        ("scm", hits.scm),
        ("flash", hits.flash),
        ("absent", hits.absent),
    ];
    let tiers = tiers.map(|(tier, count)| (format!("{{tier=\"{tier}\"}}"), count)).to_vec();
    family("terrace_lookups_total", "counter", "Lookups by the place of the value.", tiers);
    let memory = &statistics.memory;
    family("terrace_memory_limit_bytes", "gauge", "The memory limit.", one(memory.limit));
    let components = memory.components.iter();
    let components =
        components.map(|part| (format!("{{component=\"{}\"}}", part.name), part.used)).collect();
    family("terrace_memory_bytes", "gauge", "Memory in use by component.", components);
    family("terrace_log_bytes", "gauge", "The write-ahead log.", one(statistics.log_bytes));
    let debt = statistics.compaction.debt_bytes;
    family("terrace_compaction_debt_bytes", "gauge", "Bytes to compact.", one(debt));
    let keyspaces = statistics.keyspaces.iter();
    let keyspaces = keyspaces
        .map(|keyspace| (format!("{{keyspace=\"{}\"}}", keyspace.name), keyspace.table_bytes))
        .collect();
    family("terrace_table_bytes", "gauge", "Tables by keyspace.", keyspaces);
    let poisoned = u64::from(statistics.poisoned.is_some());
    family("terrace_writes_refused", "gauge", "1 if the store refuses writes.", one(poisoned));
    text
}

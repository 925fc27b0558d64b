//! `terrace serve`: the store behind the Redis protocol, until SIGTERM.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use server::{AppendFsync, Config as ServerConfig, DATABASES, DatabaseKind, TlsConfig, serve};
use terracedb::Result;

use crate::config::{Config, Flags};
use crate::outcome::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory; it is created if it is missing
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where clients connect; without a password, a loopback address
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,
    /// A unix socket for clients, beside --listen; only its owner can connect
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Where a page with live charts, /metrics, /stats.json and /healthz are served
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<SocketAddr>,
    /// When a write is durable: before its reply, within a second, or when the store flushes
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Fsync::Everysec)]
    appendfsync: Fsync,
    /// The password that clients give with AUTH
    /// (or the variable TERRACE_REQUIREPASS, which other users of the machine cannot read)
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// The file of the users of ACL, a line `user NAME RULES` each; ACL SAVE writes it
    #[arg(long, value_name = "FILE")]
    aclfile: Option<PathBuf>,
    /// The server's certificate and its chain, in PEM: clients of --listen speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities, in PEM: clients must present a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// The kind of a database: ordered, keep, window=SIZE (also with ,clock), or in the words of
    /// maxmemory-policy noeviction, allkeys-fifo=SIZE, allkeys-lru=SIZE; it cannot be changed later (may be
    /// repeated)
    #[arg(long, value_name = "N=KIND", value_parser = database)]
    database: Vec<(u8, DatabaseKind)>,
    /// The most clients at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    maxclients: usize,
    /// Threads that serve connections [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fsync {
    Always,
    Everysec,
    No,
}

/// A number of a database and its kind.
fn database(text: &str) -> std::result::Result<(u8, DatabaseKind), String> {
    let (number, kind) = text.split_once('=').ok_or("a number, `=` and a kind are expected")?;
    let number = number.parse().ok().filter(|number| *number < DATABASES);
    let number =
        number.ok_or_else(|| format!("databases have the numbers 0 to {}", DATABASES - 1))?;
    Ok((number, kind.parse().map_err(|error: terracedb::Error| error.to_string())?))
}

/// Serves the store. Prints one line with the address once clients can connect.
///
/// # Errors
/// As [`Config::open`] and [`serve`].
pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = Config::of_store(&args.data, &args.flags)?.open(true)?;
    let defaults = ServerConfig::new(args.listen);
    let config =
        ServerConfig {
            unix_socket: args.unix_socket.clone(),
            admin: args.admin,
            statistics: Some(|db| crate::stats::to_json(db, &db.statistics()).to_string()),
            password: args
                .requirepass
                .clone()
                .or_else(|| std::env::var("TERRACE_REQUIREPASS").ok())
                // An empty password protects nothing.
                .filter(|password| !password.is_empty()),
            acl_file: args.aclfile.clone(),
            tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(certificates, key)| {
                TlsConfig { certificates, key, authorities: args.tls_ca.clone() }
            }),
            databases: args.database.clone(),
            append_fsync: match args.appendfsync {
                Fsync::Always => AppendFsync::Always,
                Fsync::Everysec => AppendFsync::EverySecond,
                Fsync::No => AppendFsync::No,
            },
            clients_max: args.maxclients,
            threads: args.threads.unwrap_or(defaults.threads),
            ..defaults
        };
    serve(db, config, |address| {
        let mut out = std::io::stdout();
        // A supervisor that does not read the line misses it; clients can connect all the same.
        let _ = writeln!(out, "ready: {address}").and_then(|()| out.flush());
    })?;
    Ok(Outcome::Done)
}

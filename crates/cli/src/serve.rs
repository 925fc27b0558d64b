//! `terrace serve`: the store behind the Redis protocol, until SIGTERM.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use server::{AppendFsync, Config as ServerConfig, DatabaseKind, TlsConfig, serve};
use terracedb::Result;

use crate::config::{Config, Flags, ServeValues};
use crate::outcome::Outcome;
use crate::parsers::database;
use crate::place;

/// The address of clients by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6379);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory; it is created if it is missing
    #[arg(long, value_name = "DIR", value_parser = place::store())]
    data: PathBuf,
    /// Where clients connect; without a password, a loopback address
    /// [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// A unix socket for clients, beside --listen; only its owner can connect
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Where a page with live charts, /metrics, /stats.json and /healthz are served
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<SocketAddr>,
    /// When a write is durable: before its reply, within a second, or when the store flushes
    /// [default: everysec]
    #[arg(long, value_enum, value_name = "WHEN")]
    appendfsync: Option<Fsync>,
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
    /// The most clients at once [default: 10000]
    #[arg(long, value_name = "N")]
    maxclients: Option<usize>,
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

impl From<Fsync> for AppendFsync {
    fn from(when: Fsync) -> Self {
        match when {
            Fsync::Always => Self::Always,
            Fsync::Everysec => Self::EverySecond,
            Fsync::No => Self::No,
        }
    }
}

/// The certificate and key of the flags, or of the settings.
fn tls(args: &Args, settings: &ServeValues) -> Result<Option<TlsConfig>> {
    let of = |flag: &Option<PathBuf>, setting: &Option<PathBuf>| flag.clone().or(setting.clone());
    let certificates = of(&args.tls_cert, &settings.tls_cert);
    let authorities = of(&args.tls_ca, &settings.tls_ca);
    match (certificates, of(&args.tls_key, &settings.tls_key)) {
        (Some(certificates), Some(key)) => Ok(Some(TlsConfig { certificates, key, authorities })),
        (None, None) if authorities.is_none() => Ok(None),
        (certificates, _) => Err(terracedb::Error::invalid("TLS of the server")
            .expected("`serve.tls-cert` and `serve.tls-key`, or their flags")
            .got(if certificates.is_some() { "a certificate alone" } else { "no certificate" })),
    }
}

/// Serves the store. Prints one line with the address once clients can connect.
///
/// # Errors
/// As [`Config::open`] and [`serve`].
pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let store = Config::of_store(&args.data, &args.flags)?;
    let settings = store.serve();
    let listen = args.listen.or(settings.listen);
    let defaults = ServerConfig::new(listen.unwrap_or(LISTEN));
    let tls = tls(args, settings)?;
    // A flag overrides the setting of the same database.
    let mut databases = args.database.clone();
    let is_flagged = |number: u8| args.database.iter().any(|(flagged, _)| *flagged == number);
    let set = settings.databases.iter();
    databases.extend(set.filter(|(number, _)| !is_flagged(*number)).cloned());
    let config = ServerConfig {
        unix_socket: args.unix_socket.clone().or_else(|| settings.unix_socket.clone()),
        admin: args.admin.or(settings.admin),
        statistics: Some(|db| crate::stats::to_json(db, &db.statistics()).to_string()),
        password: args
            .requirepass
            .clone()
            .or_else(|| std::env::var("TERRACE_REQUIREPASS").ok())
            // An empty password protects nothing.
            .filter(|password| !password.is_empty()),
        acl_file: args.aclfile.clone().or_else(|| settings.aclfile.clone()),
        tls,
        databases,
        append_fsync: args
            .appendfsync
            .map(AppendFsync::from)
            .or(settings.appendfsync)
            .unwrap_or(defaults.append_fsync),
        clients_max: args.maxclients.or(settings.maxclients).unwrap_or(defaults.clients_max),
        threads: args.threads.unwrap_or(defaults.threads),
        ..defaults
    };
    serve(
        || store.open(true),
        config,
        |address| {
            let mut out = std::io::stdout();
            // A supervisor that does not read the line misses it; clients can connect all the same.
            let _ = writeln!(out, "ready: {address}").and_then(|()| out.flush());
        },
    )?;
    Ok(Outcome::Done)
}

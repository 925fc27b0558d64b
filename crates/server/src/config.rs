//! [`Config`]: the settings of a server. [`crate::serve`] takes them.

use std::net::SocketAddr;
use std::path::PathBuf;

use terracedb::Db;

use crate::space::DatabaseKind;

/// When a write is durable, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before its reply is sent.
    Always,
    /// Within a second.
    EverySecond,
    /// When the store flushes, or the system writes its pages back.
    No,
}

impl AppendFsync {
    /// The name in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::No => "no",
        }
    }
}

/// The files of encrypted connections, in PEM.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and its authority.
    pub certificates: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Clients must present a certificate of one of these authorities.
    pub authorities: Option<PathBuf>,
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// A unix socket for clients, beside `listen`.
    pub unix_socket: Option<PathBuf>,
    /// Where metrics and health are read; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// The store's statistics as JSON, for the page and `/stats.json` of `admin`.
    pub statistics: Option<fn(&Db) -> String>,
    /// The password of AUTH.
    pub password: Option<String>,
    /// The file of the users, read at the start and by ACL LOAD, and written by ACL SAVE.
    pub acl_file: Option<PathBuf>,
    /// Connections to `listen` are encrypted.
    pub tls: Option<TlsConfig>,
    /// Databases that are not ordered, by number.
    pub databases: Vec<(u8, DatabaseKind)>,
    /// When a write is durable.
    pub append_fsync: AppendFsync,
    /// The most clients at once.
    pub clients_max: usize,
    /// Threads that serve connections.
    pub threads: usize,
    /// The most bytes of an unfinished request.
    pub query_bytes_max: usize,
    /// The most bytes of replies that a client does not read.
    pub output_bytes_max: usize,
}

impl Config {
    /// The defaults, at `listen`.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            unix_socket: None,
            admin: None,
            statistics: None,
            password: None,
            acl_file: None,
            tls: None,
            databases: Vec::new(),
            append_fsync: AppendFsync::EverySecond,
            clients_max: 10_000,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            query_bytes_max: 128 << 20,
            output_bytes_max: 64 << 20,
        }
    }
}

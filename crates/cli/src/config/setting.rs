//! All settings, each with its key, a description and the accepted values.
//!
//! Configuration files, environment variables, `--set`, `config print` and the reference in
//! docs/reference/settings.md all use this list. The values themselves are in `values`.

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    Memory,
    Durability,
    SyncInterval,
    Codec,
    ZstdLevel,
    DeflateLevel,
    BackgroundThreads,
    CompactionRate,
    WriteThrough,
    HotPages,
    ScrubRate,
    ScrubInterval,
    ScmPath,
    ScmSize,
    ScmWriteBudget,
    ScmPlacement,
    FlashPath,
    RemoteUrl,
    RemoteEndpoint,
    RemoteRegion,
    RemoteColdAfter,
    LogPath,
    LogLanes,
    CompactionWorkers,
    CompactionTokenFile,
    CompactionTlsCa,
    CompactionTlsCert,
    CompactionTlsKey,
    CompactionAllowPlaintext,
    CompactionPlacement,
    CompactionFallback,
    CompactionVerify,
    ServeListen,
    ServeUnixSocket,
    ServeAdmin,
    ServeAppendfsync,
    ServeDatabases,
    ServeMaxclients,
    ServeAclfile,
    ServeTlsCert,
    ServeTlsKey,
    ServeTlsCa,
}

impl Setting {
    pub(crate) const ALL: [Self; 42] = [
        Self::Memory,
        Self::Durability,
        Self::SyncInterval,
        Self::Codec,
        Self::ZstdLevel,
        Self::DeflateLevel,
        Self::BackgroundThreads,
        Self::CompactionRate,
        Self::WriteThrough,
        Self::HotPages,
        Self::ScrubRate,
        Self::ScrubInterval,
        Self::ScmPath,
        Self::ScmSize,
        Self::ScmWriteBudget,
        Self::ScmPlacement,
        Self::FlashPath,
        Self::RemoteUrl,
        Self::RemoteEndpoint,
        Self::RemoteRegion,
        Self::RemoteColdAfter,
        Self::LogPath,
        Self::LogLanes,
        Self::CompactionWorkers,
        Self::CompactionTokenFile,
        Self::CompactionTlsCa,
        Self::CompactionTlsCert,
        Self::CompactionTlsKey,
        Self::CompactionAllowPlaintext,
        Self::CompactionPlacement,
        Self::CompactionFallback,
        Self::CompactionVerify,
        Self::ServeListen,
        Self::ServeUnixSocket,
        Self::ServeAdmin,
        Self::ServeAppendfsync,
        Self::ServeDatabases,
        Self::ServeMaxclients,
        Self::ServeAclfile,
        Self::ServeTlsCert,
        Self::ServeTlsKey,
        Self::ServeTlsCa,
    ];

    /// The key in a configuration file, as `section.name`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Durability => "durability",
            Self::SyncInterval => "sync-interval",
            Self::Codec => "codec",
            Self::ZstdLevel => "zstd-level",
            Self::DeflateLevel => "deflate-level",
            Self::BackgroundThreads => "background-threads",
            Self::CompactionRate => "compaction-rate",
            Self::WriteThrough => "write-through",
            Self::HotPages => "hot-pages",
            Self::ScrubRate => "scrub-rate",
            Self::ScrubInterval => "scrub-interval",
            Self::ScmPath => "scm.path",
            Self::ScmSize => "scm.size",
            Self::ScmWriteBudget => "scm.write-budget",
            Self::ScmPlacement => "scm.placement",
            Self::FlashPath => "flash.path",
            Self::RemoteUrl => "remote.url",
            Self::RemoteEndpoint => "remote.endpoint",
            Self::RemoteRegion => "remote.region",
            Self::RemoteColdAfter => "remote.cold-after",
            Self::LogPath => "log.path",
            Self::LogLanes => "log.lanes",
            Self::CompactionWorkers => "compaction.workers",
            Self::CompactionTokenFile => "compaction.token-file",
            Self::CompactionTlsCa => "compaction.tls-ca",
            Self::CompactionTlsCert => "compaction.tls-cert",
            Self::CompactionTlsKey => "compaction.tls-key",
            Self::CompactionAllowPlaintext => "compaction.allow-plaintext",
            Self::CompactionPlacement => "compaction.placement",
            Self::CompactionFallback => "compaction.fallback",
            Self::CompactionVerify => "compaction.verify",
            Self::ServeListen => "serve.listen",
            Self::ServeUnixSocket => "serve.unix-socket",
            Self::ServeAdmin => "serve.admin",
            Self::ServeAppendfsync => "serve.appendfsync",
            Self::ServeDatabases => "serve.databases",
            Self::ServeMaxclients => "serve.maxclients",
            Self::ServeAclfile => "serve.aclfile",
            Self::ServeTlsCert => "serve.tls-cert",
            Self::ServeTlsKey => "serve.tls-key",
            Self::ServeTlsCa => "serve.tls-ca",
        }
    }

    /// The setting with this key.
    pub(crate) fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.key() == key)
    }

    /// The environment variable that sets it, such as TERRACE_SCM__PATH.
    pub(crate) fn variable(self) -> String {
        let name = self.key().replace('.', "__").replace('-', "_");
        format!("TERRACE_{}", name.to_ascii_uppercase())
    }

    /// A description in one sentence.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Memory => "Memory limit of a store: write buffers, caches, metadata",
            Self::Durability => {
                "When a write of the store returns: once in the log (`none`), once in the log and durable \
                 within `sync-interval` (`interval`), or once durable (`sync`)"
            }
            Self::SyncInterval => "Longest time until an `interval` write is durable",
            Self::Codec => "Compression of new tables",
            Self::ZstdLevel => "Compression level if `codec` is `zstd`",
            Self::DeflateLevel => "Compression level if `codec` is `deflate`",
            Self::BackgroundThreads => {
                "Threads that flush and merge, at nice 5; also the limit of concurrent merges; a number \
                 above the cores of the machine counts as the cores, but never as less than 2"
            }
            Self::CompactionRate => {
                "Bytes per second that all merges together may read and write; 0 means no limit"
            }
            Self::WriteThrough => {
                "Whether flushes and merges put the pages that they write into the page cache while it is \
                 not full"
            }
            Self::HotPages => {
                "Whether a list of hot pages is kept, which the next open reads ahead into the page cache"
            }
            Self::ScrubRate => {
                "Bytes per second that the background scrub reads and verifies; 0 turns it off"
            }
            Self::ScrubInterval => "Time between two background scrubs of all tables",
            Self::ScmPath => {
                "Place of the SCM tier: a directory or file, a DAX or block device, `numa:N`, or \
                 `emulated:PROFILE`"
            }
            Self::ScmSize => "Size of the SCM tier",
            Self::ScmWriteBudget => {
                "Bytes per second that may be written to the SCM tier, averaged over a minute; 0 means no \
                 limit"
            }
            Self::ScmPlacement => {
                "Placement of pages in DRAM and SCM: by measured cost, DRAM first, SCM first, or by kind \
                 (metadata in DRAM)"
            }
            Self::FlashPath => {
                "The store's directory; a relative path is relative to the configuration file"
            }
            Self::RemoteUrl => {
                "The prefix of an object store that the oldest tables move to; it belongs to this store \
                 alone, and the store needs it from then on"
            }
            Self::RemoteEndpoint => "The URL of the object store; that of AWS without it",
            Self::RemoteRegion => "The region of the bucket",
            Self::RemoteColdAfter => {
                "A table moves to the object store once nothing older lay below its keys for this long, \
                 while the store was open"
            }
            Self::LogPath => {
                "Directories on storage-class memory (DAX, or memory such as `/dev/shm/log`), one a device, \
                 that hold the log of a new store; an existing store finds them by itself, and needs the \
                 setting if they are mounted elsewhere; an array in a file, separated by commas elsewhere"
            }
            Self::LogLanes => {
                "Lanes of each device of a new log on storage-class memory: threads that write to it at once"
            }
            Self::CompactionWorkers => {
                "Addresses of `terrace worker` processes that merges are offered to, separated by commas; \
                 merges that no worker takes or ends run in this process"
            }
            Self::CompactionTokenFile => "A file with the token that the workers know",
            Self::CompactionTlsCa => {
                "Authorities that signed the certificates of workers, in PEM: links over TCP are encrypted, \
                 and may leave this machine"
            }
            Self::CompactionTlsCert => {
                "The certificate of this host and its chain, in PEM, for workers that ask for one"
            }
            Self::CompactionTlsKey => "The private key of `compaction.tls-cert`, in PEM",
            Self::CompactionAllowPlaintext => {
                "Whether links over TCP without `compaction.tls-ca` may leave this machine, so that the \
                 token and the content of merges can be read on the way"
            }
            Self::CompactionPlacement => {
                "Where merges run: at workers (`remote`); here, while workers compress (`compress`); or \
                 where the measured rates say that it is fastest (`auto`)"
            }
            Self::CompactionFallback => {
                "Whether merges that no worker takes or ends run in this process; otherwise they wait, and \
                 writers with them"
            }
            Self::CompactionVerify => {
                "Whether all pages that a worker wrote are read before they are installed (`full`), or one \
                 read in 64 (`sampled`), which spares the link to a remote storage; `elsewhere`: as \
                 `sampled`, after another worker read all"
            }
            Self::ServeListen => "`terrace serve`: the address and port for clients",
            Self::ServeUnixSocket => "`terrace serve`: a unix socket for clients of the same user",
            Self::ServeAdmin => {
                "`terrace serve`: the address and port of the page with charts, /metrics and /healthz"
            }
            Self::ServeAppendfsync => "`terrace serve`: when a write is durable",
            Self::ServeDatabases => {
                "`terrace serve`: the kinds of databases, an array in a file, separated by spaces elsewhere; \
                 a database that is not named is `ordered`; the kind of one that has data cannot change"
            }
            Self::ServeMaxclients => "`terrace serve`: the most clients at once",
            Self::ServeAclfile => "`terrace serve`: the file of the users of ACL",
            Self::ServeTlsCert => "`terrace serve`: the server's certificate and its chain, in PEM",
            Self::ServeTlsKey => "`terrace serve`: the private key of `serve.tls-cert`, in PEM",
            Self::ServeTlsCa => {
                "`terrace serve`: authorities, in PEM: clients must present a certificate of one of them"
            }
        }
    }

    /// The accepted values.
    pub(crate) const fn expects(self) -> &'static str {
        match self {
            Self::Memory => "a size of at least 64MiB, as in 512MiB",
            Self::Durability => "`none`, `interval` or `sync`",
            Self::SyncInterval => "a time of at least 1ms, as in 100ms",
            Self::Codec => "`none`, `lz4`, `zstd` or `deflate`",
            Self::ZstdLevel => "a whole number from -7 to 22",
            Self::DeflateLevel => "a whole number from 1 to 9",
            Self::BackgroundThreads => "a whole number from 1 to 1024",
            Self::CompactionRate => "a size, as in 100MiB",
            Self::WriteThrough | Self::HotPages => "`true` or `false`",
            Self::ScrubRate => "a size, as in 4MiB",
            Self::ScrubInterval => "a time of at least 1s, as in 7d",
            Self::ScmPath => "a path, `numa:N` or `emulated:PROFILE`",
            Self::ScmSize => "a size of at least 1MiB, as in 8GiB",
            Self::ScmWriteBudget => "a size, as in 64MiB",
            Self::ScmPlacement => "`adaptive`, `dram-first`, `scm-first` or `by-kind`",
            Self::FlashPath => "a directory",
            Self::RemoteUrl => "`s3://BUCKET/PREFIX`",
            Self::RemoteEndpoint => "`http://HOST:PORT` or `https://HOST`",
            Self::RemoteRegion => "a name",
            Self::RemoteColdAfter => "a time of at least 1s, as in 1d",
            Self::LogPath => "directories, separated by commas",
            Self::LogLanes => "a whole number from 1 to 16",
            Self::CompactionWorkers => "`unix:PATH` or `tcp://HOST:PORT`, separated by commas",
            Self::CompactionTokenFile
            | Self::CompactionTlsCa
            | Self::CompactionTlsCert
            | Self::CompactionTlsKey => "a file",
            Self::CompactionAllowPlaintext => "`true` or `false`",
            Self::CompactionPlacement => "`remote`, `compress` or `auto`",
            Self::CompactionFallback => "`true` or `false`",
            Self::CompactionVerify => "`full`, `sampled` or `elsewhere`",
            Self::ServeListen | Self::ServeAdmin => "an address and a port, as in 127.0.0.1:6379",
            Self::ServeAppendfsync => "`always`, `everysec` or `no`",
            Self::ServeDatabases => {
                "`N=KIND` with N from 0 to 15 and `ordered`, `keep`, `window=SIZE`, `window=SIZE,clock`, \
                 `noeviction`, `allkeys-fifo=SIZE` or `allkeys-lru=SIZE`"
            }
            Self::ServeMaxclients => "a whole number from 1 on",
            Self::ServeUnixSocket
            | Self::ServeAclfile
            | Self::ServeTlsCert
            | Self::ServeTlsKey
            | Self::ServeTlsCa => "a file",
        }
    }

    /// The call that changes it while a store is open; `None` if the store must be reopened.
    pub(crate) const fn while_open(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("Resources::set_memory"),
            Self::Durability
            | Self::SyncInterval
            | Self::Codec
            | Self::ZstdLevel
            | Self::DeflateLevel
            | Self::CompactionRate
            | Self::WriteThrough
            | Self::ScrubRate
            | Self::ScrubInterval => Some("Db::change_settings"),
            Self::BackgroundThreads
            | Self::HotPages
            | Self::ScmPath
            | Self::ScmSize
            | Self::ScmWriteBudget
            | Self::ScmPlacement
            | Self::FlashPath
            | Self::RemoteUrl
            | Self::RemoteEndpoint
            | Self::RemoteRegion
            | Self::RemoteColdAfter
            | Self::LogPath
            | Self::LogLanes
            | Self::CompactionWorkers
            | Self::CompactionTokenFile
            | Self::CompactionTlsCa
            | Self::CompactionTlsCert
            | Self::CompactionTlsKey
            | Self::CompactionAllowPlaintext
            | Self::CompactionPlacement
            | Self::CompactionFallback
            | Self::CompactionVerify
            | Self::ServeListen
            | Self::ServeUnixSocket
            | Self::ServeAdmin
            | Self::ServeAppendfsync
            | Self::ServeDatabases
            | Self::ServeMaxclients
            | Self::ServeAclfile
            | Self::ServeTlsCert
            | Self::ServeTlsKey
            | Self::ServeTlsCa => None,
        }
    }

    /// The behaviour without a value.
    pub(crate) const fn unset(self) -> &'static str {
        match self {
            Self::Memory => "a quarter of the machine's or control group's memory",
            Self::LogPath => "the store's directory",
            Self::RemoteEndpoint => "$AWS_ENDPOINT_URL, or AWS",
            Self::RemoteRegion => "$AWS_REGION, or us-east-1",
            Self::LogLanes => "as many as the device's calibration says, or 2 to 8",
            Self::ServeListen => "127.0.0.1:6379",
            Self::ServeAppendfsync => "everysec",
            Self::ServeDatabases => "all `ordered`",
            Self::ServeMaxclients => "10000",
            _ => "none",
        }
    }
}

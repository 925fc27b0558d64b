//! The values of all settings: their defaults, and how they are read from text and shown as text.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base::{format_bytes, parse_bytes};
use clap::ValueEnum;
use server::{AppendFsync, DatabaseKind};
use terracedb::compaction::{Address, PlacementMode, Verify};
use terracedb::hashed::HashedPolicy;
use terracedb::scm::{Placement, Scm};
use terracedb::{Codec, Durability};

use super::setting::Setting;
use crate::parsers::database as parse_database;
use crate::time;

/// The values of all settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Values {
    /// Bytes; `None` means a quarter of the memory of the machine or control group.
    pub(crate) memory: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) sync_interval: Duration,
    pub(crate) codec: Codec,
    pub(crate) zstd_level: i32,
    pub(crate) deflate_level: i32,
    pub(crate) background_threads: usize,
    /// Bytes per second; 0 means no limit.
    pub(crate) compaction_rate: u64,
    pub(crate) write_through: bool,
    pub(crate) hot_pages: bool,
    /// Bytes per second; 0 means that tables are never scrubbed.
    pub(crate) scrub_rate: u64,
    pub(crate) scrub_interval: Duration,
    pub(crate) scm_path: Option<String>,
    /// Bytes.
    pub(crate) scm_size: u64,
    /// Bytes per second; 0 means no limit.
    pub(crate) scm_write_budget: u64,
    pub(crate) scm_placement: Placement,
    pub(crate) flash_path: Option<PathBuf>,
    /// The object store of cold tables, if there is one.
    pub(crate) remote_url: Option<String>,
    pub(crate) remote_endpoint: Option<String>,
    pub(crate) remote_region: Option<String>,
    pub(crate) cold_after: Duration,
    /// Places of the log's devices; none: the log stays at its present place.
    pub(crate) log_path: Vec<String>,
    /// Lanes of each device of a new log.
    pub(crate) log_lanes: Option<u16>,
    /// Addresses of workers; none: merges run in this process.
    pub(crate) workers: Vec<Address>,
    pub(crate) token_file: Option<PathBuf>,
    /// Files of TLS: the authorities of workers; the certificate of this host, and its key.
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) allow_plaintext: bool,
    pub(crate) placement: PlacementMode,
    pub(crate) fallback: bool,
    pub(crate) verify: Verify,
    pub(crate) serve: ServeValues,
}

/// The values of the settings of `terrace serve`, which the flags of the command override.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServeValues {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) appendfsync: Option<AppendFsync>,
    pub(crate) databases: Vec<(u8, DatabaseKind)>,
    pub(crate) maxclients: Option<usize>,
    pub(crate) aclfile: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            memory: None,
            durability: terracedb::Settings::default().durability,
            sync_interval: Duration::from_millis(100),
            codec: Codec::Lz4,
            zstd_level: 3,
            deflate_level: 6,
            background_threads: 2,
            compaction_rate: 0,
            write_through: true,
            hot_pages: true,
            scrub_rate: 4 << 20,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            scm_path: None,
            scm_size: 8 << 30,
            scm_write_budget: 0,
            scm_placement: Placement::Adaptive,
            flash_path: None,
            remote_url: None,
            remote_endpoint: None,
            remote_region: None,
            cold_after: Duration::from_secs(24 * 3600),
            log_path: Vec::new(),
            log_lanes: None,
            workers: Vec::new(),
            token_file: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            allow_plaintext: false,
            placement: PlacementMode::Remote,
            fallback: true,
            verify: Verify::Full,
            serve: ServeValues::default(),
        }
    }
}

/// A codec as `--codec` names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CodecName {
    None,
    Lz4,
    Zstd,
    Deflate,
}

impl From<CodecName> for Codec {
    fn from(name: CodecName) -> Self {
        match name {
            CodecName::None => Self::None,
            CodecName::Lz4 => Self::Lz4,
            CodecName::Zstd => Self::Zstd,
            CodecName::Deflate => Self::Deflate,
        }
    }
}

const DURABILITIES: [(&str, Durability); 3] =
    [("none", Durability::None), ("interval", Durability::Interval), ("sync", Durability::Sync)];

const CODECS: [(&str, Codec); 4] = [
    ("none", Codec::None),
    ("lz4", Codec::Lz4),
    ("zstd", Codec::Zstd),
    ("deflate", Codec::Deflate),
];

const VERIFY: [(&str, Verify); 3] =
    [("full", Verify::Full), ("sampled", Verify::Sampled), ("elsewhere", Verify::Elsewhere)];

const FSYNCS: [(&str, AppendFsync); 3] = [
    ("always", AppendFsync::Always),
    ("everysec", AppendFsync::EverySecond),
    ("no", AppendFsync::No),
];

/// The smallest memory limit of a store, bytes.
const MEMORY_MIN: u64 = 64 << 20;

impl Setting {
    /// Sets it to the value in `text`. Returns `false` and changes nothing if `text` is no accepted value.
    pub(crate) fn set(self, values: &mut Values, text: &str) -> bool {
        let set = match self {
            Self::Memory => parse_bytes(text)
                .ok()
                .filter(|bytes| *bytes >= MEMORY_MIN)
                .map(|bytes| values.memory = Some(bytes)),
            Self::Durability => named(&DURABILITIES, text).map(|it| values.durability = it),
            Self::SyncInterval => time::parse(text)
                .filter(|interval| *interval >= Duration::from_millis(1))
                .map(|interval| values.sync_interval = interval),
            Self::Codec => named(&CODECS, text).map(|codec| values.codec = codec),
            Self::ZstdLevel => text
                .parse()
                .ok()
                .filter(|level| (-7..=22).contains(level))
                .map(|level| values.zstd_level = level),
            Self::DeflateLevel => text
                .parse()
                .ok()
                .filter(|level| (1..=9).contains(level))
                .map(|level| values.deflate_level = level),
            Self::BackgroundThreads => text
                .parse()
                .ok()
                .filter(|threads| (1..=1024).contains(threads))
                .map(|threads| values.background_threads = threads),
            Self::CompactionRate => {
                parse_bytes(text).ok().map(|rate| values.compaction_rate = rate)
            }
            Self::WriteThrough => text.parse().ok().map(|is_on| values.write_through = is_on),
            Self::HotPages => text.parse().ok().map(|is_on| values.hot_pages = is_on),
            Self::ScrubRate => parse_bytes(text).ok().map(|rate| values.scrub_rate = rate),
            Self::ScrubInterval => time::parse(text)
                .filter(|interval| *interval >= Duration::from_secs(1))
                .map(|interval| values.scrub_interval = interval),
            Self::ScmPath => {
                Scm::new(text, 1 << 20).ok().map(|_| values.scm_path = Some(text.to_owned()))
            }
            Self::ScmSize => parse_bytes(text)
                .ok()
                .filter(|bytes| *bytes >= 1 << 20)
                .map(|bytes| values.scm_size = bytes),
            Self::ScmWriteBudget => {
                parse_bytes(text).ok().map(|rate| values.scm_write_budget = rate)
            }
            Self::ScmPlacement => {
                named(&Placement::NAMES, text).map(|policy| values.scm_placement = policy)
            }
            Self::FlashPath => (!text.is_empty()).then(|| values.flash_path = Some(text.into())),
            Self::RemoteUrl => {
                is_object_store(text).then(|| values.remote_url = Some(text.to_owned()))
            }
            Self::RemoteEndpoint => (text.starts_with("http://") || text.starts_with("https://"))
                .then(|| values.remote_endpoint = Some(text.to_owned())),
            Self::RemoteRegion => {
                (!text.is_empty()).then(|| values.remote_region = Some(text.to_owned()))
            }
            Self::RemoteColdAfter => time::parse(text)
                .filter(|after| *after >= Duration::from_secs(1))
                .map(|after| values.cold_after = after),
            Self::LogPath => places(text).map(|places| values.log_path = places),
            Self::LogLanes => text
                .parse()
                .ok()
                .filter(|lanes| (1..=16).contains(lanes))
                .map(|lanes| values.log_lanes = Some(lanes)),
            Self::CompactionWorkers => addresses(text).map(|workers| values.workers = workers),
            Self::CompactionTokenFile => {
                (!text.is_empty()).then(|| values.token_file = Some(text.into()))
            }
            Self::CompactionTlsCa => (!text.is_empty()).then(|| values.tls_ca = Some(text.into())),
            Self::CompactionTlsCert => {
                (!text.is_empty()).then(|| values.tls_cert = Some(text.into()))
            }
            Self::CompactionTlsKey => {
                (!text.is_empty()).then(|| values.tls_key = Some(text.into()))
            }
            Self::CompactionAllowPlaintext => {
                text.parse().ok().map(|allows| values.allow_plaintext = allows)
            }
            Self::CompactionPlacement => text.parse().ok().map(|mode| values.placement = mode),
            Self::CompactionFallback => text.parse().ok().map(|falls| values.fallback = falls),
            Self::CompactionVerify => named(&VERIFY, text).map(|how| values.verify = how),
            Self::ServeListen => text.parse().ok().map(|it| values.serve.listen = Some(it)),
            Self::ServeUnixSocket => file(text).map(|it| values.serve.unix_socket = Some(it)),
            Self::ServeAdmin => text.parse().ok().map(|it| values.serve.admin = Some(it)),
            Self::ServeAppendfsync => {
                named(&FSYNCS, text).map(|it| values.serve.appendfsync = Some(it))
            }
            Self::ServeDatabases => databases(text).map(|it| values.serve.databases = it),
            Self::ServeMaxclients => text
                .parse()
                .ok()
                .filter(|clients| *clients > 0)
                .map(|clients| values.serve.maxclients = Some(clients)),
            Self::ServeAclfile => file(text).map(|it| values.serve.aclfile = Some(it)),
            Self::ServeTlsCert => file(text).map(|it| values.serve.tls_cert = Some(it)),
            Self::ServeTlsKey => file(text).map(|it| values.serve.tls_key = Some(it)),
            Self::ServeTlsCa => file(text).map(|it| values.serve.tls_ca = Some(it)),
        };
        set.is_some()
    }

    /// Its value in a form that [`Setting::set`] accepts; `None` if it has no value.
    pub(crate) fn show(self, values: &Values) -> Option<String> {
        Some(match self {
            Self::Memory => values.memory.map(size)?,
            Self::Durability => name_of(&DURABILITIES, values.durability),
            Self::SyncInterval => time::format(values.sync_interval),
            Self::Codec => name_of(&CODECS, values.codec),
            Self::ZstdLevel => values.zstd_level.to_string(),
            Self::DeflateLevel => values.deflate_level.to_string(),
            Self::BackgroundThreads => values.background_threads.to_string(),
            Self::CompactionRate => size(values.compaction_rate),
            Self::WriteThrough => values.write_through.to_string(),
            Self::HotPages => values.hot_pages.to_string(),
            Self::ScrubRate => size(values.scrub_rate),
            Self::ScrubInterval => time::format(values.scrub_interval),
            Self::ScmPath => values.scm_path.clone()?,
            Self::ScmSize => size(values.scm_size),
            Self::ScmWriteBudget => size(values.scm_write_budget),
            Self::ScmPlacement => values.scm_placement.name().to_owned(),
            Self::FlashPath => values.flash_path.as_ref()?.display().to_string(),
            Self::RemoteUrl => values.remote_url.clone()?,
            Self::RemoteEndpoint => values.remote_endpoint.clone()?,
            Self::RemoteRegion => values.remote_region.clone()?,
            Self::RemoteColdAfter => time::format(values.cold_after),
            Self::LogPath if values.log_path.is_empty() => return None,
            Self::LogPath => values.log_path.join(","),
            Self::LogLanes => values.log_lanes?.to_string(),
            Self::CompactionWorkers if values.workers.is_empty() => return None,
            Self::CompactionWorkers => {
                values.workers.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
            }
            Self::CompactionTokenFile => values.token_file.as_ref()?.display().to_string(),
            Self::CompactionTlsCa => values.tls_ca.as_ref()?.display().to_string(),
            Self::CompactionTlsCert => values.tls_cert.as_ref()?.display().to_string(),
            Self::CompactionTlsKey => values.tls_key.as_ref()?.display().to_string(),
            Self::CompactionAllowPlaintext => values.allow_plaintext.to_string(),
            Self::CompactionPlacement => name_of(&PlacementMode::NAMES, values.placement),
            Self::CompactionFallback => values.fallback.to_string(),
            Self::CompactionVerify => name_of(&VERIFY, values.verify),
            Self::ServeListen => values.serve.listen?.to_string(),
            Self::ServeUnixSocket => values.serve.unix_socket.as_ref()?.display().to_string(),
            Self::ServeAdmin => values.serve.admin?.to_string(),
            Self::ServeAppendfsync => name_of(&FSYNCS, values.serve.appendfsync?),
            Self::ServeDatabases if values.serve.databases.is_empty() => return None,
            Self::ServeDatabases => {
                let kinds = values.serve.databases.iter();
                let text =
                    |(number, kind): &(u8, DatabaseKind)| format!("{number}={}", exact(kind));
                kinds.map(text).collect::<Vec<_>>().join(" ")
            }
            Self::ServeMaxclients => values.serve.maxclients?.to_string(),
            Self::ServeAclfile => values.serve.aclfile.as_ref()?.display().to_string(),
            Self::ServeTlsCert => values.serve.tls_cert.as_ref()?.display().to_string(),
            Self::ServeTlsKey => values.serve.tls_key.as_ref()?.display().to_string(),
            Self::ServeTlsCa => values.serve.tls_ca.as_ref()?.display().to_string(),
        })
    }
}

/// Whether `text` names a prefix of a bucket. Opening the store checks its form.
fn is_object_store(text: &str) -> bool {
    text.strip_prefix("s3://").is_some_and(|rest| !rest.is_empty())
}

/// The places in `text`, at least one; `None` if one is empty.
fn places(text: &str) -> Option<Vec<String>> {
    let place = |place: &str| (!place.trim().is_empty()).then(|| place.trim().to_owned());
    text.split(',').map(place).collect()
}

/// A kind with its exact size, as it is given.
fn exact(kind: &DatabaseKind) -> String {
    let text = kind.to_string();
    match kind {
        DatabaseKind::Hashed(HashedPolicy::Window { bytes, .. }) => {
            text.replacen(&format_bytes(*bytes), &size(*bytes), 1)
        }
        _ => text,
    }
}

/// The path in `text`; `None` if it is empty.
fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

/// The kinds of databases in `text`, at least one; `None` if one is wrong or a number is given twice.
fn databases(text: &str) -> Option<Vec<(u8, DatabaseKind)>> {
    let found = text.split_whitespace().map(|text| parse_database(text).ok());
    let found: Vec<_> = found.collect::<Option<_>>()?;
    let numbers: BTreeSet<u8> = found.iter().map(|(number, _)| *number).collect();
    (!found.is_empty() && numbers.len() == found.len()).then_some(found)
}

/// The addresses in `text`, at least one; `None` if one is wrong.
fn addresses(text: &str) -> Option<Vec<Address>> {
    text.split(',').map(|address| address.trim().parse().ok()).collect()
}

/// The value called `text`.
fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// The name of `value`.
fn name_of<T: Copy + PartialEq>(names: &[(&str, T)], value: T) -> String {
    let name = names.iter().find(|(_, named)| *named == value);
    base::invariant!(name.is_some(), "every value of a setting has a name");
    name.map_or("?", |(name, _)| *name).to_owned()
}

/// A size as text that parses to the same number of bytes.
fn size(bytes: u64) -> String {
    if bytes == 0 {
        return "0".into();
    }
    let text = format_bytes(bytes).replace(".0 ", "").replace(' ', "");
    if parse_bytes(&text).is_ok_and(|read| read == bytes) { text } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_formats_and_parses_to_itself() {
        let values = Values::default();
        for setting in Setting::ALL {
            assert_eq!(Setting::of(setting.key()), Some(setting));
            let Some(text) = setting.show(&values) else { continue };
            let mut read = values.clone();
            assert!(setting.set(&mut read, &text), "{text}");
            assert_eq!(read, values, "{text}");
        }
        assert_eq!(Setting::FlashPath.variable(), "TERRACE_FLASH__PATH");
        assert_eq!(Setting::SyncInterval.variable(), "TERRACE_SYNC_INTERVAL");
    }

    #[test]
    fn refused_value_changes_nothing() {
        for (setting, texts) in [
            (Setting::Memory, &["63MiB", "lots", "-1", "true"][..]),
            (Setting::Durability, &["fsync", ""]),
            (Setting::SyncInterval, &["0", "500us"]),
            (Setting::Codec, &["LZ4", "gzip"]),
            (Setting::ZstdLevel, &["23", "-8", "3.5"]),
            (Setting::DeflateLevel, &["0", "10", "6.0"]),
            (Setting::BackgroundThreads, &["0", "many", "1025"]),
            (Setting::CompactionRate, &["slow", "-1"]),
            (Setting::WriteThrough, &["", "on"]),
            (Setting::HotPages, &["", "on"]),
            (Setting::ScrubRate, &["fast"]),
            (Setting::ScrubInterval, &["weekly", "0"]),
            (Setting::ScmPath, &["", "numa:x", "emulated:gold"]),
            (Setting::ScmSize, &["1000", "big"]),
            (Setting::ScmWriteBudget, &["-1"]),
            (Setting::ScmPlacement, &["random", ""]),
            (Setting::FlashPath, &[""]),
            (Setting::LogPath, &["", "/dev/shm/a,,/dev/shm/b"]),
            (Setting::LogLanes, &["0", "17", "many"]),
            (Setting::CompactionWorkers, &["", "host:7400", "unix:a,", "unix:a,b"]),
            (Setting::CompactionTokenFile, &[""]),
            (Setting::CompactionTlsCa, &[""]),
            (Setting::CompactionTlsCert, &[""]),
            (Setting::CompactionTlsKey, &[""]),
            (Setting::CompactionAllowPlaintext, &["", "yes"]),
            (Setting::CompactionPlacement, &["", "far"]),
            (Setting::CompactionFallback, &["", "no"]),
            (Setting::CompactionVerify, &["none"]),
            (Setting::ServeListen, &["", "localhost", "127.0.0.1"]),
            (Setting::ServeAdmin, &["9090"]),
            (Setting::ServeAppendfsync, &["", "sometimes"]),
            (Setting::ServeDatabases, &["", "keep", "16=keep", "0=heap", "1=keep 1=ordered"]),
            (Setting::ServeMaxclients, &["0", "many"]),
            (Setting::ServeUnixSocket, &[""]),
            (Setting::ServeTlsCert, &[""]),
        ] {
            for text in texts {
                let mut values = Values::default();
                assert!(!setting.set(&mut values, text), "{setting:?} {text}");
                assert_eq!(values, Values::default());
            }
        }
        for bytes in [64 << 20, (64 << 20) + 1, 1_000_000_000, 3 << 29] {
            assert_eq!(parse_bytes(&size(bytes)).unwrap(), bytes, "{}", size(bytes));
        }
    }
}

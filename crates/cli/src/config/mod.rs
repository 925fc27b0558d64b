//! The settings in force and their sources. The command line overrides the environment, which overrides the
//! configuration file, which overrides the defaults.

mod command;
mod file;
mod nearest;
mod setting;
mod values;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::format_bytes;
use terracedb::compaction::{Credentials, HostTls, Timing, Workers};
use terracedb::scm::{Scm, ScmCalibration};
use terracedb::tools::LogConfig;
use terracedb::{Builder, Db, Durability, Error, Result};

use crate::directory;
use crate::output::report_to_stderr;
use crate::parsers::size;
use setting::Setting;
use values::Values;

pub(crate) use command::{Command, run};
pub(crate) use values::{CodecName, ServeValues};

/// The environment variable that names a configuration file, as `--config` does.
const FILE_VARIABLE: &str = "TERRACE_CONFIG";

/// The heading of these flags in the help.
const HEADING: &str = "Settings";

/// Settings on the command line; `terrace config reference` lists every setting.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Flags {
    /// A configuration file
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    config: Option<PathBuf>,
    /// Memory limit of the store: memtables, caches, metadata and buffers
    /// [default: a quarter of the memory of the machine or cgroup]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = HEADING)]
    memory: Option<u64>,
    /// Compression of new tables [default: lz4]
    #[arg(long, help_heading = HEADING)]
    codec: Option<CodecName>,
    /// Where merges run: `local`; `remote=ADDR[,ADDR]`, at the `terrace worker` processes with these
    /// addresses; `compress=ADDR[,ADDR]`, here, while workers compress; `auto=ADDR[,ADDR]`, where it is
    /// fastest [default: local]
    #[arg(long, value_name = "PLACE", help_heading = HEADING)]
    compaction: Option<String>,
    /// Directories on storage-class memory for the log, as in `/dev/shm/log`, separated by commas: one a
    /// device.
    /// Needed when a store is created, or if its devices are mounted elsewhere than before
    /// [default: where the store has its log]
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    log_path: Option<String>,
    /// Disable the row cache in DRAM, for measurements
    #[arg(long, hide = true)]
    no_rows: bool,
    /// Any other setting, as in zstd-level=9; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = HEADING)]
    settings: Vec<String>,
}

/// The source of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Default,
    /// A file and a line in it, from 1.
    File(PathBuf, usize),
    Environment(String),
    CommandLine(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::CommandLine(flag) => write!(f, "command line {flag}"),
        }
    }
}

/// The settings in force.
#[derive(Debug, Default)]
pub(crate) struct Config {
    values: Values,
    sources: BTreeMap<Setting, Source>,
    no_rows: bool,
}

impl Config {
    /// The settings for the store at `typed`: a directory, or a configuration file that names one.
    ///
    /// # Errors
    /// `Invalid` if a source has a mistake, or no source names the directory.
    pub(crate) fn of_store(typed: &Path, flags: &Flags) -> Result<Self> {
        if !typed.is_file() {
            if typed.extension().is_some_and(|it| it == "toml") && !typed.exists() {
                let error = Error::invalid("configuration file").at(typed.display());
                return Err(error.expected("one that exists").got("none"));
            }
            let mut config = Self::load(flags, file_named(flags).as_deref())?;
            if *config.source(Setting::FlashPath) == Source::CommandLine("--set") {
                return Err(Error::invalid("--set")
                    .expected("either `flash.path` or a directory as argument")
                    .got("both"));
            }
            config.values.flash_path = Some(typed.to_owned());
            config.sources.insert(Setting::FlashPath, Source::CommandLine("STORE"));
            return Ok(config);
        }
        if flags.config.is_some() {
            return Err(Error::invalid("store")
                .at(typed.display())
                .expected("a directory if --config is given")
                .got("a file"));
        }
        let config = Self::load(flags, Some(typed))?;
        config.path()?;
        Ok(config)
    }

    /// The settings of a file, the environment and flags, without a store as argument.
    fn load(flags: &Flags, file: Option<&Path>) -> Result<Self> {
        let mut config = Self::default();
        if let Some(path) = file {
            let read = file::read(path, &mut config.values)?;
            if let Some(problem) = read.problems.into_iter().next() {
                return Err(problem);
            }
            for (setting, line) in read.set {
                config.sources.insert(setting, Source::File(path.to_owned(), line));
            }
        }
        config.environment()?;
        config.flags(flags)?;
        Ok(config)
    }

    fn environment(&mut self) -> Result<()> {
        for setting in Setting::ALL {
            let name = setting.variable();
            let Some(text) = env::var_os(&name) else { continue };
            self.set(setting, &text.to_string_lossy(), Source::Environment(name))?;
        }
        Ok(())
    }

    fn flags(&mut self, flags: &Flags) -> Result<()> {
        self.no_rows = flags.no_rows;
        for text in &flags.settings {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Error::invalid("--set").expected("KEY=VALUE").got(format_args!("`{text}`"))
            })?;
            let setting = Setting::of(key).ok_or_else(|| {
                let error = Error::invalid(format!("unknown setting `{key}`"));
                error.at("--set").expected(file::suggestion(key))
            })?;
            self.set(setting, value, Source::CommandLine("--set"))?;
        }
        if let Some(memory) = flags.memory {
            if !Setting::Memory.set(&mut self.values, &memory.to_string()) {
                return Err(Error::invalid("--memory")
                    .expected(Setting::Memory.expects())
                    .got(format_bytes(memory)));
            }
            self.sources.insert(Setting::Memory, Source::CommandLine("--memory"));
        }
        if let Some(places) = &flags.log_path {
            self.set(Setting::LogPath, places, Source::CommandLine("--log-path"))?;
        }
        if let Some(place) = &flags.compaction {
            self.compaction(place)?;
        }
        if let Some(codec) = flags.codec {
            self.values.codec = codec.into();
            self.sources.insert(Setting::Codec, Source::CommandLine("--codec"));
        }
        Ok(())
    }

    /// Sets the place of merges, as `--compaction` names it.
    fn compaction(&mut self, place: &str) -> Result<()> {
        let source = Source::CommandLine("--compaction");
        if place == "local" {
            self.values.workers.clear();
            self.sources.insert(Setting::CompactionWorkers, source);
            return Ok(());
        }
        let (mode, addresses) = place.split_once('=').unwrap_or_default();
        if !Setting::CompactionPlacement.set(&mut self.values, mode) {
            return Err(Error::invalid("--compaction")
                .expected("`local`, or `remote=`, `compress=` or `auto=` and `ADDR[,ADDR]`")
                .got(format_args!("`{place}`")));
        }
        self.sources.insert(Setting::CompactionPlacement, source.clone());
        self.set(Setting::CompactionWorkers, addresses, source)
    }

    fn set(&mut self, setting: Setting, text: &str, source: Source) -> Result<()> {
        if !setting.set(&mut self.values, text) {
            return Err(Error::invalid(format!("setting `{}`", setting.key()))
                .at(&source)
                .expected(setting.expects())
                .got(format_args!("`{text}`")));
        }
        self.sources.insert(setting, source);
        Ok(())
    }

    fn source(&self, setting: Setting) -> &Source {
        self.sources.get(&setting).unwrap_or(&Source::Default)
    }

    /// The store's directory.
    ///
    /// # Errors
    /// `Invalid` if no source names it.
    pub(crate) fn path(&self) -> Result<&Path> {
        self.values.flash_path.as_deref().ok_or_else(|| {
            Error::invalid("configuration").expected("`flash.path`, the store's directory")
        })
    }

    /// The durability of writes, if a source sets it.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let is_set = *self.source(Setting::Durability) != Source::Default;
        is_set.then_some(self.values.durability)
    }

    /// Opens the store with all settings. A missing store is created only if `create` is set. Warns on
    /// standard error if the SCM tier or its calibration cannot be used.
    ///
    /// # Errors
    /// As [`Builder::open`]; `Invalid` if the store is missing and `create` is not set.
    pub(crate) fn open(&self, create: bool) -> Result<Db> {
        match create {
            true => directory::may_hold_store(self.path()?)?,
            false => directory::must_hold_store(self.path()?)?,
        }
        let db = self.builder(self.path()?)?.open()?;
        let Some(scm) = db.resources().scm() else { return Ok(db) };
        if let Some(why) = scm.failure {
            report_to_stderr(format_args!("warning: the store runs without its SCM tier: {why}"));
        }
        if let Some(ScmCalibration { file, ignored: Some(why), .. }) = scm.calibration {
            report_to_stderr(format_args!("warning: {file} is not used, calibrate again: {why}"));
        }
        Ok(db)
    }

    /// Opens an existing store for reading only, without its SCM tier, which belongs to the process that
    /// writes.
    ///
    /// # Errors
    /// As [`Config::open`], without `Locked`.
    pub(crate) fn open_read_only(&self) -> Result<Db> {
        directory::must_hold_store(self.path()?)?;
        self.builder_without_scm(self.path()?)?.read_only(true).open()
    }

    /// The settings of `terrace serve`.
    pub(crate) const fn serve(&self) -> &ServeValues {
        &self.values.serve
    }

    /// The devices of the log.
    pub(crate) fn log(&self) -> LogConfig {
        let log = LogConfig::at(self.values.log_path.clone());
        LogConfig { lanes: self.values.log_lanes, ..log }
    }

    fn builder(&self, path: &Path) -> Result<Builder> {
        let (values, builder) = (&self.values, self.builder_without_scm(path)?);
        let Some(scm) = &values.scm_path else { return Ok(builder) };
        let scm = Scm::new(scm, values.scm_size)?.placement(values.scm_placement);
        Ok(builder.scm(match values.scm_write_budget {
            0 => scm,
            budget => scm.write_budget(budget),
        }))
    }

    fn builder_without_scm(&self, path: &Path) -> Result<Builder> {
        let values = &self.values;
        let builder = Db::builder(path)
            .durability(values.durability)
            .sync_interval(values.sync_interval)
            .codec(values.codec)
            .zstd_level(values.zstd_level)
            .deflate_level(values.deflate_level)
            .background_threads(values.background_threads)
            .compaction_rate(values.compaction_rate)
            .write_through(values.write_through)
            .hot_pages(values.hot_pages)
            .scrub_rate(values.scrub_rate)
            .scrub_interval(values.scrub_interval);
        let builder = with_object_store(builder, values)?;
        let builder = builder.log_path(&values.log_path);
        let builder = match values.log_lanes {
            Some(lanes) => builder.log_lanes(lanes),
            None => builder,
        };
        let builder = if self.no_rows { builder.without_rows() } else { builder };
        let builder = match values.memory {
            Some(memory) => builder.memory(memory),
            None => builder,
        };
        let builder = if values.workers.is_empty() {
            builder
        } else {
            let clock = Arc::new(base::SystemClock::new());
            let (addresses, timing) = (values.workers.clone(), Timing::default());
            let workers = Workers::new(addresses, credentials(values)?, timing, clock)?
                .placing(values.placement)
                .falling_back(values.fallback)
                .verifying(values.verify);
            builder.workers(Arc::new(workers))
        };
        Ok(builder)
    }
}

/// Gives the store its object store, if it has one.
#[cfg(feature = "remote")]
#[expect(clippy::unnecessary_wraps, reason = "a build without object stores refuses")]
fn with_object_store(builder: Builder, values: &Values) -> Result<Builder> {
    let Some(url) = &values.remote_url else { return Ok(builder) };
    let of_environment = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut store = terracedb::remote::ObjectStore::new(url).cold_after(values.cold_after);
    let endpoint = values.remote_endpoint.clone();
    if let Some(endpoint) = endpoint.or_else(|| of_environment("AWS_ENDPOINT_URL")) {
        store = store.endpoint(endpoint);
    }
    let region = values.remote_region.clone();
    if let Some(region) = region.or_else(|| of_environment("AWS_REGION")) {
        store = store.region(region);
    }
    Ok(builder.object_store(store))
}

#[cfg(not(feature = "remote"))]
fn with_object_store(builder: Builder, values: &Values) -> Result<Builder> {
    match &values.remote_url {
        None => Ok(builder),
        Some(url) => Err(Error::invalid("setting `remote.url`")
            .expected("a build of terrace with `--features remote`")
            .got(format_args!("`{url}`"))),
    }
}

/// How this host reaches its workers.
fn credentials(values: &Values) -> Result<Credentials> {
    let token = match &values.token_file {
        Some(file) => token(file)?,
        None => Vec::new(),
    };
    let credentials = Credentials::new(token).allowing_plaintext(values.allow_plaintext);
    let own = match (&values.tls_cert, &values.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        _ => {
            return Err(Error::invalid("configuration")
                .expected("both `compaction.tls-cert` and `compaction.tls-key`, or neither"));
        }
    };
    match (&values.tls_ca, own) {
        (Some(authorities), own) => Ok(credentials.encrypting(HostTls::open(authorities, own)?)),
        (None, None) => Ok(credentials),
        (None, Some(_)) => Err(Error::invalid("configuration")
            .expected("`compaction.tls-ca` beside `compaction.tls-cert`")),
    }
}

/// The token in a file, without the white space around it.
///
/// # Errors
/// `Invalid` if the file cannot be read, or has no token or one over 1 KiB.
pub(crate) fn token(file: &Path) -> Result<Vec<u8>> {
    let wrong = || Error::invalid("token file").at(file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong().caused_by(error))?;
    let token = text.trim().as_bytes();
    if token.is_empty() || token.len() > 1024 {
        return Err(wrong().expected("a token of 1 to 1024 bytes").got(token.len()));
    }
    Ok(token.to_vec())
}

/// All environment variables that affect settings, including the one that names a configuration file.
pub(crate) fn variables() -> impl Iterator<Item = String> {
    let settings = Setting::ALL.into_iter().map(Setting::variable);
    settings.chain([FILE_VARIABLE.to_owned()])
}

/// The configuration file of `--config` or [`FILE_VARIABLE`].
fn file_named(flags: &Flags) -> Option<PathBuf> {
    flags.config.clone().or_else(|| env::var_os(FILE_VARIABLE).map(PathBuf::from))
}

/// The directory of the store at `typed`, and the devices of its log, for commands that read files without
/// opening the store. `log_path` has the places of the devices if they are not where the store had them.
///
/// # Errors
/// As [`Config::of_store`].
pub(crate) fn store_files(typed: &Path, log_path: Option<&String>) -> Result<(PathBuf, LogConfig)> {
    let flags = Flags { log_path: log_path.cloned(), ..Flags::default() };
    let config = Config::of_store(typed, &flags)?;
    Ok((config.path()?.to_owned(), config.log()))
}

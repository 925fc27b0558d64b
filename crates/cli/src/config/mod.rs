//! The settings in force, and where each came from: a default, a file, the environment, the
//! command line, the later over the earlier.

mod command;
mod file;
mod nearest;
mod setting;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use terracedb::{Builder, Db, Durability, Error, Result, Scm, ScmCalibration, format_bytes};

use crate::args::CodecName;
use crate::directory;
use crate::output::tell;
use setting::{Setting, Values};

pub(crate) use command::{Command, run};

/// Names a file as `--config` does.
const FILE_VARIABLE: &str = "TERRACE_CONFIG";

/// Where help lists the flags.
const HEADING: &str = "Settings";

/// How to open the store; `terrace config reference` has every setting.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Flags {
    /// A configuration file
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    config: Option<PathBuf>,
    /// Memory the store may use, all of it: memtables, cache, metadata, buffers
    /// [default: a quarter of the machine's or cgroup's]
    #[arg(long, value_name = "SIZE", value_parser = crate::args::size, help_heading = HEADING)]
    memory: Option<u64>,
    /// How new tables are compressed [default: lz4]
    #[arg(long, help_heading = HEADING)]
    codec: Option<CodecName>,
    /// Keep no single rows in DRAM, for measurements
    #[arg(long, hide = true)]
    no_rows: bool,
    /// Any other setting, as in zstd-level=9; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = HEADING)]
    settings: Vec<String>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Default,
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

/// What is in force.
#[derive(Debug, Default)]
pub(crate) struct Config {
    values: Values,
    sources: BTreeMap<Setting, Source>,
    no_rows: bool,
}

impl Config {
    /// For the store that was typed: a directory, or a configuration file that names one.
    ///
    /// # Errors
    /// `Invalid` for a mistake in any of the sources, and where no directory is named.
    pub(crate) fn of_store(typed: &Path, flags: &Flags) -> Result<Self> {
        if !typed.is_file() {
            if typed.extension().is_some_and(|it| it == "toml") && !typed.exists() {
                let error = Error::invalid("configuration file").at(typed.display());
                return Err(error.expected("one that exists").got("none"));
            }
            let mut config = Self::load(flags, file_named(flags).as_deref())?;
            if *config.source(Setting::FlashPath) == Source::CommandLine("--set") {
                return Err(Error::invalid("--set")
                    .expected("no `flash.path` beside a store's directory")
                    .got("both"));
            }
            config.values.flash_path = Some(typed.to_owned());
            config.sources.insert(Setting::FlashPath, Source::CommandLine("STORE"));
            return Ok(config);
        }
        if flags.config.is_some() {
            return Err(Error::invalid("store")
                .at(typed.display())
                .expected("a directory beside --config")
                .got("a file"));
        }
        let config = Self::load(flags, Some(typed))?;
        config.path()?;
        Ok(config)
    }

    /// For whatever store: `--config`, the environment and flags.
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
                error.at("--set").expected(file::likely(key))
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
        if let Some(codec) = flags.codec {
            self.values.codec = codec.into();
            self.sources.insert(Setting::Codec, Source::CommandLine("--codec"));
        }
        Ok(())
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
    pub(crate) fn path(&self) -> Result<&Path> {
        self.values.flash_path.as_deref().ok_or_else(|| {
            Error::invalid("configuration").expected("`flash.path`, the store's directory")
        })
    }

    /// How writes are to be durable, where anybody said so.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let is_said = *self.source(Setting::Durability) != Source::Default;
        is_said.then_some(self.values.durability)
    }

    /// Opens the store with every setting; one that is not there is made only where `create` says.
    ///
    /// # Errors
    /// As [`Builder::open`]; `Invalid` where there is no store and none is to be made.
    pub(crate) fn open(&self, create: bool) -> Result<Db> {
        match create {
            true => directory::may_hold_store(self.path()?)?,
            false => directory::must_hold_store(self.path()?)?,
        }
        let db = self.builder(self.path()?)?.open()?;
        let Some(scm) = db.resources().scm() else { return Ok(db) };
        if let Some(why) = scm.failure {
            tell(format_args!("warning: going on without the SCM tier: {why}"));
        }
        if let Some(ScmCalibration { file, ignored: Some(why), .. }) = scm.calibration {
            tell(format_args!("warning: {file} is not used, calibrate again: {why}"));
        }
        Ok(db)
    }

    fn builder(&self, path: &Path) -> Result<Builder> {
        let values = &self.values;
        let builder = Db::builder(path)
            .durability(values.durability)
            .sync_interval(values.sync_interval)
            .codec(values.codec)
            .zstd_level(values.zstd_level)
            .background_threads(values.background_threads)
            .compaction_rate(values.compaction_rate)
            .scrub_rate(values.scrub_rate)
            .scrub_interval(values.scrub_interval);
        let builder = if self.no_rows { builder.without_rows() } else { builder };
        let builder = match values.memory {
            Some(memory) => builder.memory(memory),
            None => builder,
        };
        let Some(scm) = &values.scm_path else { return Ok(builder) };
        let scm = Scm::new(scm, values.scm_size)?.placement(values.scm_placement);
        Ok(builder.scm(match values.scm_write_budget {
            0 => scm,
            budget => scm.write_budget(budget),
        }))
    }
}

/// The environment variables that settings are read from, the file's included.
pub(crate) fn variables() -> impl Iterator<Item = String> {
    let settings = Setting::ALL.into_iter().map(Setting::variable);
    settings.chain([FILE_VARIABLE.to_owned()])
}

/// The configuration file that was named beside the store.
fn file_named(flags: &Flags) -> Option<PathBuf> {
    flags.config.clone().or_else(|| env::var_os(FILE_VARIABLE).map(PathBuf::from))
}

/// The directory of the store that was typed, for what opens files and no store.
pub(crate) fn store_path(typed: &Path) -> Result<PathBuf> {
    let config = Config::of_store(typed, &Flags::default())?;
    config.path().map(Path::to_owned)
}

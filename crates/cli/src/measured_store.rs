//! The store that `terrace bench` and `terrace replay` measure: in the directory of `--data`, or in a
//! temporary one.

use std::path::{Path, PathBuf};

use terracedb::hashed::HashedPolicy;
use terracedb::{Durability, Error, Result};
use workload::Engine;

use crate::config::{Config, Flags};
use crate::interrupt::Scratch;
use crate::{directory, stats};

/// The store to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct MeasuredStoreArgs {
    /// Directory of the store, created if it is missing
    /// [default: a temporary directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write the statistics at the end to this file, for `terrace plan --stats`
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// A rule about the directory of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreMust {
    /// The directory must hold a store.
    Exist,
    /// The directory must be empty or missing.
    BeNew,
    /// The directory may hold a store, which is then used.
    BeEither,
}

/// An open store under measurement.
pub(crate) struct MeasuredStore {
    engine: Engine,
    /// The temporary directory, if the user named none. It is removed after `engine` is closed.
    _scratch: Option<(tempfile::TempDir, Scratch)>,
    dir: PathBuf,
    stats: Option<PathBuf>,
}

impl MeasuredStore {
    /// Opens the store.
    ///
    /// # Errors
    /// `Invalid` if the directory breaks the rule `must`, a setting is wrong, or the SCM tier fails: a
    /// measurement without it would measure something else than the user asked for.
    pub(crate) fn open(args: &MeasuredStoreArgs, must: StoreMust) -> Result<Self> {
        Self::open_as(args, must, None)
    }

    /// As [`MeasuredStore::open`], with a hashed keyspace of `policy` if there is one.
    ///
    /// # Errors
    /// As [`MeasuredStore::open`]; `Invalid` if the store has a keyspace of another kind.
    pub(crate) fn open_as(
        args: &MeasuredStoreArgs,
        must: StoreMust,
        policy: Option<HashedPolicy>,
    ) -> Result<Self> {
        let (typed, scratch) = match &args.data {
            Some(dir) => (dir.clone(), None),
            None => {
                let scratch = tempfile::Builder::new().prefix("terrace-").tempdir();
                let scratch =
                    scratch.map_err(|e| Error::io("create", "a temporary directory", e))?;
                let removed = Scratch::new(scratch.path());
                (scratch.path().to_owned(), Some((scratch, removed)))
            }
        };
        let config = Config::of_store(&typed, &args.flags)?;
        let dir = config.path()?.to_owned();
        match must {
            StoreMust::Exist => directory::must_hold_store(&dir)?,
            StoreMust::BeNew => directory::must_be_empty(&dir)?,
            StoreMust::BeEither => {}
        }
        let db = config.open(true)?;
        if let Some(failure) = db.resources().scm().and_then(|scm| scm.failure) {
            return Err(Error::invalid("SCM tier").expected("one that opens").got(failure));
        }
        // Without a setting, writes are not synced, as in the benchmarks of other stores, and those to a
        // window are not logged.
        let unset = match policy {
            Some(HashedPolicy::Window { .. }) => Durability::Unlogged,
            Some(HashedPolicy::Keep | HashedPolicy::Resident) | None => Durability::None,
        };
        let durability = config.durability().unwrap_or(unset);
        let engine = match policy {
            None => Engine::new(db)?,
            Some(policy) => Engine::hashed(db, policy)?,
        };
        let engine = engine.durability(durability);
        Ok(Self { engine, _scratch: scratch, dir, stats: args.stats.clone() })
    }

    /// The engine that the benchmark drivers run on.
    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes the statistics to the file of `--stats`, if one is given.
    ///
    /// # Errors
    /// `Io` if the file cannot be written.
    pub(crate) fn save_statistics(&self) -> Result<()> {
        let save = |path: &Path| stats::save(self.engine.db(), path);
        self.stats.as_deref().map_or(Ok(()), save)
    }

    /// One line about the run: directory, memory limit, device backend, recovery.
    pub(crate) fn banner(&self) -> String {
        let statistics = self.engine.db().statistics();
        let recovery = self.engine.db().recovery();
        let mut banner = format!(
            "store {}, memory {}, {}",
            self.dir.display(),
            base::format_bytes(statistics.memory.limit),
            statistics.device_backend,
        );
        if recovery.log_records > 0 {
            banner.push_str(&format!(
                ", recovered {} from {} of log in {:.3} s",
                base::format_count(recovery.log_records, "batch"),
                base::format_bytes(recovery.log_bytes),
                recovery.elapsed.as_secs_f64(),
            ));
        }
        banner
    }
}

//! The store that `terrace bench` and `terrace replay` measure: opened as the flags say, or in a
//! directory of its own.

use std::path::{Path, PathBuf};

use terracedb::{Durability, Error, Result};
use workload::Engine;

use crate::config::{Config, Flags};
use crate::directory;

/// A store under measurement.
pub(crate) struct EngineStore {
    engine: Engine,
    /// The directory, removed with the store where nobody named one.
    _scratch: Option<tempfile::TempDir>,
    dir: PathBuf,
}

impl EngineStore {
    /// Opens the store in `data`, or in a directory of its own. `existing` says whether there has
    /// to be one already; where not, the directory must be empty.
    pub(crate) fn open(data: Option<&Path>, existing: Option<bool>, flags: &Flags) -> Result<Self> {
        let scratch = match data {
            Some(_) => None,
            None => {
                let made = tempfile::Builder::new().prefix("terrace-").tempdir();
                Some(made.map_err(|e| Error::io("create", "a temporary directory", e))?)
            }
        };
        let dir = match (data, &scratch) {
            (Some(dir), _) => dir.to_owned(),
            (None, Some(scratch)) => scratch.path().to_owned(),
            (None, None) => PathBuf::new(),
        };
        let config = Config::of_store(&dir, flags)?;
        let dir = config.path()?.to_owned();
        match existing {
            Some(true) => directory::must_hold_store(&dir)?,
            Some(false) => directory::must_be_empty(&dir)?,
            None => {}
        }
        let db = config.open(true)?;
        if let Some(failure) = db.resources().scm().and_then(|scm| scm.failure) {
            // What is measured is what was asked for.
            return Err(Error::invalid("SCM tier").expected("one that opens").got(failure));
        }
        // As long as nobody says how, writes are not to be durable at once, as in other stores' benchmarks.
        let durability = config.durability().unwrap_or(Durability::None);
        let engine = Engine::new(db)?.durability(durability);
        Ok(Self { engine, _scratch: scratch, dir })
    }

    /// What the drivers run on.
    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What a person should know about the run, one line.
    pub(crate) fn banner(&self) -> String {
        let statistics = self.engine.db().statistics();
        let recovery = self.engine.db().recovery();
        let mut banner = format!(
            "store {}, memory {}, {}",
            self.dir.display(),
            terracedb::format_bytes(statistics.memory.limit),
            statistics.device_backend,
        );
        if recovery.log_records > 0 {
            banner.push_str(&format!(
                ", recovered {} from {} of log in {:.3} s",
                terracedb::format_count(recovery.log_records, "batch"),
                terracedb::format_bytes(recovery.log_bytes),
                recovery.elapsed.as_secs_f64(),
            ));
        }
        banner
    }
}

//! Command-line arguments that several commands share: a store, a keyspace, a key range, `--json`.

use std::path::PathBuf;

use terracedb::{Db, Error, Keyspace, Result};

use crate::config::{Config, Flags, store_path};
use crate::{directory, hex};

/// `--json`.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print JSON instead of text, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A store that the command opens, and the settings to open it with.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

impl StoreArgs {
    /// Opens an existing store.
    ///
    /// # Errors
    /// As [`Config::open`]; `Invalid` for wrong settings.
    pub(crate) fn open(&self) -> Result<Db> {
        Config::of_store(&self.store, &self.flags)?.open(false)
    }

    /// Opens the store and creates it if it is missing.
    ///
    /// # Errors
    /// As [`Config::open`]; `Invalid` for wrong settings.
    pub(crate) fn open_or_create(&self) -> Result<Db> {
        Config::of_store(&self.store, &self.flags)?.open(true)
    }
}

/// A store whose files the command reads or repairs without opening the store.
#[derive(Debug, clap::Args)]
pub(crate) struct OfflineStoreArgs {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
}

impl OfflineStoreArgs {
    /// The directory of the store.
    ///
    /// # Errors
    /// `Invalid` if the directory holds no store, or the configuration file is wrong.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        let dir = store_path(&self.store)?;
        directory::must_hold_store(&dir)?;
        Ok(dir)
    }
}

/// A store, one of its keyspaces, and the form of keys and values.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
    /// Read and print keys and values as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
}

impl KeyspaceArgs {
    /// The keyspace of `db`, which must exist.
    ///
    /// # Errors
    /// `Invalid` if `db` has no such keyspace.
    pub(crate) fn existing(&self, db: &Db) -> Result<Keyspace> {
        existing_keyspace(db, "--keyspace", &self.keyspace)
    }

    /// The bytes of a key or value argument.
    ///
    /// # Errors
    /// As [`hex::decode`].
    pub(crate) fn decode(&self, text: &str) -> Result<Vec<u8>> {
        hex::decode(text, self.hex)
    }

    /// The text to print for a key or value.
    pub(crate) fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        hex::encode(bytes, self.hex)
    }
}

/// A range of keys: `--from` and `--to`, or `--prefix`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyRangeArgs {
    /// The first key of the range
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,
    /// The end of the range: the first key that is not part of it
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
    /// The keys that begin with this prefix
    #[arg(
        long,
        value_name = "KEY",
        allow_negative_numbers = true,
        conflicts_with_all = ["from", "to"]
    )]
    pub(crate) prefix: Option<String>,
}

/// The keyspace `name` of `db`, which the user named as `argument`.
///
/// # Errors
/// `Invalid` if `db` has no such keyspace; the error lists those that exist.
pub(crate) fn existing_keyspace(db: &Db, argument: &'static str, name: &str) -> Result<Keyspace> {
    db.keyspace(name).map_err(|_| {
        let names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        Error::invalid(argument)
            .expected(format_args!("one of [{}]", names.join(", ")))
            .got(format_args!("`{name}`"))
    })
}

/// Refuses an empty range.
///
/// # Errors
/// `Invalid` if both keys are given and `from` is not below `to`.
pub(crate) fn must_ascend(from: Option<&Vec<u8>>, to: Option<&Vec<u8>>) -> Result<()> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => {
            Err(Error::invalid("--to").expected("a key after --from"))
        }
        _ => Ok(()),
    }
}

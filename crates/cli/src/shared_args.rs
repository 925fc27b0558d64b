//! Command-line arguments that several commands share: a store, a keyspace, a key range, `--json`.

use std::path::{Path, PathBuf};

use terracedb::tools::LogConfig;
use terracedb::{Db, Error, ErrorKind, Keyspace, Result};

use crate::config::{Config, Flags, store_files};
use crate::{directory, escape, hex, new_store, place};

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
    #[arg(value_parser = place::store())]
    store: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

impl StoreArgs {
    pub(crate) const fn new(store: PathBuf, flags: Flags) -> Self {
        Self { store, flags }
    }

    /// The directory of the store.
    ///
    /// # Errors
    /// `Invalid` for wrong settings.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        Config::of_store(&self.store, &self.flags)?.path().map(Path::to_owned)
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// As [`Config::open`]; `Invalid` for wrong settings.
    pub(crate) fn open(&self) -> Result<Db> {
        Config::of_store(&self.store, &self.flags)?.open(false)
    }

    /// Opens an existing store to read it: for reading only if `access` says so, if another process has the
    /// store open, or if this user may not write to it.
    ///
    /// # Errors
    /// As [`StoreArgs::open`].
    pub(crate) fn open_to_read(&self, access: &ReadOnlyArgs) -> Result<Db> {
        let config = Config::of_store(&self.store, &self.flags)?;
        if access.read_only {
            return config.open_read_only();
        }
        match config.open(false) {
            Err(error) if is_unwritable(&error) => config.open_read_only(),
            opened => opened,
        }
    }

    /// Opens the store, or creates it if it is missing, and runs `work` on it; as [`new_store::with_store`].
    ///
    /// # Errors
    /// As [`Config::open`]; `Invalid` for wrong settings; those of `work`.
    pub(crate) fn with_store<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        new_store::with_store(&Config::of_store(&self.store, &self.flags)?, work)
    }
}

/// Whether the store can at most be read: another process has it open, or this user may not write to it.
pub(crate) fn is_unwritable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Locked | ErrorKind::PermissionDenied)
}

/// `--read-only`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadOnlyArgs {
    /// Read the store as it is now, and change nothing: no lock is taken, and another process may have the
    /// store open.
    /// Without it, that is done if another process has the store open or this user may not write to it
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// A store. The command reads or repairs its files without opening it.
#[derive(Debug, clap::Args)]
pub(crate) struct OfflineStoreArgs {
    /// The store's directory, or a configuration file that names it
    #[arg(value_parser = place::store())]
    store: PathBuf,
    /// Directories of the log's devices, separated by commas, if they are mounted elsewhere than before
    /// [default: where the store had them]
    #[arg(long, value_name = "PATH")]
    log_path: Option<String>,
}

impl OfflineStoreArgs {
    /// The directory of the store, and the devices of its log.
    ///
    /// # Errors
    /// `Invalid` if the directory holds no store, or the configuration file is wrong.
    pub(crate) fn files(&self) -> Result<(PathBuf, LogConfig)> {
        let (dir, log) = store_files(&self.store, self.log_path.as_ref())?;
        directory::must_hold_store(&dir)?;
        Ok((dir, log))
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
    /// Read and print keys and values as hexadecimal digits, instead of keys with escapes (\t, \n, \r,
    /// \\ and \xHH)
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

    /// Runs `work` on the keyspace; it and the store are created if they are missing.
    ///
    /// # Errors
    /// As [`StoreArgs::with_store`].
    pub(crate) fn with_keyspace<T>(&self, work: impl FnOnce(&Keyspace) -> Result<T>) -> Result<T> {
        self.store.with_store(|db| new_store::with_keyspace(db, &self.keyspace, work))
    }

    /// The bytes of a key argument.
    ///
    /// # Errors
    /// As [`decode_key`].
    pub(crate) fn key(&self, text: &str) -> Result<Vec<u8>> {
        decode_key(text, self.hex)
    }

    /// The bytes of a value argument: those of the text itself, or hexadecimal digits.
    ///
    /// # Errors
    /// As [`hex::decode`].
    pub(crate) fn value(&self, text: &str) -> Result<Vec<u8>> {
        if self.hex { hex::decode(text) } else { Ok(text.as_bytes().to_vec()) }
    }

    /// A key or value as text on one line.
    pub(crate) fn line(&self, bytes: &[u8]) -> Vec<u8> {
        if self.hex { hex::encode(bytes) } else { escape::escape(bytes) }
    }
}

/// The bytes of a key argument: text with escapes, or hexadecimal digits.
///
/// # Errors
/// As [`escape::unescape`] and [`hex::decode`].
pub(crate) fn decode_key(text: &str, is_hex: bool) -> Result<Vec<u8>> {
    if is_hex { hex::decode(text) } else { escape::unescape(text.as_bytes()) }
}

/// [`decode_key`] of an optional argument.
///
/// # Errors
/// As [`decode_key`].
pub(crate) fn decode_optional_key(text: Option<&String>, is_hex: bool) -> Result<Option<Vec<u8>>> {
    text.map(|text| decode_key(text, is_hex)).transpose()
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
            .expected(format_args!("one of [{}]", names.join(", ").escape_debug()))
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

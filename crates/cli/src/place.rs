//! A store and a keyspace in it, as they are typed, with the bytes of keys and values.

use std::path::PathBuf;

use terracedb::{Db, Error, Keyspace, Result};

use crate::config::{Config, Flags};

/// A store and a keyspace in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The store's directory, or a configuration file that names it
    store: PathBuf,
    /// The keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
    /// Read keys and values as hexadecimal digits, and print them so
    #[arg(long)]
    pub(crate) hex: bool,
    #[command(flatten)]
    flags: Flags,
}

impl Place {
    /// Opens the store, which is there already.
    pub(crate) fn open(&self) -> Result<Db> {
        Config::of_store(&self.store, &self.flags)?.open(false)
    }

    /// Opens the store, or makes one.
    pub(crate) fn open_or_create(&self) -> Result<Db> {
        Config::of_store(&self.store, &self.flags)?.open(true)
    }

    /// The keyspace, which is there already.
    pub(crate) fn existing(&self, db: &Db) -> Result<Keyspace> {
        existing(db, "--keyspace", &self.keyspace)
    }

    /// What was typed as bytes: itself, or the hexadecimal digits' values.
    pub(crate) fn bytes(&self, text: &str) -> Result<Vec<u8>> {
        bytes(text, self.hex)
    }

    /// [`Place::bytes`] of what may have been left out.
    pub(crate) fn bound(&self, text: Option<&String>) -> Result<Option<Vec<u8>>> {
        text.map(|text| self.bytes(text)).transpose()
    }

    /// Bytes as printed: as they are, or as hexadecimal digits.
    pub(crate) fn shown(&self, bytes: &[u8]) -> Vec<u8> {
        shown(bytes, self.hex)
    }
}

/// The keyspace called `name`, which was typed as `argument`; one that is not there is a mistake.
pub(crate) fn existing(db: &Db, argument: &'static str, name: &str) -> Result<Keyspace> {
    db.existing_keyspace(name).ok_or_else(|| {
        let names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        Error::invalid(argument)
            .expected(format_args!("one of [{}]", names.join(", ")))
            .got(format_args!("`{name}`"))
    })
}

/// The bytes that `text` stands for.
pub(crate) fn bytes(text: &str, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let refused = || {
        Error::invalid("argument")
            .expected("pairs of hexadecimal digits")
            .got(format_args!("`{text}`"))
    };
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let (pairs, []) = digits.as_deref().ok_or_else(refused)?.as_chunks::<2>() else {
        return Err(refused());
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Bytes as printed.
fn shown(bytes: &[u8], hex: bool) -> Vec<u8> {
    if hex {
        bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
    } else {
        bytes.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_arguments_round_trip() {
        assert_eq!(bytes("00ff1A", true).unwrap(), [0, 255, 26]);
        assert_eq!(shown(&[0, 255, 26], true), b"00ff1a");
        assert_eq!(bytes("ab", false).unwrap(), b"ab");
        for text in ["0", "0g", "0x00"] {
            assert!(bytes(text, true).is_err(), "{text}");
        }
    }
}

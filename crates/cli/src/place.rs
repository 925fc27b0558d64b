//! Places on the command line: a directory, also as a URL `file:///DIR`, or a prefix in an object store.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use terracedb::{Error, Result};

use crate::parsers::error_text;

/// Scheme of a directory's URL.
const FILE: &str = "file://";

/// Where a store or its backups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Directory(PathBuf),
    /// A URL of an object store.
    Object(String),
}

impl Place {
    /// Reads the name of a place.
    ///
    /// # Errors
    /// `Invalid` for a URL of another kind.
    pub(crate) fn of(typed: &Path) -> Result<Self> {
        let refused = |expected: &str| {
            let got = typed.display().to_string();
            let got = format_args!("`{}`", got.escape_debug());
            Err(Error::invalid("place").expected(expected).got(got))
        };
        // Only a path is not UTF-8.
        let Some(text) = typed.to_str() else { return Ok(Self::Directory(typed.to_owned())) };
        if let Some(path) = text.strip_prefix(FILE) {
            return match path.starts_with('/') && !path.contains(['?', '#', '%']) {
                true => Ok(Self::Directory(PathBuf::from(path))),
                false => refused("file:// and an absolute path without '?', '#' and '%'"),
            };
        }
        match text.split_once("://") {
            Some(("s3", _)) => Ok(Self::Object(text.to_owned())),
            Some(_) => refused("a directory, file:///DIR or s3://BUCKET/PREFIX"),
            None => Ok(Self::Directory(typed.to_owned())),
        }
    }

    /// The directory of a store.
    fn of_store(typed: &Path, instead: &str) -> Result<PathBuf> {
        match Self::of(typed)? {
            Self::Directory(path) => Ok(path),
            Self::Object(url) => Err(Error::invalid("place of a store")
                .expected(format_args!("a directory or file:///DIR; {instead}"))
                .got(format_args!("`{}`", url.escape_debug()))),
        }
    }
}

/// Parses any place.
pub(crate) fn any() -> impl TypedValueParser<Value = Place> {
    PathBufValueParser::new().try_map(|typed| Place::of(&typed).map_err(|error| error_text(&error)))
}

/// Parses the place of a store. It may be the name of a configuration file, too.
pub(crate) fn store() -> impl TypedValueParser<Value = PathBuf> {
    local("`terrace clone` makes a store of the backups in an object store")
}

/// Parses the place of a store that is to be created.
pub(crate) fn new_store() -> impl TypedValueParser<Value = PathBuf> {
    local("`terrace backup create` copies a store to an object store")
}

fn local(instead: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
        .try_map(move |typed| Place::of_store(&typed, instead).map_err(|error| error_text(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_directories_and_object_stores() {
        let directory = |path: &str| Place::Directory(PathBuf::from(path));
        for (text, place) in [
            ("/backups/shop", directory("/backups/shop")),
            ("backups", directory("backups")),
            ("file:///backups/shop", directory("/backups/shop")),
            ("s3://shop/eu", Place::Object("s3://shop/eu".to_owned())),
        ] {
            assert_eq!(Place::of(Path::new(text)).unwrap(), place);
        }
        for text in ["file://backups", "file:///a%20b", "gs://shop/eu", "http://shop"] {
            assert!(Place::of(Path::new(text)).is_err(), "{text}");
        }
    }
}

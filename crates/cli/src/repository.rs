//! Repositories of backups on the command line: a directory, or a prefix in an object store.

use std::path::Path;
use std::str::FromStr;

use terracedb::tools::Backup;
use terracedb::{Error, Result};

use crate::new_store::NewDirectory;
use crate::place::{self, Place};
use crate::progress::Progress;
use crate::{directory, interrupt};

/// How an object store is reached.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndpointArgs {
    /// The URL of the object store, for s3://; that of AWS without it [env: AWS_ENDPOINT_URL]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region of the bucket, for s3:// [env: AWS_REGION] [default: us-east-1]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
}

/// The repository of a command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RepositoryArgs {
    /// The backups: a directory, file:///DIR or s3://BUCKET/PREFIX
    #[arg(value_parser = place::any())]
    repository: Place,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

/// How a command uses the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads it without a lock.
    Read,
    /// Removes backups.
    Remove,
    /// Adds a backup, and creates the directory if it is missing.
    Create,
}

impl RepositoryArgs {
    pub(crate) const fn new(repository: Place, endpoint: EndpointArgs) -> Self {
        Self { repository, endpoint }
    }

    /// Opens the repository. The progress bar is called `command`; `rate` is in bytes per second.
    ///
    /// # Errors
    /// `Invalid` if it does not exist and is not created by `access`; those of opening it.
    pub(crate) fn open(&self, access: Access, rate: Option<u64>, command: &str) -> Result<Backup> {
        let backups = match &self.repository {
            Place::Directory(path) => in_directory(path, access)?,
            Place::Object(url) => self.in_object_store(url, access)?,
        };
        let bar = Progress::of_bytes(command);
        let backups = backups.rate(rate.unwrap_or(0)).cancel(interrupt::cancel());
        Ok(backups.progress(move |done, total| bar.show(done, Some(total))))
    }

    /// The directory before the command creates it; none in an object store.
    pub(crate) fn before(&self) -> Option<NewDirectory> {
        match &self.repository {
            Place::Directory(path) => Some(NewDirectory::before(path)),
            Place::Object(_) => None,
        }
    }

    #[cfg(feature = "remote")]
    fn in_object_store(&self, url: &str, access: Access) -> Result<Backup> {
        use std::sync::Arc;

        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let defaults = remote::Options::default();
        let region = self.endpoint.region.clone().or_else(|| set("AWS_REGION"));
        let options = remote::Options {
            endpoint: self.endpoint.endpoint.clone().or_else(|| set("AWS_ENDPOINT_URL")),
            region: region.unwrap_or(defaults.region),
            read_only: access == Access::Read,
            cancel: interrupt::cancel(),
            ..defaults
        };
        let medium = remote::ObjectMedium::open(&url.parse()?, &options)?;
        Ok(Backup::on_medium(Arc::new(medium)))
    }

    #[cfg(not(feature = "remote"))]
    #[expect(clippy::unused_self, reason = "builds with object stores need the endpoint")]
    fn in_object_store(&self, url: &str, _access: Access) -> Result<Backup> {
        let error = Error::invalid("object store").at(url.escape_debug());
        Err(error.expected("a build of terrace with `--features remote`"))
    }
}

fn in_directory(dir: &Path, access: Access) -> Result<Backup> {
    if access != Access::Create && !dir.is_dir() {
        let error = Error::invalid("directory of backups").at(dir.display());
        return Err(error.expected("one that exists").got("none"));
    }
    if access != Access::Create && directory::holds_only_store(dir) {
        return Err(Error::invalid("directory of backups")
            .at(dir.display())
            .expected("one with backups; `terrace clone` copies a store")
            .got("a store"));
    }
    match access {
        Access::Read => Backup::open_read_only(dir),
        Access::Remove | Access::Create => Backup::open(dir),
    }
}

/// A backup of a repository: a number, or the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Number(u64),
    Latest,
}

impl Chosen {
    /// The number of the backup in `backups`.
    ///
    /// # Errors
    /// `Invalid` if there is no backup; the device's.
    pub(crate) fn number(self, backups: &Backup) -> Result<u64> {
        if let Self::Number(id) = self {
            return Ok(id);
        }
        let list = backups.list()?;
        // The newest one may be damaged; an older one is not taken for it in silence.
        let damaged = list.damaged.iter().map(|(id, _)| *id);
        let newest = list.backups.iter().map(|backup| backup.id).chain(damaged).max();
        newest.ok_or_else(|| Error::invalid("latest backup").expected("a backup").got("none"))
    }
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("latest", _) => Ok(Self::Latest),
            (_, Ok(id)) => Ok(Self::Number(id)),
            _ => Err("expected a number or `latest`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_a_number_or_the_latest() {
        assert_eq!("latest".parse(), Ok(Chosen::Latest));
        assert_eq!("17".parse(), Ok(Chosen::Number(17)));
        assert!("newest".parse::<Chosen>().is_err() && "-1".parse::<Chosen>().is_err());
    }
}

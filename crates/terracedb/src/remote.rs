//! Cold tables in an object store that speaks S3.

use std::sync::Arc;
use std::time::Duration;

use base::{Cancel, Result};
use engine::{ColdConfig, Components as _};
use remote::{ObjectMedium, Options};

use crate::Resources;
use crate::builder::OpenObjectStore;

/// Tables are cold after this long, if nothing else is set.
const COLD_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Longest range that a merge or scan asks for ahead, bytes: many tables may be read at once.
const RANGE_BYTES_MAX: u64 = 1 << 20;

/// The object store that a store's oldest tables live in: [`Builder::object_store`](crate::Builder).
///
/// A table becomes cold once nothing older lay below its keys for [`ObjectStore::cold_after`]. It is uploaded
/// and verified, the manifest states it, and its local file is removed. Reads get its pages by ranged
/// requests, through the page cache and the SCM tier. Merges read and replace cold tables like all others;
/// obsolete ones are removed from the object store. Checkpoints and backups have copies of cold tables.
///
/// A prefix of a bucket belongs to one store. A copy of the store's directory is refused once the original
/// has used the prefix again.
///
/// ```no_run
/// # fn main() -> terracedb::Result<()> {
/// use std::time::Duration;
/// use terracedb::Db;
/// use terracedb::remote::ObjectStore;
/// let cold = ObjectStore::new("s3://bucket/stores/shop").cold_after(Duration::from_secs(3600));
/// let db = Db::builder("/data/shop").object_store(cold).open()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ObjectStore {
    url: String,
    endpoint: Option<String>,
    region: Option<String>,
    cold_after: Duration,
}

impl ObjectStore {
    /// The prefix `s3://BUCKET/PREFIX`. The access key is that of the environment: `AWS_ACCESS_KEY_ID` and
    /// `AWS_SECRET_ACCESS_KEY`, or a profile of `~/.aws/credentials`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), endpoint: None, region: None, cold_after: COLD_AFTER }
    }

    /// The URL of the service, `http://HOST:PORT` or `https://HOST`; that of AWS by default.
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// The region of the bucket; `us-east-1` by default.
    #[must_use]
    pub fn region(mut self, name: impl Into<String>) -> Self {
        self.region = Some(name.into());
        self
    }

    /// How long nothing older must have been below a table, while the store is open; a day by default.
    #[must_use]
    pub fn cold_after(mut self, time: Duration) -> Self {
        self.cold_after = time;
        self
    }
}

impl OpenObjectStore for ObjectStore {
    fn open(&self, resources: &Resources, read_only: bool) -> Result<ColdConfig> {
        let cancel = Cancel::new();
        let defaults = Options::default();
        let options = Options {
            endpoint: self.endpoint.clone(),
            region: self.region.clone().unwrap_or(defaults.region),
            read_only,
            cancel: cancel.clone(),
            // A store that is closed for writes is still read.
            reads_ignore_cancel: true,
            // The store opens, and is read where it is local, while the object store does not answer.
            names_later: true,
            account: resources.account("object store"),
            range_bytes_max: RANGE_BYTES_MAX,
            ..Options::default()
        };
        let medium = ObjectMedium::open(&self.url.parse()?, &options)?;
        let (medium, after) = (Arc::new(medium), self.cold_after);
        Ok(ColdConfig { medium, after, read_only, cancel })
    }
}

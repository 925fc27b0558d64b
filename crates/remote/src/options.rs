//! How a bucket is reached.

use std::time::Duration;

use base::{Account, Cancel};
use media::Pace;

use crate::Credentials;

/// Longest range by default, bytes: at 100 MB/s the wait for the first byte is an eighth of its time.
const RANGE_BYTES_MAX: u64 = 8 << 20;
/// Shortest part of an upload that S3 takes, except for the last.
const PART_BYTES: u64 = 8 << 20;
/// Bytes after which names are published although the caller does not ask for it, so that a writer that
/// dies leaves objects that the next one uses.
const PUBLISHED_EVERY_BYTES: u64 = 128 << 20;

/// How a bucket is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL of the store; that of AWS by default.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: String,
    /// The access key; that of the environment by default ([`Credentials::of_environment`]).
    pub credentials: Option<Credentials>,
    /// Nothing is written.
    pub read_only: bool,
    /// Ends requests and their waits early.
    pub cancel: Cancel,
    /// `cancel` does not end reads of files, nor that of the names when the first file is opened.
    pub reads_ignore_cancel: bool,
    /// The names are read when one is needed first, and not by [`ObjectMedium::open`](crate::ObjectMedium),
    /// which then asks the store for nothing.
    pub names_later: bool,
    /// The memory of parts and ranges.
    pub account: Account,
    /// Length of the parts of long files, bytes. S3 takes none below 5 MiB.
    pub part_bytes: u64,
    /// Bytes after which names are published early.
    pub published_every_bytes: u64,
    /// The longest range that is asked for ahead, bytes.
    pub range_bytes_max: u64,
    /// The longest time without progress of a connection.
    pub stall: Duration,
    /// Waits between tries.
    pub pace: Pace,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: "us-east-1".to_owned(),
            credentials: None,
            read_only: false,
            cancel: Cancel::new(),
            reads_ignore_cancel: false,
            names_later: false,
            account: Account::unlimited("object store"),
            part_bytes: PART_BYTES,
            published_every_bytes: PUBLISHED_EVERY_BYTES,
            range_bytes_max: RANGE_BYTES_MAX,
            stall: Duration::from_secs(60),
            pace: Pace::real(),
        }
    }
}

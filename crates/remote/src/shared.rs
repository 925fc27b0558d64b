//! The state that a medium shares with its files.

use base::Account;
use parking_lot::Mutex;

use crate::client::Client;
use crate::session::Session;

/// State that the medium shares with its files.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) part_bytes: u64,
    pub(crate) range_bytes_max: u64,
    /// Locked during the requests that publish.
    pub(crate) session: Mutex<Session>,
}

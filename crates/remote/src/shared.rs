//! The state that a medium shares with its files.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Account, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::client::Client;
use crate::session::Session;

/// The step of a writer that waits for readers of the names.
const STEP: Duration = Duration::from_millis(50);

/// State that the medium shares with its files.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    /// For files and the names of files to read; may outlive the cancellation of the other.
    pub(crate) reads: Client,
    pub(crate) account: Account,
    pub(crate) part_bytes: u64,
    pub(crate) range_bytes_max: u64,
    /// Locked during the requests that publish, and that read the names.
    pub(crate) session: Mutex<Session>,
    /// Times that the names were to be read.
    pub(crate) tries: AtomicU64,
}

impl Shared {
    /// The session, with names.
    ///
    /// # Errors
    /// Those of reading the newest manifest.
    pub(crate) fn named(&self) -> Result<MutexGuard<'_, Session>> {
        // Relaxed: a caller that misses a try makes one of its own.
        let before = self.tries.load(Ordering::Relaxed);
        let mut session = self.session.lock();
        let is_tried = self.tries.load(Ordering::Relaxed) != before;
        let read = session.must_be_read(&self.reads, is_tried);
        self.tries.fetch_add(1, Ordering::Relaxed);
        read.map(|()| session)
    }

    /// The session for a writer to begin in. A reader has it as long as the store does not answer.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn for_writer(&self) -> Result<MutexGuard<'_, Session>> {
        loop {
            if let Some(session) = self.session.try_lock_for(STEP) {
                return Ok(session);
            }
            self.client.check()?;
        }
    }
}

//! [`Ready`]: one descriptor for the completions of several devices.
//!
//! An epoll descriptor is itself readable while one of its members is, so it can be waited for together with
//! sockets. Level-triggered. Threads: that of the read queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Error, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Readable while one of its members is.
#[derive(Debug)]
pub(crate) struct Ready(OwnedFd);

impl Ready {
    /// Without a member.
    ///
    /// # Errors
    /// `Retry` if the operating system has no descriptor left.
    pub(crate) fn new() -> Result<Self> {
        let made = epoll::create(CreateFlags::CLOEXEC);
        made.map(Self).map_err(|error| Error::retry("epoll descriptor").caused_by(error))
    }

    /// Adds a member.
    ///
    /// # Errors
    /// `Retry` if the kernel refuses it, for lack of memory.
    pub(crate) fn add(&self, member: BorrowedFd<'_>) -> Result<()> {
        epoll::add(&self.0, member, EventData::new_u64(0), EventFlags::IN)
            .map_err(|error| Error::retry("epoll descriptor").caused_by(error))
    }

    /// Removes a member.
    pub(crate) fn remove(&self, member: BorrowedFd<'_>) {
        let removed = epoll::delete(&self.0, member);
        base::invariant!(removed.is_ok(), "a member that was added can be removed");
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

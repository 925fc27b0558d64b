//! Cancellation: one thread asks an operation of another to end early.
//!
//! The operation checks between two steps, undoes its unfinished work, and returns
//! [`ErrorKind::Cancelled`]. Threads: any. Cost: a check is one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, ErrorKind, Result};

/// A request to end an operation early; copies share it. It cannot be taken back.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A request that was not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the request.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler, which may do no more than set it.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Ends `operation` if the request was made.
    ///
    /// # Errors
    /// `Cancelled`, about `operation`.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::new(ErrorKind::Cancelled, operation)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_request() {
        let cancel = Cancel::new();
        let copy = cancel.clone();
        copy.check("copy").unwrap();
        cancel.cancel();
        let error = copy.check("copy").unwrap_err();
        assert_eq!((error.kind(), error.what()), (ErrorKind::Cancelled, "copy"));
        assert_eq!(error.when_to_retry(), crate::Retry::Now);
        assert!(copy.flag().load(Ordering::Relaxed) && !Cancel::new().is_cancelled());
    }
}

//! How a host reaches its workers: the token, and the link to an address.

use std::fmt;
use std::time::Duration;

use base::Result;

use crate::{Address, Link, StreamLink};

/// The credentials of a host.
#[derive(Default)]
pub(crate) struct Dial {
    token: Vec<u8>,
}

impl Dial {
    pub(crate) fn new(token: Vec<u8>) -> Self {
        Self { token }
    }

    pub(crate) fn token(&self) -> &[u8] {
        &self.token
    }

    /// Connects to a worker.
    ///
    /// # Errors
    /// As [`StreamLink::connect`].
    pub(crate) fn connect(&self, address: &Address, timeout: Duration) -> Result<Box<dyn Link>> {
        Ok(Box::new(StreamLink::connect(address, timeout)?))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.write_str("Dial")
    }
}

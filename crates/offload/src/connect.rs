//! How a host reaches its workers: the token, and the link to an address.

use base::Result;
use std::fmt;

use crate::{Address, Link, StreamLink, Timing};

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
    pub(crate) fn connect(&self, address: &Address, timing: &Timing) -> Result<Box<dyn Link>> {
        let link = StreamLink::connect(address, timing.connect)?;
        Ok(Box::new(link.patient_for(timing.lease)))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.write_str("Dial")
    }
}

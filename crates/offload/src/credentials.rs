//! How a host reaches its workers: the token, TLS, and the link to an address.

use std::fmt;

use base::{Error, Result};

#[cfg(feature = "tls")]
use crate::HostTls;
use crate::{Address, Link, StreamLink, Timing};

/// The secrets that a host shows to its workers, and the proofs that it asks of them.
#[derive(Clone, Default)]
pub struct Credentials {
    token: Vec<u8>,
    allows_plaintext: bool,
    #[cfg(feature = "tls")]
    tls: Option<HostTls>,
}

impl Credentials {
    /// Hosts that know `token`, which workers need over TCP. TCP is for this machine only.
    #[must_use]
    pub const fn new(token: Vec<u8>) -> Self {
        Self {
            token,
            allows_plaintext: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Chooses whether TCP without TLS may leave this machine: by default it may not, since the token and
    /// the content of merges could be read on the way.
    #[must_use]
    pub const fn allowing_plaintext(mut self, allows: bool) -> Self {
        self.allows_plaintext = allows;
        self
    }

    /// Encrypts every link over TCP, on this machine too.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypting(mut self, tls: HostTls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(crate) fn token(&self) -> &[u8] {
        &self.token
    }

    const fn is_encrypting(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether links over TCP may leave this machine.
    const fn may_leave(&self) -> bool {
        self.is_encrypting() || self.allows_plaintext
    }

    /// Checks that a worker at `address` may be connected to.
    ///
    /// # Errors
    /// `Invalid` if it is beyond loopback, without TLS.
    pub(crate) fn admit(&self, address: &Address) -> Result<()> {
        match address {
            // A name that cannot be resolved now is a worker that cannot be reached now.
            Address::Tcp(text) if !self.may_leave() => Address::sockets(text, false).map(|_| ()),
            Address::Tcp(_) | Address::Unix(_) => Ok(()),
        }
    }

    /// Memory of a link to `address` beyond its frames, bytes.
    pub(crate) const fn link_bytes(&self, address: &Address) -> u64 {
        #[cfg(feature = "tls")]
        if self.is_encrypting() && matches!(address, Address::Tcp(_)) {
            return crate::tls::TlsStream::BYTES;
        }
        let _ = address;
        0
    }

    /// Connects to a worker.
    ///
    /// # Errors
    /// As [`StreamLink::connect`], or that of the handshake; with the reason it is counted under.
    pub(crate) fn connect(
        &self,
        address: &Address,
        timing: &Timing,
    ) -> Result<Box<dyn Link>, (&'static str, Error)> {
        let unreachable = |error| ("unreachable", error);
        let link = match address {
            Address::Unix(path) => StreamLink::to_unix(path).map_err(unreachable)?,
            Address::Tcp(text) => {
                let socket = StreamLink::to_tcp(text, self.may_leave(), timing.connect);
                let socket = socket.map_err(unreachable)?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &self.tls {
                    let host = Address::host(text);
                    let stream = tls.greet(socket, host, timing.connect);
                    let stream = stream.map_err(|error| ("tls", error))?;
                    let link = StreamLink::encrypted(stream).map_err(unreachable)?;
                    return Ok(Box::new(link.patient_for(timing.lease)));
                }
                StreamLink::tcp(socket).map_err(unreachable)?
            }
        };
        Ok(Box::new(link.patient_for(timing.lease)))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.write_str("Credentials")
    }
}

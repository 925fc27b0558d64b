//! The address of a worker: `unix:PATH` or `tcp://HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use base::{Error, Result};

/// The address of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port, as `HOST:PORT`.
    Tcp(String),
}

impl Address {
    /// The socket address of a TCP address, which must be of this machine: frames are not encrypted.
    ///
    /// # Errors
    /// `Invalid` if there is none, or it is beyond loopback.
    pub(crate) fn loopback(text: &str) -> Result<SocketAddr> {
        let wrong = || Error::invalid("address of a worker").got(format_args!("`{text}`"));
        let mut found = text.to_socket_addrs().map_err(|error| wrong().caused_by(error))?;
        let address = found.next().ok_or_else(wrong)?;
        if !address.ip().is_loopback() {
            return Err(wrong().expected(
                "a loopback address: frames are not encrypted, so tunnel them between machines",
            ));
        }
        Ok(address)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let error = Error::invalid("address of a worker");
            error.expected("unix:PATH or tcp://HOST:PORT").got(format_args!("`{text}`"))
        };
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let tcp = text.strip_prefix("tcp://").ok_or_else(wrong)?;
        let port = tcp.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.and_then(|(_, port)| port.parse::<u16>().ok()).ok_or_else(wrong)?;
        Ok(Self::Tcp(tcp.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_format() {
        for text in ["unix:/run/w", "unix:w", "tcp://127.0.0.1:7400", "tcp://[::1]:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "tcp://", "tcp://:1", "tcp://host", "tcp://host:99999", "/run/w"]
        {
            text.parse::<Address>().unwrap_err();
        }
    }

    #[test]
    fn tcp_beyond_loopback_is_refused() {
        assert!(Address::loopback("127.0.0.1:7400").is_ok());
        assert!(Address::loopback("[::1]:7400").is_ok());
        let refused = Address::loopback("192.0.2.1:7400").unwrap_err().to_string();
        assert!(refused.contains("loopback"), "{refused}");
        Address::loopback("0.0.0.0:7400").unwrap_err();
    }
}

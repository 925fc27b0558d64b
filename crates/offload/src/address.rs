//! The address of a worker: `unix:PATH` or `tcp://HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use base::{Error, Result};

/// Most socket addresses of a host name that are tried.
const SOCKETS_MAX: usize = 8;

/// The address of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port, as `HOST:PORT`.
    Tcp(String),
}

impl Address {
    /// The socket addresses of a TCP address, at least one. They must be of this machine unless the link
    /// `may_leave` it: it is encrypted, or need not be.
    ///
    /// # Errors
    /// `Invalid` if there is none, or one is beyond loopback.
    pub(crate) fn sockets(text: &str, may_leave: bool) -> Result<Vec<SocketAddr>> {
        let wrong = || Error::invalid("address of a worker").got(format_args!("`{text}`"));
        let found = text.to_socket_addrs().map_err(|error| wrong().caused_by(error))?;
        let found: Vec<_> = found.take(SOCKETS_MAX).collect();
        if found.is_empty() {
            return Err(wrong());
        }
        if !may_leave && found.iter().any(|address| !address.ip().is_loopback()) {
            return Err(wrong().expected(
                "a loopback address, TLS (`tls-cert` of the worker, `tls-ca` of the host), or \
                 `allow-plaintext`",
            ));
        }
        Ok(found)
    }

    /// The host of a TCP address, without the brackets of an IPv6 address.
    #[cfg(feature = "tls")]
    pub(crate) fn host(text: &str) -> &str {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
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
        assert!(Address::sockets("127.0.0.1:7400", false).is_ok());
        assert!(Address::sockets("[::1]:7400", false).is_ok());
        let refused = Address::sockets("192.0.2.1:7400", false).unwrap_err().to_string();
        assert!(refused.contains("loopback") && refused.contains("TLS"), "{refused}");
        Address::sockets("0.0.0.0:7400", false).unwrap_err();
        let found = Address::sockets("192.0.2.1:7400", true).unwrap();
        assert_eq!(found, ["192.0.2.1:7400".parse().unwrap()]);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_host_of_an_address_is_the_name_in_its_certificate() {
        for (text, host) in [("dpu0:7400", "dpu0"), ("[::1]:1", "::1"), ("10.0.0.1:1", "10.0.0.1")]
        {
            assert_eq!(Address::host(text), host);
        }
    }
}

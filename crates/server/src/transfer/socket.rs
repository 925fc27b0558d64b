//! [`Socket`]: the connection to a source, plain or encrypted with rustls.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::stopped::Stopped;
use crate::tls;

/// A source that says nothing for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Files for an encrypted connection to a source, in PEM.
#[derive(Clone, Debug, Default)]
pub struct SourceTls {
    /// One of these authorities signed the certificate of the source. Without them, one that the system
    /// trusts: those in `SSL_CERT_FILE` and `SSL_CERT_DIR`, or in the system's own place.
    pub authorities: Option<PathBuf>,
    /// A certificate and its key, for a source that asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// A socket that fails after a minute of silence.
pub(super) enum Socket {
    Plain(TcpStream),
    // A session has several hundred bytes.
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    /// Connects to `HOST:PORT`.
    pub(super) fn connect(address: &str) -> Result<Self, Stopped> {
        open(address).map(Self::Plain)
    }

    /// Connects to `HOST:PORT` and shakes hands: the certificate of the source must be for that host.
    pub(super) fn connect_encrypted(address: &str, tls: &SourceTls) -> Result<Self, Stopped> {
        let config = Arc::new(configure(tls)?);
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Stopped::new(error.to_string()).at(address))?;
        let session = ClientConnection::new(config, name)
            .map_err(|error| Stopped::new(error.to_string()).at(address))?;
        let mut stream = StreamOwned::new(session, open(address)?);
        while stream.conn.is_handshaking() {
            let step = stream.conn.complete_io(&mut stream.sock);
            step.map_err(|error| Stopped::from(error).at(address))?;
        }
        Ok(Self::Encrypted(Box::new(stream)))
    }
}

fn open(address: &str) -> Result<TcpStream, Stopped> {
    let open = || {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        Ok(socket)
    };
    open().map_err(|error: io::Error| Stopped::from(error).at(address))
}

fn configure(tls: &SourceTls) -> Result<ClientConfig, Stopped> {
    let roots = match &tls.authorities {
        Some(path) => tls::roots("--tls-ca", path)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Stopped::new(error.to_string()))?
        .with_root_certificates(roots);
    let Some((chain, key)) = &tls.own else {
        return Ok(builder.with_no_client_auth());
    };
    let certificates = tls::certificates("--tls-cert", chain)?;
    builder
        .with_client_auth_cert(certificates, tls::private_key(key)?)
        .map_err(|error| tls::unusable("--tls-key", key, error).into())
}

fn system_roots() -> Result<RootCertStore, Stopped> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system may have an authority that rustls cannot use: the others count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(Stopped::new(format!(
            "this system trusts no authority that can be used{why}; name one by --tls-ca"
        )));
    }
    Ok(roots)
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buf),
            Self::Encrypted(stream) => stream.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(buf),
            Self::Encrypted(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}

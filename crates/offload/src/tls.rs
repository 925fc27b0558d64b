//! Encrypted links between machines: TLS 1.3 with rustls, over a socket that blocks for a stated time.
//!
//! A worker shows a certificate; a host checks it against its own authorities and the host name of the
//! worker's address, before it sends the token. With authorities of its own a worker asks hosts for a
//! certificate too. Files are read once, at the start.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Error, Result};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::link::{Stream, is_timeout};

/// Plaintext, and its ciphertext, that wait for the socket, bytes.
const PENDING_BYTES: usize = 64 << 10;

/// The certificates of a host's workers, and its own.
#[derive(Clone)]
pub struct HostTls(Arc<ClientConfig>);

/// The certificate of a worker.
#[derive(Clone)]
pub struct WorkerTls(Arc<ServerConfig>);

impl HostTls {
    /// Trusts workers with certificates of the authorities in a PEM file. `own` has the files of a
    /// certificate and its key, for workers that ask for one.
    ///
    /// # Errors
    /// `Invalid` if a file cannot be read or used.
    pub fn open(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable("authorities of workers", authorities, error))?
            .with_root_certificates(roots("authorities of workers", authorities)?);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(certificates("certificate of a host", chain)?, private(key)?)
                .map_err(|error| unusable("key of a certificate", key, error))?,
        };
        // A connection is a job: nothing is gained by resuming.
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with the worker at the other end of `socket` within `wait`. Its certificate must be for
    /// `host`, the name in its address.
    pub(crate) fn greet(&self, socket: TcpStream, host: &str, wait: Duration) -> Result<TlsStream> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| {
            Error::invalid("host name of a worker").got(host.escape_debug()).caused_by(error)
        })?;
        let session = ClientConnection::new(Arc::clone(&self.0), name);
        let session = session.map_err(|error| Error::invalid("TLS session").caused_by(error))?;
        TlsStream::greet(socket, session.into(), wait)
    }
}

impl WorkerTls {
    /// Shows the certificate chain in a PEM file; its key is in another. With `authorities`, hosts need a
    /// certificate that one of these signed.
    ///
    /// # Errors
    /// `Invalid` if a file cannot be read or used.
    pub fn open(chain: &Path, key: &Path, authorities: Option<&Path>) -> Result<Self> {
        let certificates = certificates("certificate of a worker", chain)?;
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable("certificate of a worker", chain, error))?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let name = "authorities of hosts";
                let roots = Arc::new(roots(name, path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| unusable(name, path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        // Also says whether the key is that of the certificate.
        let mut config = builder
            .with_single_cert(certificates, private(key)?)
            .map_err(|error| unusable("key of a certificate", key, error))?;
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with the host at the other end of `socket` within `wait`.
    pub(crate) fn greet(&self, socket: TcpStream, wait: Duration) -> Result<TlsStream> {
        let session = ServerConnection::new(Arc::clone(&self.0));
        let session = session.map_err(|error| Error::invalid("TLS session").caused_by(error))?;
        TlsStream::greet(socket, session.into(), wait)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(name: &'static str, path: &Path, why: impl fmt::Display) -> Error {
    Error::invalid(name).at(path.display()).expected("a usable file in PEM").got(why)
}

fn certificates(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let read = read.map_err(|error| unusable(name, path, error))?;
    if read.is_empty() {
        return Err(unusable(name, path, "no certificate"));
    }
    Ok(read)
}

fn private(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::from_pem_file(path);
    key.map_err(|error| unusable("key of a certificate", path, error))
}

fn roots(name: &'static str, path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(name, path)? {
        roots.add(authority).map_err(|error| unusable(name, path, error))?;
    }
    Ok(roots)
}

/// An encrypted stream. A call waits for the socket at most once, as a plain stream does, so that the time
/// and the memory of its caller are bounded.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Connection,
}

impl TlsStream {
    /// Memory of a stream, bytes: plaintext and ciphertext that wait for the socket, and a received record.
    pub(crate) const BYTES: u64 = 2 * PENDING_BYTES as u64 + (48 << 10);

    fn greet(socket: TcpStream, session: Connection, wait: Duration) -> Result<Self> {
        let until = Instant::now() + wait;
        let mut stream = Self { socket, session };
        stream.session.set_buffer_limit(Some(PENDING_BYTES));
        while stream.session.is_handshaking() || stream.session.wants_write() {
            // A stranger that sends a byte now and then does not hold the caller.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::retry("TLS handshake").expected("an answer in time"));
            }
            match stream.step(left) {
                Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(Error::invalid("TLS handshake").caused_by(error));
                }
                Err(error) => return Err(Error::retry("TLS handshake").caused_by(error)),
                Ok(()) => {}
            }
        }
        Ok(stream)
    }

    /// One step of the handshake, which waits at most `wait`.
    fn step(&mut self, wait: Duration) -> io::Result<()> {
        let wait = Some(wait.max(Duration::from_millis(1)));
        if self.session.wants_write() {
            self.socket.set_write_timeout(wait)?;
            return match self.session.write_tls(&mut self.socket)? {
                0 => Err(ErrorKind::WriteZero.into()),
                _ => Ok(()),
            };
        }
        self.socket.set_read_timeout(wait)?;
        match self.session.read_tls(&mut self.socket)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => self.process(),
        }
    }

    /// Processes records that were received.
    fn process(&mut self) -> io::Result<()> {
        match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // An alert tells the other side; it may be gone.
                let _ = self.session.write_tls(&mut self.socket);
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    /// Sends the ciphertext that waits.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(buf) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        // An end without a last record is found by the reader below.
        self.session.read_tls(&mut self.socket)?;
        self.process()?;
        match self.session.reader().read(buf) {
            // A part of a record, or one without content: the caller looks at its clock and tries again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::Interrupted.into())
            }
            done => done,
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.push()?;
        let taken = self.session.writer().write(buf)?;
        match self.push() {
            // Encrypted bytes count as written; the next call sends them.
            Err(error) if !is_timeout(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

impl Stream for TlsStream {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(wait))
    }

    fn write_at_most(&self, wait: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(wait))
    }
}

impl fmt::Debug for HostTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.write_str("HostTls")
    }
}

impl fmt::Debug for WorkerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.write_str("WorkerTls")
    }
}

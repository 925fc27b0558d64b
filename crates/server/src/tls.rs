//! [`Tls`]: encrypted connections of clients, with rustls: TLS 1.2 and 1.3.
//!
//! The certificate is read again after SIGHUP; connections that stand keep theirs. Any thread.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use terracedb::memory::{Account, Charge};
use terracedb::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::clients::Client;
use crate::config::TlsConfig;

/// A client that has not shown itself after this time is cut off.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Memory of one connection in rustls: a record of 16 KiB and its ciphertext, each way.
const CONNECTION_BYTES: u64 = 72 << 10;
/// Plaintext that waits for the socket, bytes.
const BUFFER_BYTES: usize = 32 << 10;

/// The server's side of encrypted connections.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsConfig,
    server: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// That a file cannot be read, or that its certificates or key cannot be used.
    pub(crate) fn open(files: TlsConfig) -> Result<Self> {
        let server = ArcSwap::from_pointee(configure(&files)?);
        Ok(Self { files, server })
    }

    /// Reads the files again. If that fails, the old certificate stays, and the operator is told.
    pub(crate) fn reload(&self) {
        match configure(&self.files) {
            Ok(server) => self.server.store(Arc::new(server)),
            Err(error) => eprintln!("warning: the certificate was not reloaded: {error}"),
        }
    }

    /// The handshake with a new client; `None` if it fails, takes too long, or if there is no memory for it.
    pub(crate) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
        client: &Client,
        account: &Account,
    ) -> Option<(TlsStream<S>, Charge)> {
        let mut charge = account.empty_charge();
        if !charge.try_grow(CONNECTION_BYTES) {
            return None;
        }
        let acceptor = TlsAcceptor::from(self.server.load_full());
        let shaken = acceptor.accept_with(socket, |connection| {
            connection.set_buffer_limit(Some(BUFFER_BYTES));
        });
        tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE, shaken) => Some((shaken.ok()?.ok()?, charge)),
            // The server ends, or the client was killed: nothing else is sent to one without a session.
            () = client.has_message.notified() => None,
        }
    }
}

/// The file of the option `name` cannot be used.
pub(crate) fn unusable(name: &'static str, path: &Path, why: impl std::fmt::Display) -> Error {
    Error::invalid(name).expected("a usable file in PEM").got(format!("{}: {why}", path.display()))
}

/// The certificates in the file of the option `name`: at least one.
pub(crate) fn certificates(
    name: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let read = read.map_err(|error| unusable(name, path, error))?;
    if read.is_empty() {
        return Err(unusable(name, path, "it has no certificate"));
    }
    Ok(read)
}

/// The private key in the file of `--tls-key`.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable("--tls-key", path, error))
}

/// The authorities in the file of the option `name`.
pub(crate) fn roots(name: &'static str, path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(name, path)? {
        roots.add(authority).map_err(|error| unusable(name, path, error))?;
    }
    Ok(roots)
}

fn configure(files: &TlsConfig) -> Result<ServerConfig> {
    let chain = certificates("--tls-cert", &files.certificates)?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("--tls-cert", &files.certificates, error))?;
    let builder = match &files.authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots("--tls-ca", path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| unusable("--tls-ca", path, error))?,
            )
        }
    };
    // Also says whether the key is that of the certificate.
    builder.with_single_cert(chain, key).map_err(|error| unusable("--tls-key", &files.key, error))
}

//! A worker: listens, and runs the jobs that hosts offer, each connection on a thread of its own.
//!
//! It keeps no state between jobs. Memory and the number of connections are bounded; a job that does not fit
//! is refused, so that its host runs it.

mod client;
mod compress;
mod job;
mod quota;
mod verify;

use std::fmt;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::{Error, Result};
use compact::Operators;
use media::Medium;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use table::BlockEngine;

pub(crate) use client::{Client, WINDOW_BYTES};
use quota::Quota;

#[cfg(feature = "tls")]
use crate::WorkerTls;
use crate::{Address, Link, StreamLink, Timing};

/// Connections beyond the slots: hosts that are being refused.
const CONNECTIONS_SPARE: usize = 16;

/// How long the worker waits for a connection before it looks whether to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// A directory of a store that the worker can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name, for messages.
    pub name: String,
    /// The directory.
    pub directory: PathBuf,
}

/// The files of a store that a worker reaches by itself, in another way than through a directory: the seam
/// for an object store.
///
/// It must see files that the host made, and the host those of the worker once they are synced with their
/// names; it must not create a file that exists.
pub trait OpenMedium: Send + Sync + fmt::Debug {
    /// Opens the files, for one job.
    ///
    /// # Errors
    /// Any: then they come over the link.
    fn open(&self) -> Result<Arc<dyn Medium>>;
}

/// Options of a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Memory of all jobs together, bytes.
    pub memory: u64,
    /// Jobs that run at once.
    pub slots: usize,
    /// Directories of stores that the worker can open. The files of other stores come over the link.
    pub roots: Vec<Root>,
    /// Stores that it reaches in other ways.
    pub media: Vec<Arc<dyn OpenMedium>>,
    /// The token that hosts must know; over TCP there must be one.
    pub token: Option<Vec<u8>>,
    /// The certificate for links over TCP, which are encrypted then.
    #[cfg(feature = "tls")]
    pub tls: Option<WorkerTls>,
    /// Whether TCP without TLS may leave this machine.
    pub allows_plaintext: bool,
    /// The merge operators that the worker knows.
    pub operators: Arc<Operators>,
    /// The times of an attempt.
    pub timing: Timing,
    /// Whether it runs whole jobs; it compresses blocks in any case.
    pub merges: bool,
    /// Compresses and decompresses blocks; `None`: the threads of jobs do.
    pub engine: Option<Arc<dyn BlockEngine>>,
    /// The name of the engine, for hosts.
    pub engine_name: &'static str,
    /// Processor seconds per second of all jobs together; `None`: no limit.
    pub cpu_share: Option<f64>,
}

impl WorkerOptions {
    /// The link over a TCP connection.
    #[cfg(feature = "tls")]
    fn link(&self, stream: TcpStream) -> Result<StreamLink> {
        match &self.tls {
            Some(tls) => StreamLink::encrypted(tls.greet(stream, self.timing.connect)?),
            None => StreamLink::tcp(stream),
        }
    }

    /// The link over a TCP connection.
    #[cfg(not(feature = "tls"))]
    fn link(&self, stream: TcpStream) -> Result<StreamLink> {
        StreamLink::tcp(stream)
    }

    /// Memory of a link beyond its frames, bytes.
    const fn link_bytes(&self) -> u64 {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return crate::tls::TlsStream::BYTES;
        }
        0
    }

    const fn is_encrypting(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            slots: 2,
            roots: Vec::new(),
            media: Vec::new(),
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
            allows_plaintext: false,
            operators: Arc::new(Operators::builtin()),
            timing: Timing::default(),
            merges: true,
            engine: None,
            engine_name: "soft",
            cpu_share: None,
        }
    }
}

/// State that the connections of a worker share.
struct Shared {
    options: WorkerOptions,
    /// Memory granted to jobs, bytes. Only a number: `Relaxed`.
    granted: AtomicU64,
    /// Jobs that run. Only a number: `Relaxed`.
    running: AtomicUsize,
    /// Open connections. Only a number: `Relaxed`.
    connections: AtomicUsize,
    /// Jobs that ended with an outcome, and those that did not.
    done: AtomicU64,
    failed: AtomicU64,
    quota: Quota,
}

/// A connection, counted until it is dropped: even if its thread panics.
struct Connection(Arc<Shared>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        if std::thread::panicking() {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A connection that nobody spoke on yet.
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Accepted {
    /// Its link, after the handshake if it is encrypted. The token is checked later, so the time of the
    /// handshake is bounded, and so are the connections of strangers.
    fn link(self, options: &WorkerOptions) -> Result<Box<dyn Link>> {
        let link = match self {
            Self::Unix(stream) => StreamLink::unix(stream)?,
            Self::Tcp(stream) => options.link(stream)?,
        };
        // The host may answer earlier requests first, and read nothing meanwhile.
        Ok(Box::new(link.draining(WINDOW_BYTES + (64 << 10))))
    }
}

enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// A worker that listens. See the module.
pub struct Worker {
    listener: Listener,
    shared: Arc<Shared>,
}

impl Worker {
    /// Listens at `address`.
    ///
    /// # Errors
    /// `Invalid` if another worker listens there, the address is beyond loopback without TLS, TCP has no
    /// token, or a number is zero.
    pub fn listen(address: &Address, options: WorkerOptions) -> Result<Self> {
        if options.slots == 0 || options.slots > 1024 {
            return Err(Error::invalid("slots of a worker")
                .expected("1 to 1024")
                .got(options.slots));
        }
        if options.cpu_share.is_some_and(|share| !(0.01..=1024.0).contains(&share)) {
            return Err(Error::invalid("processor share of a worker").expected("0.01 to 1024"));
        }
        let listener = match address {
            Address::Unix(path) => Listener::Unix(listen_unix(path)?, path.clone()),
            Address::Tcp(_) if options.token.as_ref().is_none_or(Vec::is_empty) => {
                return Err(Error::invalid("worker on TCP").expected("a token").got("none"));
            }
            Address::Tcp(text) => {
                let may_leave = options.is_encrypting() || options.allows_plaintext;
                let listener = TcpListener::bind(Address::sockets(text, may_leave)?.as_slice());
                Listener::Tcp(listener.map_err(|error| unheard(address, error))?)
            }
        };
        let quota = Quota::new(options.cpu_share);
        let shared = Shared {
            quota,
            options,
            granted: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// The address it listens at: with the port that the system chose, if port 0 was asked for.
    ///
    /// # Errors
    /// `Retry` if the system does not say.
    pub fn address(&self) -> Result<Address> {
        match &self.listener {
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
            Listener::Tcp(listener) => {
                let address = listener.local_addr();
                let address = address
                    .map_err(|error| Error::retry("address of a worker").caused_by(error))?;
                Ok(Address::Tcp(address.to_string()))
            }
        }
    }

    /// Jobs that ended with an outcome, and those that did not.
    #[must_use]
    pub fn ended(&self) -> (u64, u64) {
        (self.shared.done.load(Ordering::Relaxed), self.shared.failed.load(Ordering::Relaxed))
    }

    /// Serves connections until `stop` is set. `tell` gets a line about each connection that failed.
    ///
    /// # Errors
    /// `Retry` if the socket fails.
    pub fn run(&self, stop: &AtomicBool, tell: fn(&str)) -> Result<()> {
        while !stop.load(Ordering::Acquire) {
            let Some(accepted) = self.accept()? else { continue };
            let shared = Arc::clone(&self.shared);
            let most = shared.options.slots + CONNECTIONS_SPARE;
            if shared.connections.fetch_add(1, Ordering::Relaxed) >= most {
                shared.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            // If there is no thread for it, it is dropped with the closure: its host runs the job.
            let connection = Connection(shared);
            let serve = move || {
                let Connection(shared) = &connection;
                let ended =
                    accepted.link(&shared.options).and_then(|link| job::serve(link, shared));
                let counter = if ended.is_ok() { &shared.done } else { &shared.failed };
                counter.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = ended {
                    tell(&error.to_string());
                }
            };
            let _ = std::thread::Builder::new().name("job".into()).spawn(serve);
        }
        Ok(())
    }

    /// The next connection; `None` if none came in time, or it broke at once.
    fn accept(&self) -> Result<Option<Accepted>> {
        let wait = Timespec::try_from(STOP_EVERY).ok();
        let ready = {
            let descriptor = match &self.listener {
                Listener::Unix(listener, _) => PollFd::new(listener, PollFlags::IN),
                Listener::Tcp(listener) => PollFd::new(listener, PollFlags::IN),
            };
            poll(&mut [descriptor], wait.as_ref())
        };
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Error::retry("socket of a worker").caused_by(error)),
        }
        let accepted = match &self.listener {
            Listener::Unix(listener, _) => listener.accept().map(|(it, _)| Accepted::Unix(it)),
            Listener::Tcp(listener) => listener.accept().map(|(it, _)| Accepted::Tcp(it)),
        };
        if accepted.is_err() {
            // For example without file descriptors: not in a tight loop.
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(accepted.ok())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = &self.listener {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({:?})", self.shared.options)
    }
}

/// Listens at a unix socket that only this user may connect to, in place of one that a dead worker left.
fn listen_unix(path: &Path) -> Result<UnixListener> {
    let fail = |error| unheard(&Address::Unix(path.to_owned()), error);
    // Nothing but a socket that refuses connections is replaced: not a file, nor another user's socket.
    let is_free = match std::fs::symlink_metadata(path) {
        Ok(found) => {
            let answer = UnixStream::connect(path);
            found.file_type().is_socket()
                && answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(fail(error)),
    };
    if !is_free {
        return Err(Error::invalid("socket of a worker")
            .at(path.display())
            .expected("no file, or a socket where nobody listens"));
    }
    // The socket gets its name once its mode is set: in a directory that only this user may enter.
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = parent.join(format!(".worker-{}", std::process::id()));
    std::fs::create_dir(&private).map_err(fail)?;
    let made = (|| {
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700))?;
        let early = private.join("s");
        let listener = UnixListener::bind(&early)?;
        std::fs::set_permissions(&early, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&early, path)?;
        Ok(listener)
    })();
    let _ = std::fs::remove_file(private.join("s"));
    let _ = std::fs::remove_dir(&private);
    made.map_err(fail)
}

fn unheard(address: &Address, error: std::io::Error) -> Error {
    Error::invalid("address of a worker").at(address).caused_by(error)
}

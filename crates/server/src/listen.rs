//! [`serve`]: opens the sockets, starts a runtime on each core, and ends cleanly.
//!
//! Every thread accepts from the same listeners. SIGTERM and SIGINT, and the command SHUTDOWN, end the
//! server: no connection is accepted any more, commands in progress end, and the store is closed.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use terracedb::memory::Account;
use terracedb::{Db, Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use crate::acl::Users;
use crate::admin;
use crate::clients::Client;
use crate::command;
use crate::config::Config;
use crate::conn::Connection;
use crate::keys::Keys;
use crate::session::Session;
use crate::shared::Shared;
use crate::tls::Tls;

/// Threads of one runtime that may wait for the store at once for commands.
const WORKERS: usize = 32;
/// And those for the sweeper and for metrics, which must not wait for commands.
const OTHERS: usize = 2;
/// Commands in progress at the end have this long.
const GRACE: Duration = Duration::from_secs(10);
/// The sweeper of expired keys runs this often.
const SWEEP: Duration = Duration::from_millis(100);

fn failed(object: &'static str, error: io::Error) -> Error {
    Error::io("open", object, error)
}

/// Serves the store that `open` opens until a signal or SHUTDOWN ends the server, then closes it. Calls
/// `ready` with the address of the clients' socket once they can connect. `open` is called once all sockets
/// are open: a server that cannot start creates no store.
///
/// # Errors
/// `Io` if a socket cannot be opened; `Invalid` if it would be open to other machines without a password;
/// those of the store.
pub fn serve(
    open: impl FnOnce() -> Result<Db>,
    config: Config,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let users = users(&config)?;
    check(&config, &users)?;
    let tls = config.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
    let listener =
        StdListener::bind(config.listen).map_err(|error| failed("client socket", error))?;
    listener.set_nonblocking(true).map_err(|error| failed("client socket", error))?;
    let address = listener.local_addr().map_err(|error| failed("client socket", error))?;
    let admin = config.admin.map(StdListener::bind).transpose();
    let admin = admin.map_err(|error| failed("admin socket", error))?;
    let unix = config.unix_socket.as_ref().map(|path| bind_unix(path)).transpose();
    let unix = unix.map_err(|error| failed("unix socket", error))?;
    let _socket_file = config.unix_socket.clone().map(SocketFile);
    let clients_max = clients_within_file_limit(config.clients_max);
    let config = Config { listen: address, clients_max, ..config };
    let threads = config.threads.max(1);
    let keys = Keys::open(open()?, &config.databases)?;
    let account = keys.account.clone();
    let shared = Arc::new(Shared::new(config, keys, users));
    let served = std::thread::scope(|scope| {
        let mut joined = Vec::new();
        let mut start = |number: usize| {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(WORKERS + OTHERS)
                .build()
                .map_err(|error| failed("runtime", error))?;
            let signals = (number == 0).then(|| Signals::new(&runtime, tls.is_some())).transpose();
            let part = Part {
                shared: Arc::clone(&shared),
                listener: listener.try_clone().map_err(|error| failed("client socket", error))?,
                unix: unix
                    .as_ref()
                    .map(StdUnixListener::try_clone)
                    .transpose()
                    .map_err(|error| failed("unix socket", error))?,
                admin: if number == 0 {
                    admin
                        .as_ref()
                        .map(StdListener::try_clone)
                        .transpose()
                        .map_err(|error| failed("admin socket", error))?
                } else {
                    None
                },
                account: account.clone(),
                tls: tls.clone(),
                signals: signals.map_err(|error| failed("signals", error))?,
            };
            let thread = std::thread::Builder::new().name(format!("terrace-net-{number}"));
            let shared = Arc::clone(&shared);
            let run = move || {
                let ended = part.run(&runtime);
                // Also if this one failed: the others must not serve alone.
                shared.stop();
                runtime.shutdown_timeout(GRACE);
                ended
            };
            joined.push(thread.spawn_scoped(scope, run).map_err(|error| failed("thread", error))?);
            Ok(())
        };
        let started = (0..threads).try_for_each(&mut start);
        let mut served = match started {
            Ok(()) => {
                ready(address);
                Ok(())
            }
            Err(error) => {
                // The threads that did start end, too.
                shared.stop();
                Err(error)
            }
        };
        for thread in joined {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            let ended = thread.join().unwrap_or_else(panicked);
            served = served.and(ended.map_err(|error| failed("runtime", error)));
        }
        served
    });
    let closed = shared.keys.db.close();
    served.and(closed)
}

/// The users at the start.
fn users(config: &Config) -> Result<Users> {
    let users = Users::new(config.password.as_deref());
    if let Some(path) = &config.acl_file {
        users.load_file(path).map_err(|error| Error::invalid("--aclfile").got(error))?;
    }
    Ok(users)
}

/// Protected mode: only this machine can connect, unless clients must prove something: a password, or a
/// certificate.
fn check(config: &Config, users: &Users) -> Result<()> {
    let default = users.default().rules();
    let is_open = default.is_on && default.has_no_password;
    let asks_for_certificate = config.tls.as_ref().is_some_and(|tls| tls.authorities.is_some());
    if is_open && !asks_for_certificate && !config.listen.ip().is_loopback() {
        return Err(Error::invalid("--listen")
            .expected("a loopback address, or a password")
            .got(config.listen));
    }
    Ok(())
}

/// Files beside the sockets of clients: those of the store and of the server itself.
const FILES: u64 = 1024;

/// Raises the limit of open files as far as the system allows. Returns the number of clients that it
/// allows, and says so if they are fewer: clients must not take the files that the store needs for its
/// writes.
fn clients_within_file_limit(clients_max: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let wanted = FILES.saturating_add(clients_max as u64);
    let current = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if current() < wanted {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // A refusal leaves the limit as it was.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let current = current();
    if current >= wanted {
        return clients_max;
    }
    let clients = current - FILES.min(current / 2);
    eprintln!(
        "warning: the limit of open files is {current}: at most {clients} clients are served and \
         not {clients_max} (raise it with `ulimit -n`)"
    );
    usize::try_from(clients).unwrap_or(clients_max)
}

/// A unix socket that only its owner may use. A socket that nobody serves any more is replaced.
fn bind_unix(path: &std::path::Path) -> io::Result<StdUnixListener> {
    use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
    let is_dead = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_dead && std::fs::symlink_metadata(path)?.file_type().is_socket() {
        std::fs::remove_file(path)?;
    }
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // The socket is made in a private directory, so that no other user connects before it has its mode.
    let hidden = path.with_file_name(format!(".s{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&hidden)?;
    let bound = hidden.join("s");
    let listener = StdUnixListener::bind(&bound).and_then(|listener| {
        std::fs::set_permissions(&bound, std::fs::Permissions::from_mode(0o700))?;
        std::fs::rename(&bound, path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    if listener.is_err() {
        drop(std::fs::remove_file(&bound));
    }
    std::fs::remove_dir(&hidden)?;
    listener
}

/// A unix socket's file, removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// The sockets of one thread.
struct Part {
    shared: Arc<Shared>,
    listener: StdListener,
    unix: Option<StdUnixListener>,
    admin: Option<StdListener>,
    account: Account,
    tls: Option<Arc<Tls>>,
    /// Of the first thread, which also sweeps.
    signals: Option<Signals>,
}

/// The signals that end the server, and the one that reloads its certificate. They are received from their
/// creation on, which is before the server is ready: a signal at any later time finds its handler.
struct Signals {
    end: Signal,
    interrupt: Signal,
    /// Without TLS a SIGHUP ends the process.
    hangup: Option<Signal>,
}

impl Signals {
    fn new(runtime: &Runtime, has_tls: bool) -> io::Result<Self> {
        let _entered = runtime.enter();
        let hangup = has_tls.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            end: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
        })
    }
}

impl Part {
    fn run(self, runtime: &Runtime) -> io::Result<()> {
        let tasks = LocalSet::new();
        tasks.block_on(runtime, async {
            let Self { shared, listener, unix, admin, account, tls, signals } = self;
            let listener = TcpListener::from_std(listener)?;
            let unix = unix.map(UnixListener::from_std).transpose()?;
            if let Some(admin) = admin {
                admin.set_nonblocking(true)?;
                tokio::task::spawn_local(admin::serve(
                    TcpListener::from_std(admin)?,
                    Arc::clone(&shared),
                ));
            }
            if let Some(Signals { mut end, mut interrupt, hangup }) = signals {
                tokio::task::spawn_local(sweep(Arc::clone(&shared)));
                let shared = Arc::clone(&shared);
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        _ = end.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    shared.stop();
                });
                if let (Some(tls), Some(mut hangup)) = (tls.clone(), hangup) {
                    tokio::task::spawn_local(async move {
                        while hangup.recv().await.is_some() {
                            tls.reload();
                        }
                    });
                }
            }
            let server =
                Server { shared, account, tls, workers: Arc::new(Semaphore::new(WORKERS)) };
            server.accept(&listener, unix.as_ref()).await;
            server.finish().await;
            Ok(())
        })
    }
}

/// One thread's part of the server.
struct Server {
    shared: Arc<Shared>,
    account: Account,
    tls: Option<Arc<Tls>>,
    workers: Arc<Semaphore>,
}

impl Server {
    async fn accept(&self, listener: &TcpListener, unix: Option<&UnixListener>) {
        let from_unix = async || match unix {
            Some(unix) => unix.accept().await.map(|(socket, _)| socket),
            None => std::future::pending().await,
        };
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.map(|(socket, from)| {
                    // Replies are written whole, so waiting for more bytes only delays them.
                    drop(socket.set_nodelay(true));
                    let local = socket.local_addr().map(|at| at.to_string()).unwrap_or_default();
                    self.welcome(socket, from.to_string(), local, self.tls.clone());
                }),
                accepted = from_unix() => accepted.map(|socket| {
                    let path = self.shared.config.unix_socket.as_ref();
                    let path = path.map(|path| path.display().to_string()).unwrap_or_default();
                    self.welcome(socket, format!("{path}:0"), format!("{path}:0"), None);
                }),
                // Every thread looks, also one that missed the notification.
                () = tokio::time::sleep(SWEEP) => Ok(()),
                () = self.shared.stop.notified() => Ok(()),
            };
            if accepted.is_err() {
                // Most often there are too many open files: a pause lets connections end.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    fn welcome<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        mut socket: S,
        address: String,
        local: String,
        tls: Option<Arc<Tls>>,
    ) {
        let shared = &self.shared;
        shared.counts.connections.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client {
            id: shared.clients.next_id(),
            address,
            local,
            since: Instant::now(),
            info: parking_lot::Mutex::new(crate::clients::Info {
                user: crate::acl::DEFAULT.to_owned(),
                ..Default::default()
            }),
            messages: parking_lot::Mutex::new(crate::clients::Messages::new(&self.account)),
            has_message: Default::default(),
            is_killed: Default::default(),
            output_bytes_max: shared.config.output_bytes_max,
        });
        {
            let mut connected = shared.clients.connected.lock();
            if connected.len() >= shared.config.clients_max {
                shared.counts.rejected.fetch_add(1, Ordering::Relaxed);
                if tls.is_some() {
                    return;
                }
                tokio::task::spawn_local(async move {
                    let told = socket.write_all(b"-ERR max number of clients reached\r\n");
                    drop(tokio::time::timeout(Duration::from_secs(1), told).await);
                });
                return;
            }
            connected.insert(client.id, Arc::clone(&client));
        }
        let (session, account) =
            (Session::new(shared, &client, &command::TABLE), self.account.clone());
        let workers = Arc::clone(&self.workers);
        let shared = Arc::clone(shared);
        let id = client.id;
        tokio::task::spawn_local(async move {
            match tls {
                None => Connection { socket, client, session, account, workers }.serve().await,
                Some(tls) => {
                    if let Some((socket, _charge)) = tls.greet(socket, &client, &account).await {
                        Connection { socket, client, session, account, workers }.serve().await;
                    }
                }
            }
            shared.clients.connected.lock().remove(&id);
        });
    }

    /// Ends idle connections, and lets commands in progress end.
    async fn finish(&self) {
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            for client in self.shared.clients.connected.lock().values() {
                client.kill();
            }
            if self.shared.clients.count() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Deletes expired keys now and then, in bounded batches.
async fn sweep(shared: Arc<Shared>) {
    loop {
        let sweeping = Arc::clone(&shared);
        let swept = tokio::task::spawn_blocking(move || sweeping.sweep()).await;
        match swept {
            Ok(Ok(true)) => {}
            // An error is that of the store, which reports it; the next round tries again.
            _ => tokio::time::sleep(SWEEP).await,
        }
    }
}

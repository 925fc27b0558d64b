//! An S3 server in the process, for tests: buckets in memory, and faults on request.
//!
//! It checks signatures, MD5s and conditions, and refuses requests that it does not know. Threads: one for
//! each connection, ended with the server.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a fault of the test server is a failure of the test"
)]

mod answers;
mod http;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::{Credentials, Location, Options};
use answers::Store;
pub use http::Seen;

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// The request has no effect and this answer: status and error code.
    Answer(u16, &'static str),
    /// The request has no effect, and the connection is closed.
    LostRequest,
    /// The request has its effect, and the connection is closed without an answer.
    LostAnswer,
    /// The request has its effect twice; the second answer is sent.
    Twice,
    /// The request has no effect, and no answer until the client closes the connection.
    Stall,
    /// The answer comes in small pieces.
    Slow,
    /// The answer ends after half of its body.
    Cut,
    /// A condition is ignored.
    Unconditional,
    /// A list is that of the time of [`FakeS3::keep_lists`].
    OldList,
}

type Rule = Arc<dyn Fn(&Seen) -> Fault + Send + Sync>;

/// A server. See the module.
pub struct FakeS3 {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    store: Mutex<Store>,
    rule: Mutex<Rule>,
    seen: Mutex<Vec<Seen>>,
    streams: Mutex<Vec<TcpStream>>,
    is_ending: AtomicBool,
}

impl FakeS3 {
    /// The access key that it knows.
    pub const KEY: &'static str = "AKIATEST";
    /// The secret of the key.
    pub const SECRET: &'static str = "a secret of the tests";

    /// Starts a server that has the bucket `shop`.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it starts threads")]
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            store: Mutex::default(),
            rule: Mutex::new(Arc::new(|_| Fault::None)),
            seen: Mutex::default(),
            streams: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        let accepted = Arc::clone(&shared);
        let listener = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming().flatten() {
                if accepted.is_ending.load(Ordering::SeqCst) {
                    break;
                }
                stream.set_nodelay(true).unwrap();
                accepted.streams.lock().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&accepted);
                connections.push(std::thread::spawn(move || serve(&shared, stream)));
            }
            for stream in accepted.streams.lock().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            connections.into_iter().for_each(|connection| connection.join().unwrap());
        });
        Self { address, shared, listener: Some(listener) }
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Options for it, with waits that take no time.
    #[must_use]
    pub fn options(&self) -> Options {
        let clock = Arc::new(base::ManualClock::at(0));
        Options {
            endpoint: Some(self.endpoint()),
            credentials: Some(Credentials::new(Self::KEY, Self::SECRET, None)),
            pace: media::Pace::manual(clock),
            ..Options::default()
        }
    }

    /// A prefix in its bucket.
    #[must_use]
    pub fn location(&self) -> Location {
        "s3://shop/backups".parse().unwrap()
    }

    /// Decides the fault of each request from now on.
    pub fn rule(&self, rule: impl Fn(&Seen) -> Fault + Send + Sync + 'static) {
        *self.shared.rule.lock() = Arc::new(rule);
    }

    /// No faults from now on.
    pub fn no_rule(&self) {
        self.rule(|_| Fault::None);
    }

    /// The requests so far, and forgets them.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.seen.lock())
    }

    /// The objects, by key.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.shared.store.lock().objects.clone()
    }

    /// Writes an object.
    pub fn insert(&self, key: &str, content: Vec<u8>) {
        self.shared.store.lock().objects.insert(key.to_owned(), content);
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.shared.store.lock().objects.remove(key);
    }

    /// Keys of the uploads that are not complete, each with its parts.
    #[must_use]
    pub fn uploads(&self) -> Vec<(String, usize)> {
        let store = self.shared.store.lock();
        store.uploads.values().map(|upload| (upload.key.clone(), upload.parts.len())).collect()
    }

    /// The store itself, for a rule.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Replaces the content of every part of the upload of `key`.
    pub fn overwrite_parts(&self, key: &str, content: &[u8]) {
        let mut store = self.shared.store.lock();
        for upload in store.uploads.values_mut().filter(|upload| upload.key == key) {
            upload.parts.values_mut().for_each(|part| *part = content.to_vec());
        }
    }

    /// Lists with the fault [`Fault::OldList`] show the objects and uploads of now.
    pub fn keep_lists(&self) {
        let mut store = self.shared.store.lock();
        store.old_keys = store.objects.keys().cloned().collect();
    }
}

/// The store of a server, for its rules.
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Makes an object of the first part of the upload of `key`, as another client would.
    pub fn end_upload(&self, key: &str) {
        let store = &mut *self.0.store.lock();
        let id =
            store.uploads.iter().find(|(_, upload)| upload.key == key).map(|(id, _)| id.clone());
        let upload = store.uploads.remove(&id.unwrap()).unwrap();
        store.objects.insert(upload.key, upload.parts[&1].clone());
    }
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Serves one connection until it ends.
fn serve(shared: &Shared, mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((seen, body)) = http::read(&mut reader) {
        shared.seen.lock().push(seen.clone());
        let rule = Arc::clone(&*shared.rule.lock());
        let fault = rule(&seen);
        let act = |ignores| shared.store.lock().answer(&seen, &body, ignores, fault);
        let answer = match fault {
            Fault::Answer(status, code) => answers::Answer::error(status, code),
            Fault::LostRequest => break,
            Fault::Stall => {
                http::wait_for_end(&mut reader);
                break;
            }
            Fault::LostAnswer => {
                act(false);
                break;
            }
            Fault::Twice => {
                act(false);
                act(false)
            }
            Fault::Unconditional => act(true),
            Fault::None | Fault::Slow | Fault::Cut | Fault::OldList => act(false),
        };
        if !http::write(&mut stream, &seen, &answer, fault) {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

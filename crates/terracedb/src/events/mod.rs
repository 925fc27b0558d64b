//! Events: what background work did and met, told to whoever listens.
//!
//! Listeners are called by the thread on which it happened, without any lock held, one event at a
//! time of each thread: there is no queue, so nothing piles up and nothing is dropped. A slow
//! listener slows the background work that tells it, never a read or a write directly. A panic of
//! one is caught and counted; it is told the next event all the same.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod event;
mod watch;

pub use event::{Event, Task};
pub(crate) use watch::{Told, WatchTask};

/// Is told what happens in a store ([`crate::Builder::listener`]).
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use terracedb::{Db, Event, Listener};
///
/// #[derive(Debug, Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Listener for Log {
///     fn event(&self, event: &Event) {
///         self.0.lock().unwrap().push(event.to_string());
///     }
/// }
///
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let log = Arc::new(Log::default());
/// let db = Db::builder(dir.path()).listener(log.clone()).open()?;
/// db.keyspace("fruit")?.put("apple", "red")?;
/// db.flush()?;
/// drop(db);
/// assert!(log.0.lock().unwrap().iter().any(|event| event.contains("flush of `fruit`")));
/// # Ok(()) }
/// ```
pub trait Listener: Send + Sync + fmt::Debug {
    /// Something happened. Should return soon: background work waits for it. It may read and write
    /// the store, but must not wait for flushes, merges or the store's closing.
    fn event(&self, event: &Event);
}

/// The listeners of a store.
#[derive(Debug, Default)]
pub(crate) struct Events {
    listeners: Vec<Arc<dyn Listener>>,
    panics: AtomicU64,
}

impl Events {
    pub(crate) fn new(listeners: Vec<Arc<dyn Listener>>) -> Self {
        Self { listeners, panics: AtomicU64::new(0) }
    }

    /// Whether anyone listens.
    pub(crate) fn are_heard(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Tells everyone what `event` makes, which is not made where nobody listens. No lock may be
    /// held.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.are_heard() {
            return;
        }
        let event = event();
        for listener in &self.listeners {
            let told = catch_unwind(AssertUnwindSafe(|| listener.event(&event)));
            if told.is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How often a listener panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

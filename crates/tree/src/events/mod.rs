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

pub use event::{Event, Task};

/// Is told what happens in a store (`terracedb::Builder::listener`).
pub trait Listener: Send + Sync + fmt::Debug {
    /// Something happened. Should return soon: background work waits for it. It may read and write
    /// the store, but must not wait for flushes, merges or the store's closing.
    fn event(&self, event: &Event);
}

/// The listeners of a store.
#[derive(Debug, Default)]
pub struct Events {
    listeners: Vec<Arc<dyn Listener>>,
    panics: AtomicU64,
}

impl Events {
    pub fn new(listeners: Vec<Arc<dyn Listener>>) -> Self {
        Self { listeners, panics: AtomicU64::new(0) }
    }

    /// Whether anyone listens.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Tells everyone what `event` makes, which is not made where nobody listens. No lock may be
    /// held.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.has_listeners() {
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
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

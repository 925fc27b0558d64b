//! Events: reports of what background work did and found, for the store's listeners.
//!
//! A listener is called by the thread that caused the event, without any lock held. There is no queue, so
//! nothing piles up and nothing is lost. A slow listener slows the background work that calls it, never a
//! read or a write directly. A panic of a listener is caught and counted; the listener is still called for
//! the next event.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod event;

pub use event::{Event, Task};

/// Receives the events of a store (`terracedb::Builder::listener`).
pub trait Listener: Send + Sync + fmt::Debug {
    /// Called for each event. It should return soon, since background work waits for it. It may read and
    /// write the store, but must not wait for flushes, merges or the closing of the store.
    fn event(&self, event: &Event);
}

/// The listeners of a store.
#[derive(Debug, Default)]
pub struct Events {
    listeners: Vec<Arc<dyn Listener>>,
    panics: AtomicU64,
}

impl Events {
    /// Events for `listeners`.
    pub fn new(listeners: Vec<Arc<dyn Listener>>) -> Self {
        Self { listeners, panics: AtomicU64::new(0) }
    }

    /// Whether there are listeners.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Calls all listeners with the event, which is not built if there are none. The caller must hold no
    /// lock.
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

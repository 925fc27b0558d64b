//! A listener that keeps what it is told.

use std::sync::Mutex;

use terracedb::{Event, Listener};

use super::until;

/// Keeps every event until it is taken.
#[derive(Debug, Default)]
pub(crate) struct Ear(Mutex<Vec<Event>>);

impl Listener for Ear {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Ear {
    /// Takes those that `are` of a kind, as lines; the others stay.
    pub(crate) fn take(&self, are: impl Fn(&Event) -> bool) -> Vec<String> {
        let mut heard = self.0.lock().unwrap();
        let (taken, kept) = heard.drain(..).partition::<Vec<_>, _>(are);
        *heard = kept;
        taken.iter().map(ToString::to_string).collect()
    }

    /// Waits until it is told of one that `is` of a kind; takes it, and others of the kind.
    pub(crate) fn wait(&self, is: impl Fn(&Event) -> bool) -> Vec<String> {
        until("an event", || Some(self.take(&is)).filter(|taken| !taken.is_empty()))
    }
}

//! A listener that records events.

use std::sync::Mutex;

use terracedb::events::{Event, Listener};

use super::until;

/// Records every event until a test takes it.
#[derive(Debug, Default)]
pub(crate) struct EventRecorder(Mutex<Vec<Event>>);

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl EventRecorder {
    /// Removes the events for which `are` is true, and returns them as lines; the others stay.
    pub(crate) fn take(&self, are: impl Fn(&Event) -> bool) -> Vec<String> {
        let mut heard = self.0.lock().unwrap();
        let (taken, kept) = heard.drain(..).partition::<Vec<_>, _>(are);
        *heard = kept;
        taken.iter().map(ToString::to_string).collect()
    }

    /// Waits for an event for which `is` is true, then takes all such events.
    pub(crate) fn wait(&self, is: impl Fn(&Event) -> bool) -> Vec<String> {
        until("an event", || Some(self.take(&is)).filter(|taken| !taken.is_empty()))
    }
}

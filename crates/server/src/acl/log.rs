//! [`Log`]: the last refusals, for ACL LOG.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Refusals that are kept.
const ENTRIES_MAX: usize = 128;
/// A refusal like an earlier one counts with it within this time.
const GROUPED: Duration = Duration::from_secs(60);
/// The longest object that is kept, bytes.
const OBJECT_BYTES_MAX: usize = 1024;

/// A refusal, and how often it happened.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) reason: &'static str,
    /// `toplevel` or `multi`.
    pub(crate) context: &'static str,
    pub(crate) object: Vec<u8>,
    pub(crate) user: String,
    pub(crate) client: String,
    pub(crate) at: Instant,
}

/// The last refusals, newest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: VecDeque<Refusal>,
}

impl Log {
    pub(crate) fn add(&mut self, mut refusal: Refusal) {
        refusal.object.truncate(OBJECT_BYTES_MAX);
        let is_same = |entry: &Refusal| {
            (entry.reason, entry.context) == (refusal.reason, refusal.context)
                && entry.object == refusal.object
                && entry.user == refusal.user
                && refusal.at.saturating_duration_since(entry.at) < GROUPED
        };
        if let Some(at) = self.entries.iter().position(is_same)
            && let Some(entry) = self.entries.remove(at)
        {
            refusal.count += entry.count;
        }
        self.entries.push_front(refusal);
        self.entries.truncate(ENTRIES_MAX);
    }
}

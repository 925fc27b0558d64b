//! The limit of files that this process may have open at a time.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as the system allows without privileges, from the soft limit to the hard one: a
/// store has a file open for each table. A refusal leaves the limit as it was.
pub fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// The limit as it is now; `None` if there is none.
pub(crate) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

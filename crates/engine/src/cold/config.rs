//! The object store of a store's cold tables.

use std::sync::Arc;
use std::time::Duration;

use base::Cancel;
use media::Medium;

/// Where cold tables live, and when a table becomes cold.
#[derive(Clone, Debug)]
pub struct ColdConfig {
    /// The files of one prefix of an object store.
    pub medium: Arc<dyn Medium>,
    /// A table becomes cold after nothing older lay below it for this long, while the store was open.
    pub after: Duration,
    /// The store is open for reading only: its writer changes the names, which are read when it is opened.
    pub read_only: bool,
    /// Ends requests of `medium` early, when the store is closed, except reads of files.
    pub cancel: Cancel,
}

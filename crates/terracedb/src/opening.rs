//! [`Opening`]: all that an open needs, kept by a store that is open for reading only, which opens again to
//! see later writes.

use std::sync::Arc;

use base::{Result, StoreId};
use compact::{MergeOperator, Operators, WindowPriority};
use engine::{ColdConfig, Components as _, LogConfig, Settings, Store, StoreMedia};
use engine::{open, read_only_files};
use media::Medium;
use tree::events::{Events, Listener};

use crate::Resources;

/// The parts of a store that are known before it is opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) object_store: Option<ColdConfig>,
    pub(crate) resources: Resources,
    pub(crate) settings: Settings,
    pub(crate) log: LogConfig,
    pub(crate) merge_operators: Vec<Arc<dyn MergeOperator>>,
    pub(crate) window_priorities: Vec<Arc<dyn WindowPriority>>,
    pub(crate) listeners: Vec<Arc<dyn Listener>>,
}

impl Opening {
    /// Opens the store, or creates it with the id `create` if there is none.
    ///
    /// # Errors
    /// As `Builder::open`.
    pub(crate) fn open(&self, create: Option<StoreId>) -> Result<Store> {
        let mut operators = Operators::builtin();
        for operator in &self.merge_operators {
            operators.add(Arc::clone(operator))?;
        }
        for priority in &self.window_priorities {
            operators.add_priority(Arc::clone(priority))?;
        }
        let events = Arc::new(Events::new(self.listeners.clone()));
        let (resources, settings) = (self.resources.clone(), self.settings.clone());
        if !settings.read_only {
            let media = self.media(Arc::clone(&self.medium));
            return open(media, &self.log, resources, settings, operators, events, create);
        }
        let (medium, log) =
            read_only_files(&self.medium, &self.log, &resources.account("read-only files"))?;
        open(self.media(medium), &log, resources, settings, operators, events, None)
    }

    fn media(&self, directory: Arc<dyn Medium>) -> StoreMedia {
        StoreMedia { directory, object_store: self.object_store.clone() }
    }
}

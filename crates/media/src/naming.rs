//! A medium that knows which of its names a failed sync may have lost.
//!
//! A sync of names that failed is final, as one of a file is: the device may have dropped the names it
//! could not make durable, and a later sync succeeds without them. Jobs share the names' sync, so the
//! one whose name is lost need not be the one that was told. So a name that was made before a failure,
//! and was not durable by then, stays in doubt: whoever wants to rely on it is refused with that failure,
//! until it is removed or made again. Names made later are as good as any.
//!
//! Concurrency: one sync at a time, since of two at once the device may tell only one of the failure.
//! Otherwise a short lock for each name made or removed. Memory: the names made since the last sync, and
//! those in doubt, which go with their files.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base::{Error, Result};
use parking_lot::Mutex;

use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space};

/// See the module.
pub struct Naming {
    inner: Arc<dyn Medium>,
    /// Held while names are synced. Before `state`.
    syncing: Mutex<()>,
    state: Mutex<UnsyncedNames>,
}

#[derive(Default)]
struct UnsyncedNames {
    /// Counts names made.
    made: u64,
    /// Names that no sync that succeeded began after, with the count when they were made.
    fresh: HashMap<String, u64>,
    /// Names that may be lost, with why.
    doubtful: HashMap<String, Error>,
}

impl UnsyncedNames {
    fn make(&mut self, name: &str) {
        self.made += 1;
        self.fresh.insert(name.to_owned(), self.made);
    }

    fn forget(&mut self, name: &str) {
        self.fresh.remove(name);
        self.doubtful.remove(name);
    }

    fn check(&self, names: &[&str]) -> Result<()> {
        match names.iter().find_map(|name| self.doubtful.get_key_value(*name)) {
            Some((name, error)) => Err(error.clone().at(format_args!("name `{name}`"))),
            None => Ok(()),
        }
    }
}

impl Naming {
    /// Watches the names of `inner`, which are all durable.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>) -> Self {
        Self { inner, syncing: Mutex::default(), state: Mutex::default() }
    }

    /// Makes a name: before and after, so that a sync that ends meanwhile is taken neither to have made
    /// it durable nor, where it fails, to have spared it.
    fn make<T>(&self, name: &str, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.state.lock().make(name);
        let made = make()?;
        self.state.lock().make(name);
        Ok(made)
    }
}

impl Medium for Naming {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.make(name, || self.inner.create(name, access, reserve))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.state.lock().forget(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.make(to, || self.inner.rename(from, to))?;
        let mut state = self.state.lock();
        // What is lost may be lost under any name.
        if let Some(error) = state.doubtful.get(from).cloned() {
            state.doubtful.insert(to.to_owned(), error);
        }
        state.forget(from);
        Ok(())
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.inner.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.inner.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        self.inner.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        let _syncing = self.syncing.lock();
        let before = {
            let state = self.state.lock();
            state.check(names)?;
            state.made
        };
        let synced = self.inner.sync_names(names);
        let mut state = self.state.lock();
        match &synced {
            Ok(()) => state.fresh.retain(|_, made| *made > before),
            Err(error) => {
                let lost = std::mem::take(&mut state.fresh).into_keys();
                state.doubtful.extend(lost.map(|name| (name, error.clone())));
            }
        }
        synced
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
    }
}

impl fmt::Debug for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Naming({:?})", self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Faulty, OpKind, Rule};

    fn create(medium: &Naming, name: &str) {
        medium.create(name, Access::Bytes, 0).unwrap();
    }

    /// A device, and as one that knows its names; the next sync of names fails.
    fn failing(seed: u64) -> (Arc<Faulty>, Naming) {
        let device = Arc::new(Faulty::new(seed));
        let medium = Naming::new(Arc::clone(&device) as _);
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        (device, medium)
    }

    #[test]
    fn what_another_sync_lost_is_told_and_no_power_cut_takes_what_was_not() {
        let mut lost = 0;
        for seed in 0..20 {
            let (device, medium) = failing(seed);
            create(&medium, "a");
            create(&medium, "b");
            medium.sync_names(&["b"]).unwrap_err();
            let error = medium.sync_names(&["a"]).unwrap_err();
            assert!(error.to_string().contains("name `a`"), "{error}");
            // Others go on.
            create(&medium, "c");
            medium.sync_names(&["c"]).unwrap();
            medium.sync_names(&[]).unwrap();
            let left = device.crash_image(seed).unwrap();
            assert!(left.content("c").is_some());
            lost += usize::from(left.content("a").is_none());
            // Made again, it is as good as new.
            medium.remove("a").unwrap();
            create(&medium, "a");
            medium.sync_names(&["a", "c"]).unwrap();
            assert!(device.crash_image(seed).unwrap().content("a").is_some());
            medium.sync_names(&["b"]).unwrap_err();
        }
        assert!(lost > 0, "the fault does what it is there for");
    }

    #[test]
    fn what_was_durable_stays_so_and_a_rename_makes_a_name() {
        let (device, medium) = failing(1);
        device.heal();
        create(&medium, "old");
        medium.sync_names(&["old"]).unwrap();
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        create(&medium, "passing");
        medium.sync_names(&[]).unwrap_err();
        medium.sync_names(&["old"]).unwrap();
        medium.sync_names(&["passing"]).unwrap_err();
        medium.rename("passing", "new").unwrap();
        medium.sync_names(&["passing"]).unwrap();
        medium.sync_names(&["new"]).unwrap_err();
        create(&medium, "passing");
        medium.rename("passing", "new").unwrap();
        medium.sync_names(&["new"]).unwrap_err();
        medium.remove("new").unwrap();
        create(&medium, "passing");
        medium.rename("passing", "new").unwrap();
        medium.sync_names(&["new", "old"]).unwrap();
        assert!(device.crash_image(1).unwrap().content("new").is_some());
    }
}

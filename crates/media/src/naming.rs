//! A medium that remembers which names a failed sync may have lost.
//!
//! A failed sync of names is final, as is a failed sync of a file: the device may have dropped the names
//! that it could not make durable, and a later sync succeeds without them. Background jobs share the sync
//! of names, so the job that gets the error need not be the job whose name is lost. Therefore a name that
//! was created before the failure and was not yet durable stays in doubt: a sync that relies on it returns
//! the failure again, until the name is removed or created again. Names created after the failure are not
//! affected.
//!
//! Concurrency: one sync at a time, because the device may report a failure to only one of two concurrent
//! syncs. Otherwise a short lock for each name created or removed. Memory: the names created since the last
//! sync, and the names in doubt until their files are removed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base::{Error, Result};
use parking_lot::Mutex;

use crate::{Access, File, Medium};

/// Remembers the names in doubt of the medium below it; see the module.
pub struct Naming {
    inner: Arc<dyn Medium>,
    /// Held during a sync of names. Lock order: before `state`.
    syncing: Mutex<()>,
    state: Mutex<UnsyncedNames>,
}

#[derive(Default)]
struct UnsyncedNames {
    /// Number of names created so far.
    made: u64,
    /// Names that may not be durable yet, with the value of `made` at their creation.
    fresh: HashMap<String, u64>,
    /// Names in doubt, with the error of the sync that may have lost them.
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
    /// Tracks the names of `inner`; all names that exist now count as durable.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>) -> Self {
        Self { inner, syncing: Mutex::default(), state: Mutex::default() }
    }

    /// Creates a name, and records it before and after: a sync that ends in between neither counts as
    /// having made the name durable nor, if it fails, leaves the name out of doubt.
    fn make<T>(&self, name: &str, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.state.lock().make(name);
        let made = make()?;
        self.state.lock().make(name);
        Ok(made)
    }
}

impl Medium for Naming {
    crate::delegate!(inner: capabilities, open, link, list, space, lock, queue, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.make(name, || self.inner.create(name, access, reserve))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.state.lock().forget(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.make(to, || self.inner.rename(from, to))?;
        let mut state = self.state.lock();
        // The file behind a doubtful name may be lost under its new name too.
        if let Some(error) = state.doubtful.get(from).cloned() {
            state.doubtful.insert(to.to_owned(), error);
        }
        state.forget(from);
        Ok(())
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

    /// A faulty device, and the medium over it; the next sync of names fails.
    fn failing(seed: u64) -> (Arc<Faulty>, Naming) {
        let device = Arc::new(Faulty::new(seed));
        let medium = Naming::new(Arc::clone(&device) as _);
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        (device, medium)
    }

    #[test] // I3
    fn a_name_lost_by_another_jobs_sync_is_refused_and_others_survive_a_power_cut() {
        let mut lost = 0;
        for seed in 0..20 {
            let (device, medium) = failing(seed);
            create(&medium, "a");
            create(&medium, "b");
            medium.sync_names(&["b"]).unwrap_err();
            let error = medium.sync_names(&["a"]).unwrap_err();
            assert!(error.to_string().contains("name `a`"), "{error}");
            // Later names are not affected.
            create(&medium, "c");
            medium.sync_names(&["c"]).unwrap();
            medium.sync_names(&[]).unwrap();
            let left = device.crash_image(seed).unwrap();
            assert!(left.content("c").is_some());
            lost += usize::from(left.content("a").is_none());
            // Created again, the name is no longer in doubt.
            medium.remove("a").unwrap();
            create(&medium, "a");
            medium.sync_names(&["a", "c"]).unwrap();
            assert!(device.crash_image(seed).unwrap().content("a").is_some());
            medium.sync_names(&["b"]).unwrap_err();
        }
        assert!(lost > 0, "the injected fault loses a name in some run");
    }

    #[test]
    fn durable_names_stay_durable_and_a_renamed_name_stays_in_doubt() {
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

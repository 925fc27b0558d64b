//! A medium with files that can be held: a file that is removed during a hold stays until the hold ends.
//!
//! Code that copies a store in use takes a [`Hold`] first and lists the files second: every file that was
//! listed then exists until the hold releases it. A name with a deferred removal is still listed;
//! creating it again performs the removal first.
//!
//! Invariant: among files that are not held, removals happen in the order in which they were requested.
//! So a removal that fails or is deferred defers all later ones, and no file outlives a file whose removal
//! was requested after its own. If the process dies, deferred removals leave files that no manifest names.
//!
//! Concurrency: one lock, held while a file is removed, so that no removal is in progress when a hold
//! begins. Cost: that lock for each removal or creation; nothing for reads and writes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base::{ErrorKind, Result};
use parking_lot::Mutex;

use crate::{Access, File, Medium};

/// Defers the removal of held files of the medium below it; see the module.
pub struct Holding {
    inner: Arc<dyn Medium>,
    state: Arc<Mutex<HoldState>>,
}

#[derive(Default)]
struct HoldState {
    /// Holds by number.
    holds: Vec<(u64, HeldFiles)>,
    last_number: u64,
    /// Names to be removed later, in the order of the requests.
    deferred: Vec<String>,
}

/// The files that one hold keeps.
enum HeldFiles {
    All,
    Named(BTreeSet<String>),
}

impl HoldState {
    fn is_held(&self, name: &str) -> bool {
        self.holds.iter().any(|(_, files)| match files {
            HeldFiles::All => true,
            HeldFiles::Named(names) => names.contains(name),
        })
    }

    /// Performs deferred removals of files that are not held, up to the first failure.
    fn remove_released(&mut self, medium: &dyn Medium) -> Result<()> {
        let deferred = std::mem::take(&mut self.deferred);
        let mut result = Ok(());
        for name in deferred {
            if result.is_ok() && !self.is_held(&name) {
                result = match medium.remove(&name) {
                    // The file does not exist: later removals need not wait for it.
                    Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
                    removed => removed,
                };
                if result.is_ok() {
                    continue;
                }
            }
            self.deferred.push(name);
        }
        result
    }

    fn hold(&mut self, number: u64) -> Option<&mut HeldFiles> {
        self.holds.iter_mut().find(|(other, _)| *other == number).map(|(_, files)| files)
    }
}

impl Holding {
    /// Allows the files of `inner` to be held.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Keeps every file that exists now until the hold is narrowed or dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.holds.push((number, HeldFiles::All));
        Hold { medium: Arc::clone(&self.inner), state: Arc::clone(&self.state), number }
    }

    /// Number of deferred removals.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().deferred.len()
    }
}

impl Medium for Holding {
    crate::delegate!(inner: capabilities, open, rename, link, list, space, sync_names);
    crate::delegate!(inner: lock, queue, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        if let Some(at) = state.deferred.iter().position(|deferred| deferred == name) {
            self.inner.remove(name)?;
            state.deferred.remove(at);
        }
        drop(state);
        self.inner.create(name, access, reserve)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        if state.holds.is_empty() && state.deferred.is_empty() {
            return self.inner.remove(name);
        }
        if state.deferred.iter().any(|deferred| deferred == name) {
            return Err(crate::check::missing(name));
        }
        state.deferred.push(name.to_owned());
        let removed = state.remove_released(&*self.inner);
        // A failure to remove another file is tried again later. A failure to remove this one goes to the
        // caller, which may call again.
        if let Err(error) = removed
            && !state.is_held(name)
            && state.deferred.last().is_some_and(|last| last == name)
        {
            state.deferred.pop();
            return Err(error);
        }
        Ok(())
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holding({:?})", self.inner)
    }
}

/// Keeps files from being removed until it is dropped; see [`Holding::hold`].
pub struct Hold {
    medium: Arc<dyn Medium>,
    state: Arc<Mutex<HoldState>>,
    number: u64,
}

impl Hold {
    /// Keeps only these files from now on, and performs the deferred removals of others.
    pub fn narrow(&self, names: impl IntoIterator<Item = String>) {
        let mut state = self.state.lock();
        let files = state.hold(self.number);
        base::invariant!(files.is_some(), "a hold is listed until it is dropped");
        if let Some(files) = files {
            *files = HeldFiles::Named(names.into_iter().collect());
        }
        // A removal that fails is tried again at the next removal.
        let _ = state.remove_released(&*self.medium);
    }

    /// Stops keeping one file. No effect before [`Hold::narrow`].
    pub fn release(&self, name: &str) {
        let mut state = self.state.lock();
        if let Some(HeldFiles::Named(names)) = state.hold(self.number)
            && names.remove(name)
        {
            let _ = state.remove_released(&*self.medium);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let before = state.holds.len();
        state.holds.retain(|(number, _)| *number != self.number);
        base::invariant!(state.holds.len() + 1 == before, "a hold ends once");
        let _ = state.remove_released(&*self.medium);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Faulty, MemoryMedium, OpKind, Rule};

    fn holding(names: &[&str]) -> Holding {
        let medium = MemoryMedium::new();
        for name in names {
            medium.insert(name, vec![1]).unwrap();
        }
        Holding::new(Arc::new(medium))
    }

    fn names(medium: &dyn Medium) -> Vec<String> {
        medium.list().unwrap().into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn a_removed_file_stays_while_it_is_held() {
        let medium = holding(&["a", "b", "c"]);
        medium.remove("c").unwrap();
        assert_eq!(names(&medium), ["a", "b"]);
        let hold = medium.hold();
        medium.remove("a").unwrap();
        medium.remove("b").unwrap();
        assert_eq!(names(&medium), ["a", "b"]);
        assert!(medium.remove("a").is_err(), "a removed file cannot be removed again");
        hold.narrow(["b".to_owned()]);
        assert_eq!((names(&medium), medium.waiting()), (vec!["b".to_owned()], 1));
        hold.release("b");
        assert_eq!((names(&medium).len(), medium.waiting()), (0, 0));
    }

    #[test]
    fn a_file_stays_until_its_last_hold_is_dropped() {
        let medium = holding(&["a"]);
        let (one, two) = (medium.hold(), medium.hold());
        medium.remove("a").unwrap();
        drop(one);
        assert_eq!(names(&medium), ["a"]);
        drop(two);
        assert!(names(&medium).is_empty());
    }

    #[test]
    fn a_name_whose_removal_is_deferred_can_be_created_again() {
        let medium = holding(&["a"]);
        let hold = medium.hold();
        medium.remove("a").unwrap();
        let file = medium.create("a", Access::Bytes, 0).unwrap();
        assert_eq!(file.size().unwrap(), 0);
        drop(hold);
        assert_eq!(names(&medium), ["a"], "the new file");
    }

    #[test]
    fn removal_of_a_missing_file_defers_no_other() {
        let medium = holding(&["a", "b"]);
        let hold = medium.hold();
        medium.remove("missing").unwrap();
        medium.remove("a").unwrap();
        drop(hold);
        assert_eq!((names(&medium), medium.waiting()), (vec!["b".to_owned()], 0));
        medium.remove("b").unwrap();
    }

    /// As for log segments: an older one must never outlive a newer one.
    #[test]
    fn a_failed_removal_defers_later_ones() {
        let device = Arc::new(Faulty::new(1));
        let medium = Holding::new(Arc::clone(&device) as _);
        for name in ["a", "b", "c"] {
            medium.create(name, Access::Bytes, 0).unwrap();
        }
        let hold = medium.hold();
        medium.remove("a").unwrap();
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("a").times(2)).unwrap();
        drop(hold);
        assert_eq!(names(&medium), ["a", "b", "c"]);
        medium.remove("b").unwrap_err();
        assert_eq!(names(&medium), ["a", "b", "c"]);
        medium.remove("b").unwrap();
        assert_eq!(names(&medium), ["c"]);
    }
}

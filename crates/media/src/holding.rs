//! A medium whose files can be held: what is removed meanwhile stays until the hold ends.
//!
//! Whoever copies a store that goes on working takes a [`Hold`] first and looks at what exists
//! second: every file that was named then is there until the hold lets go of it. A name whose
//! removal waits is still listed; creating it again carries the removal out first.
//!
//! Invariant: removals happen in the order in which they were asked for, as far as they are not
//! held, so that a file whose removal failed or waits is never outlived by one that was to go
//! before it. What a process that dies leaves behind are files that nothing names.
//!
//! Concurrency: one lock, held while a file is removed, so that no removal is under way when a
//! hold begins. Cost: that lock a removal or creation, nothing for reads and writes.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base::{ErrorKind, Result};
use parking_lot::Mutex;

use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space};

/// See the module.
pub struct Holding {
    inner: Arc<dyn Medium>,
    state: Arc<Mutex<HeldFiles>>,
}

#[derive(Default)]
struct HeldFiles {
    /// What each hold keeps; by number.
    holds: Vec<(u64, Held)>,
    last: u64,
    /// Names that were removed and are still there, in the order asked for.
    waiting: Vec<String>,
}

/// What one hold keeps.
enum Held {
    All,
    These(BTreeSet<String>),
}

impl HeldFiles {
    fn is_held(&self, name: &str) -> bool {
        self.holds.iter().any(|(_, held)| match held {
            Held::All => true,
            Held::These(names) => names.contains(name),
        })
    }

    /// Removes what waits and is not held, up to the first failure.
    fn settle(&mut self, medium: &dyn Medium) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut result = Ok(());
        for name in waiting {
            if result.is_ok() && !self.is_held(&name) {
                result = match medium.remove(&name) {
                    // It is not there, or was never: those behind it do not wait for that.
                    Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
                    removed => removed,
                };
                if result.is_ok() {
                    continue;
                }
            }
            self.waiting.push(name);
        }
        result
    }

    fn hold(&mut self, number: u64) -> Option<&mut Held> {
        self.holds.iter_mut().find(|(other, _)| *other == number).map(|(_, held)| held)
    }
}

impl Holding {
    /// Lets the files of `inner` be held.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Keeps every file that is there now until the hold is narrowed or dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.holds.push((number, Held::All));
        Hold { medium: Arc::clone(&self.inner), state: Arc::clone(&self.state), number }
    }

    /// How many files wait to be removed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl Medium for Holding {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        if let Some(at) = state.waiting.iter().position(|waiting| waiting == name) {
            self.inner.remove(name)?;
            state.waiting.remove(at);
        }
        drop(state);
        self.inner.create(name, access, reserve)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        if state.holds.is_empty() && state.waiting.is_empty() {
            return self.inner.remove(name);
        }
        if state.waiting.iter().any(|waiting| waiting == name) {
            return Err(crate::check::missing(name));
        }
        state.waiting.push(name.to_owned());
        let settled = state.settle(&*self.inner);
        // Another's failure is tried again later; its own is the caller's, who may ask again.
        if let Err(error) = settled
            && !state.is_held(name)
            && state.waiting.last().is_some_and(|last| last == name)
        {
            state.waiting.pop();
            return Err(error);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
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
        self.inner.sync_names(names)
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

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holding({:?})", self.inner)
    }
}

/// Keeps files until it is dropped; see [`Holding::hold`].
pub struct Hold {
    medium: Arc<dyn Medium>,
    state: Arc<Mutex<HeldFiles>>,
    number: u64,
}

impl Hold {
    /// Keeps only these files from now on; removals of others that waited are carried out.
    pub fn narrow(&self, names: impl IntoIterator<Item = String>) {
        let mut state = self.state.lock();
        if let Some(held) = state.hold(self.number) {
            *held = Held::These(names.into_iter().collect());
        }
        // What cannot be removed now is tried again at the next removal.
        let _ = state.settle(&*self.medium);
    }

    /// Lets go of one file. No effect before [`Hold::narrow`].
    pub fn release(&self, name: &str) {
        let mut state = self.state.lock();
        if let Some(Held::These(names)) = state.hold(self.number)
            && names.remove(name)
        {
            let _ = state.settle(&*self.medium);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.holds.retain(|(number, _)| *number != self.number);
        let _ = state.settle(&*self.medium);
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
    fn what_is_removed_stays_while_it_is_held() {
        let medium = holding(&["a", "b", "c"]);
        medium.remove("c").unwrap();
        assert_eq!(names(&medium), ["a", "b"]);
        let hold = medium.hold();
        medium.remove("a").unwrap();
        medium.remove("b").unwrap();
        assert_eq!(names(&medium), ["a", "b"]);
        assert!(medium.remove("a").is_err(), "it is gone for whoever removed it");
        hold.narrow(["b".to_owned()]);
        assert_eq!((names(&medium), medium.waiting()), (vec!["b".to_owned()], 1));
        hold.release("b");
        assert_eq!((names(&medium).len(), medium.waiting()), (0, 0));
    }

    #[test]
    fn every_hold_counts_and_a_dropped_one_lets_go() {
        let medium = holding(&["a"]);
        let (one, two) = (medium.hold(), medium.hold());
        medium.remove("a").unwrap();
        drop(one);
        assert_eq!(names(&medium), ["a"]);
        drop(two);
        assert!(names(&medium).is_empty());
    }

    #[test]
    fn a_name_that_waits_can_be_taken_again() {
        let medium = holding(&["a"]);
        let hold = medium.hold();
        medium.remove("a").unwrap();
        let file = medium.create("a", Access::Bytes, 0).unwrap();
        assert_eq!(file.size().unwrap(), 0);
        drop(hold);
        assert_eq!(names(&medium), ["a"], "the new one");
    }

    #[test]
    fn a_name_that_is_not_there_keeps_no_other_waiting() {
        let medium = holding(&["a", "b"]);
        let hold = medium.hold();
        medium.remove("missing").unwrap();
        medium.remove("a").unwrap();
        drop(hold);
        assert_eq!((names(&medium), medium.waiting()), (vec!["b".to_owned()], 0));
        medium.remove("b").unwrap();
    }

    /// Removals of a log's segments: an older one must never outlive a newer one.
    #[test]
    fn a_removal_that_fails_keeps_later_ones_waiting() {
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

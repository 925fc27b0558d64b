//! Files that may move to an object store and keep their names: the medium of a store with cold tables.
//!
//! All files are created on the local medium. [`Cold::switch`] gives a name to a complete file of the other
//! medium, and removes the local file: reads of handles that are open go there from then on. Which names are
//! cold is stated by the caller, which has it from the store's manifest; this module keeps no state of its
//! own. The content of a name never changes, so a reader does not notice the switch except by the time it
//! takes.
//!
//! A removed cold name is put on a list, and the owner of the other medium removes its file
//! ([`Cold::take_removed`]): that takes requests, for which no reader and no flush must wait.
//!
//! Some pages of a cold file may be kept on the local medium ([`Cold::keep`]): those that are needed to open
//! a table, and to find out that a key is not in it. Then a file is opened while the other medium does not
//! answer.
//!
//! Reads of cold files that one queue has in flight are merged to ranges of up to 64 KiB, because a request
//! costs money and its latency does not depend on such a length.
//!
//! Threads: any. Lock order: the names, then one file. Cost of a local read: one uncontended lock.

mod counters;
mod file;
mod kept;
mod name;
mod queue;
mod range;
mod remote;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use base::{Account, Result, broken_invariant};
use parking_lot::Mutex;

pub use counters::ColdReads;
use counters::Counters;
use file::{ColdFile, Current};
use kept::{Kept, kept_name};
pub use kept::{KeptWriter, kept_of};
pub use name::ColdName;
use queue::ColdQueue;
use range::Range;
use remote::{Remote, Verify};

use crate::pool::Pool;
use crate::{Access, File, Listing, Medium, Queue};

/// See the module.
pub struct Cold {
    local: Arc<dyn Medium>,
    /// Whether a file of this name may move.
    may_move: fn(&str) -> bool,
    attached: OnceLock<Attached>,
}

/// The other medium.
struct Attached {
    medium: Arc<dyn Medium>,
    pool: Arc<Pool<Range>>,
    counters: Arc<Counters>,
    names: Mutex<Names>,
    verify: Verify,
    /// The numbers of kept pages.
    account: Account,
}

/// Bounded by the number of the store's tables.
#[derive(Default)]
struct Names {
    /// The cold names.
    cold: BTreeMap<String, ColdName>,
    /// Handles of local files that may move.
    open: BTreeMap<String, Vec<Weak<ColdFile>>>,
    /// Files of the other medium that lost their names.
    removed: Vec<String>,
}

impl Cold {
    /// The files of `local`, until another medium is attached.
    #[must_use]
    pub fn new(local: Arc<dyn Medium>, may_move: fn(&str) -> bool) -> Self {
        Self { local, may_move, attached: OnceLock::new() }
    }

    /// Attaches the medium with the content of the names `cold`. Local files with these names are not seen
    /// any more. `verify` says whether bytes are whole pages of a file at an offset; the numbers of kept
    /// pages are charged to `account`.
    ///
    /// # Errors
    /// If one was attached before.
    pub fn attach(
        &self,
        medium: Arc<dyn Medium>,
        cold: BTreeMap<String, ColdName>,
        verify: impl Fn(&str, u64, &[u8]) -> bool + Send + Sync + 'static,
        account: &Account,
    ) -> Result<()> {
        let (counters, verify) = (Arc::default(), Arc::new(verify));
        let names = Mutex::new(Names { cold, ..Names::default() });
        let (pool, account) = (range::pool(), account.clone());
        let attached = Attached { medium, pool, counters, names, verify, account };
        let attached = self.attached.set(attached);
        attached.map_err(|_| broken_invariant!("a medium of cold files is attached once"))
    }

    /// Removes local files with cold names, and pages that are kept of local files: a process died in the
    /// middle of a switch. Returns the number of the former.
    ///
    /// # Errors
    /// Those of the local medium.
    pub fn remove_hidden(&self) -> Result<usize> {
        let Some(attached) = self.attached.get() else { return Ok(0) };
        let names = attached.names.lock();
        let mut removed = 0;
        for listing in self.local.list()? {
            if names.cold.contains_key(&listing.name) {
                self.local.remove(&listing.name)?;
                removed += 1;
            } else if self.kept_of(&listing.name).is_some_and(|of| !names.cold.contains_key(of)) {
                self.local.remove(&listing.name)?;
            }
        }
        Ok(removed)
    }

    /// The file that `name` has kept pages of.
    fn kept_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        kept_of(name).filter(|of| (self.may_move)(of))
    }

    /// Begins to keep pages of the local file `name`, which is to become cold: reads of them stay local.
    ///
    /// # Errors
    /// Those of the local medium.
    pub fn keep(&self, name: &str) -> Result<KeptWriter> {
        let Some(attached) = self.attached.get() else {
            return Err(broken_invariant!("pages are kept of files that may move"));
        };
        KeptWriter::create(&self.local, name, &attached.account)
    }

    /// Gives `name` the content of the complete file `cold` of the other medium, and removes the local file.
    /// Both have the same content. If the local file cannot be removed, [`Cold::remove_hidden`] removes it
    /// later.
    ///
    /// # Errors
    /// Those of opening `cold`: nothing changes then.
    pub fn switch(&self, name: &str, cold: ColdName) -> Result<()> {
        let Some(attached) = self.attached.get() else {
            return Err(broken_invariant!("a file moves to a medium that is attached"));
        };
        let remote = attached.remote(&*self.local, name, &cold, Access::Direct);
        attached.medium.open(&cold.file, Access::Direct)?;
        let mut names = attached.names.lock();
        let before = names.cold.insert(name.to_owned(), cold);
        base::invariant!(before.is_none(), "a file moves once");
        for open in names.open.remove(name).into_iter().flatten() {
            if let Some(open) = open.upgrade() {
                open.move_to(Arc::clone(&remote));
            }
        }
        drop(names);
        let _ = self.local.remove(name);
        Ok(())
    }

    /// The files of the other medium that lost their names since the last call.
    #[must_use]
    pub fn take_removed(&self) -> Vec<String> {
        let attached = self.attached.get();
        attached.map_or_else(Vec::new, |it| std::mem::take(&mut it.names.lock().removed))
    }

    /// Whether a cold name has the content of the file `file` of the other medium.
    #[must_use]
    pub fn is_named(&self, file: &str) -> bool {
        let attached = self.attached.get();
        attached.is_some_and(|it| it.names.lock().cold.values().any(|cold| cold.file == file))
    }

    /// The files of the other medium with the content of a cold name.
    #[must_use]
    pub fn named(&self) -> Vec<ColdName> {
        let attached = self.attached.get();
        attached.map_or_else(Vec::new, |it| it.names.lock().cold.values().cloned().collect())
    }

    /// The reads of cold files so far.
    #[must_use]
    pub fn reads(&self) -> ColdReads {
        self.attached.get().map_or_else(ColdReads::default, |it| it.counters.load())
    }
}

impl Attached {
    fn remote(
        &self,
        local: &dyn Medium,
        name: &str,
        cold: &ColdName,
        access: Access,
    ) -> Arc<Remote> {
        let kept = Kept::open(local, name, cold.len, &self.account);
        let place = (&self.medium, cold, access);
        Arc::new(Remote::new(name, place, kept, &self.verify, &self.counters))
    }
}

impl Medium for Cold {
    crate::delegate!(local: capabilities, create, rename, space, sync_names, lock);
    crate::delegate!(local: undecorated);

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let Some(attached) = self.attached.get().filter(|_| (self.may_move)(name)) else {
            return self.local.open(name, access);
        };
        let mut names = attached.names.lock();
        if let Some(cold) = names.cold.get(name) {
            let remote = attached.remote(&*self.local, name, cold, access);
            if !remote.has_kept() {
                // Its readers need the file at once.
                remote.file()?;
            }
            return Ok(Arc::new(ColdFile::new(name, Current::Cold(remote))));
        }
        let file = Current::Local(self.local.open(name, access)?);
        let file = Arc::new(ColdFile::new(name, file));
        let open = names.open.entry(name.to_owned()).or_default();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&file));
        Ok(file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if let Some(attached) = self.attached.get() {
            let names = &mut *attached.names.lock();
            names.open.remove(name);
            if let Some(cold) = names.cold.remove(name) {
                names.removed.push(cold.file);
                // Those that stay are removed at the next open.
                let _ = self.local.remove(&kept_name(name));
                return Ok(());
            }
        }
        self.local.remove(name)
    }

    /// A cold file must be copied.
    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        let is_cold = |it: &Attached| it.names.lock().cold.contains_key(name);
        if self.attached.get().is_some_and(is_cold) {
            return Ok(false);
        }
        self.local.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let Some(attached) = self.attached.get() else { return self.local.list() };
        let names = attached.names.lock();
        let mut files = self.local.list()?;
        files.retain(|file| {
            !names.cold.contains_key(&file.name) && self.kept_of(&file.name).is_none()
        });
        let cold = names.cold.iter();
        files.extend(cold.map(|(name, cold)| Listing { name: name.clone(), len: cold.len }));
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let local = self.local.queue(depth)?;
        Ok(match self.attached.get() {
            Some(attached) => Box::new(ColdQueue::new(local, &attached.pool)),
            None => local,
        })
    }
}

impl fmt::Debug for Cold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medium = self.attached.get().map(|it| &it.medium);
        f.debug_struct("Cold").field("local", &self.local).field("cold", &medium).finish()
    }
}

#[cfg(test)]
mod tests;

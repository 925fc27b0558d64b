//! [`Handle`], the open store behind every Python object of it, and [`Slot`], the part of one object.
//!
//! A Python object may outlive `close`, for example in a traceback. Closing therefore empties every slot,
//! and the directory is unlocked although Python objects are left.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use terracedb::{Db, Error, Result};

/// The slots between two sweeps of those whose objects are gone.
const SLOTS_BEFORE_SWEEP: usize = 64;

/// An open store.
pub(crate) struct Handle {
    db: RwLock<Option<Db>>,
    slots: Mutex<Slots>,
    process: Process,
}

struct Slots {
    of_objects: Vec<Weak<dyn Empty>>,
    sweep_at: usize,
}

/// The process that opened the store. After a fork, a lock may be held by a thread that the child does not
/// have.
#[derive(Clone, Copy)]
struct Process(u32);

impl Process {
    fn here() -> Self {
        Self(std::process::id())
    }

    fn check(self) -> Result<()> {
        if self.0 == std::process::id() {
            return Ok(());
        }
        Err(Error::invalid("use of a store after a fork")
            .expected("a process that opens the store itself, after the fork"))
    }
}

/// A value of a Python object: a keyspace, a snapshot, a transaction, an iterator. Empty after `close`.
pub(crate) struct Slot<T> {
    value: RwLock<Option<T>>,
    process: Process,
}

trait Empty: Send + Sync {
    fn empty(&self);
}

impl<T: Send + Sync> Empty for Slot<T> {
    fn empty(&self) {
        drop(self.value.write().take());
    }
}

impl<T> Slot<T> {
    /// Runs `work` with the value. Call it without the interpreter lock, as every method here.
    ///
    /// # Errors
    /// `Closed` if the store or the object was closed; `Invalid` after a fork.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        self.process.check()?;
        work(self.value.read().as_ref().ok_or_else(closed)?)
    }

    /// As [`Slot::with`]; no other thread uses the value meanwhile.
    pub(crate) fn with_mut<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        self.process.check()?;
        work(self.value.write().as_mut().ok_or_else(closed)?)
    }

    /// Takes the value out, for a call that ends it; `None` if it has ended.
    pub(crate) fn take(&self) -> Result<Option<T>> {
        self.process.check()?;
        Ok(self.value.write().take())
    }

    /// Ends the value, if it is there.
    pub(crate) fn close(&self) {
        if self.process.check().is_ok() {
            drop(self.value.write().take());
        }
    }
}

impl Handle {
    pub(crate) fn new(db: Db) -> Arc<Self> {
        Arc::new(Self {
            db: RwLock::new(Some(db)),
            slots: Mutex::new(Slots { of_objects: Vec::new(), sweep_at: SLOTS_BEFORE_SWEEP }),
            process: Process::here(),
        })
    }

    /// Runs `work` with the store. Closing waits for it. Call it without the interpreter lock, as every
    /// method here.
    ///
    /// # Errors
    /// `Closed` if the store was closed; `Invalid` after a fork.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Db) -> Result<R>) -> Result<R> {
        self.process.check()?;
        work(self.db.read().as_ref().ok_or_else(closed)?)
    }

    /// A slot with the value that `make` returns. Closing the store empties it.
    pub(crate) fn slot<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce(&Db) -> Result<T>,
    ) -> Result<Arc<Slot<T>>> {
        self.with(|db| {
            let value = RwLock::new(Some(make(db)?));
            let slot = Arc::new(Slot { value, process: self.process });
            let slots = &mut *self.slots.lock();
            if slots.of_objects.len() >= slots.sweep_at {
                slots.of_objects.retain(|slot| slot.strong_count() > 0);
                slots.sweep_at = SLOTS_BEFORE_SWEEP.max(2 * slots.of_objects.len());
            }
            let any: Weak<Slot<T>> = Arc::downgrade(&slot);
            slots.of_objects.push(any);
            Ok(slot)
        })
    }

    /// Closes the store: waits for the calls that use it, empties every slot, syncs. Closing again does
    /// nothing.
    pub(crate) fn close(&self) -> Result<()> {
        self.process.check()?;
        let Some(db) = self.db.write().take() else { return Ok(()) };
        let slots = std::mem::take(&mut self.slots.lock().of_objects);
        for slot in slots.iter().filter_map(Weak::upgrade) {
            slot.empty();
        }
        db.close()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.process.check().is_err() || self.db.read().is_none()
    }
}

/// The error of a call on a store or an object that has ended.
pub(crate) fn closed() -> Error {
    Error::closed("store or object")
}

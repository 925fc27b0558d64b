//! [`Importer`]: stages the keys of a source in batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use terracedb::{Db, Durability, WriteOptions};

use super::sink::{Sink, SourceKey};
use super::stopped::Stopped;
use crate::collection::{List, Members, Side};
use crate::keys::{DATABASES, Keys, now_ms};
use crate::unit::Unit;
use crate::value::{Kind, Value};

/// A batch is committed at this many elements, or this many bytes of them.
const BATCH_ELEMENTS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Keys, and their elements (a string is one).
    pub keys: u64,
    /// See `keys`.
    pub elements: u64,
    /// Keys that had expired.
    pub expired: u64,
    /// Keys and other objects that were left out, by type.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Adds the keys of a source to a store.
pub(crate) struct Importer<P> {
    keys: Arc<Keys>,
    progress: P,
    tally: Tally,
    current: Option<SourceKey>,
    /// The key was replaced by its first elements.
    has_begun: bool,
    elements: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    /// Strings and whole collections that are committed together.
    unit: Unit,
    staged: usize,
    now: u64,
    /// The progress was told to end.
    stop: Option<terracedb::Error>,
}

impl<P> std::fmt::Debug for Importer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("tally", &self.tally).finish_non_exhaustive()
    }
}

impl<P: FnMut(u64) -> terracedb::Result<()>> Importer<P> {
    /// An importer into `db`. It calls `progress` now and then; an error of it ends the import.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn new(db: Db, progress: P) -> Result<Self, Stopped> {
        let keys = Arc::new(Keys::open(db, &[])?);
        let unit = Unit::new(&keys);
        let (tally, current, elements) = Default::default();
        let (has_begun, bytes, staged, now, stop) = (false, 0, 0, now_ms(), None);
        Ok(Self {
            keys,
            progress,
            tally,
            current,
            has_begun,
            elements,
            bytes,
            unit,
            staged,
            now,
            stop,
        })
    }

    /// Commits the rest, and makes all of it durable.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn finish(mut self) -> Result<Tally, Stopped> {
        self.commit()?;
        self.keys.db.sync()?;
        Ok(self.tally)
    }

    fn commit(&mut self) -> Result<(), Stopped> {
        // The sync at the end makes all of it durable.
        let options = WriteOptions::new().durability(Durability::None);
        self.unit.commit(&[options; 2])?;
        self.unit = Unit::new(&self.keys);
        self.staged = 0;
        Ok(())
    }

    /// As [`Importer::stage`]; an error names the key.
    fn stage_named(&mut self, is_last: bool) -> Result<(), Stopped> {
        let staged = self.stage(is_last);
        staged.map_err(|stopped| {
            let name =
                self.current.as_ref().map(|key| String::from_utf8_lossy(&key.name).into_owned());
            stopped.at(format_args!("key `{}`", name.unwrap_or_default()))
        })
    }

    /// Stages the elements that were collected, and commits what is staged if it is much.
    fn stage(&mut self, is_last: bool) -> Result<(), Stopped> {
        let Some(key) = self.current.clone() else { return Ok(()) };
        let elements = std::mem::take(&mut self.elements);
        self.staged += self.bytes;
        self.bytes = 0;
        self.tally.elements += elements.len() as u64;
        let stored = crate::keys::stored_key(key.database, &key.name);
        let unit = &mut self.unit;
        if !self.has_begun {
            unit.set(&stored, None)?;
            self.has_begun = true;
        }
        match key.kind {
            Kind::String => {
                let Some((bytes, _)) = elements.into_iter().next() else { return Ok(()) };
                unit.set(&stored, Some(Value::string(key.expiry, bytes)))?;
            }
            Kind::List => {
                let mut list = List::open(unit, &stored)?;
                for (element, _) in &elements {
                    list.push(unit, Side::Right, element)?;
                }
                list.save(unit)?;
            }
            kind => {
                let mut members = Members::open(unit, &stored, kind)?;
                for (member, payload) in &elements {
                    members.put(unit, member, payload)?;
                }
                members.save(unit)?;
            }
        }
        if is_last
            && key.expiry > 0
            && let Some(value) = unit.get(&stored)?
        {
            unit.set(&stored, Some(Value { expiry: key.expiry, ..value }))?;
        }
        self.staged += 64 + stored.len();
        if !is_last || self.staged >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }
}

impl<P: FnMut(u64) -> terracedb::Result<()>> Sink for Importer<P> {
    fn begin(&mut self, key: SourceKey) -> Result<(), Stopped> {
        if let Some(error) = self.stop.take() {
            return Err(error.into());
        }
        if key.database >= DATABASES {
            return Err(Stopped::new(format!(
                "the key is of database {}, and this store has {DATABASES}",
                key.database
            )));
        }
        self.has_begun = false;
        self.current = (key.expiry == 0 || key.expiry > self.now).then_some(key);
        self.tally.expired += u64::from(self.current.is_none());
        Ok(())
    }

    fn element(&mut self, member: &[u8], payload: &[u8]) -> Result<(), Stopped> {
        if self.current.is_none() {
            return Ok(());
        }
        if self.bytes >= BATCH_BYTES || self.elements.len() >= BATCH_ELEMENTS {
            self.stage_named(false)?;
        }
        self.bytes += member.len() + payload.len() + 64;
        self.elements.push((member.to_vec(), payload.to_vec()));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stopped> {
        // A collection that is gone since its key was listed has no elements.
        let is_empty = self.elements.is_empty() && !self.has_begun;
        if !is_empty {
            self.stage_named(true)?;
        }
        let is_added = self.current.take().is_some() && !is_empty;
        self.tally.keys += u64::from(is_added);
        Ok(())
    }

    fn skipped(&mut self, kind: &'static str) {
        *self.tally.skipped.entry(kind).or_default() += 1;
    }

    fn progress(&mut self, done: u64) {
        // An error is noticed at the next key.
        if let Err(error) = (self.progress)(done) {
            self.stop = Some(error);
        }
    }
}

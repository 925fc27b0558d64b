//! Opens the store and identifies its contents; closes it; crashes it.

use std::sync::Arc;

use base::{Clock, Rng};
use media::{Faulty, Medium};
use terracedb::Db;

use crate::compare::{self, Entries, difference, sorted};
use crate::history::{Contents, Live, ProcessEnd};
use crate::step_error::{Outcome, StepError, ensure};
use crate::world::World;

impl World {
    /// Opens the store and checks its contents. A device that refuses is healed, and the opening is repeated.
    pub(crate) fn open(&mut self, left: ProcessEnd) -> Outcome {
        self.begin_process()?;
        for _ in 0..3 {
            let left = if self.is_lossy() { ProcessEnd::Power } else { left };
            match self.try_open(left) {
                Ok(db) => {
                    self.db = Some(db);
                    self.opens += 1;
                    self.lossy_after = self.lossy_after.map(|_| self.device.struck());
                    return Ok(());
                }
                // A healed device must not refuse.
                Err(StepError::Refused(error)) if self.broken => {
                    self.note(format!("  opening: {error}"));
                    self.device.heal();
                    self.device.set_capacity(None);
                    self.broken = false;
                }
                Err(StepError::Refused(error)) => {
                    return Err(StepError::Wrong(format!("opening, left by {left:?}: {error}")));
                }
                Err(wrong) => return Err(wrong),
            }
        }
        Err(StepError::Wrong("a healed device is broken".into()))
    }

    fn is_lossy(&self) -> bool {
        self.lossy_after.is_some_and(|struck| self.device.struck() > struck)
    }

    fn try_open(&mut self, left: ProcessEnd) -> Outcome<Db> {
        if let Some(sums) = self.workers.as_ref().map(|workers| workers.sums()) {
            self.spoilt_before = sums.spoilt;
            self.ended_before = sums.attempts - sums.installed;
        }
        let medium = Arc::clone(&self.device) as Arc<dyn Medium>;
        let builder = Db::on_medium(medium).resources(self.resources()).identity(self.identity);
        let db = self.variant.apply(builder).open()?;
        let recovery = db.recovery();
        if let Some(error) = recovery.damaged_tables.first() {
            return Err(StepError::Refused(error.clone()));
        }
        ensure!(recovery.log_damage.is_none(), "log damage: {:?}", recovery.log_damage);
        let (state, live) = self.identify(&db, left)?;
        let now = self.now();
        for (name, incarnation) in &live {
            let keyspace = db.keyspace(name)?;
            compare::all(&keyspace, &state.at(*incarnation, now), &mut self.rng)?;
        }
        if !self.broken {
            let listed = self.device.list()?.into_iter().map(|file| file.name);
            compare::no_unused_files(&db, &listed.collect::<Vec<_>>())?;
        }
        self.history.opened(state, live);
        Ok(db)
    }

    /// Finds the permitted state that the store holds.
    fn identify(&mut self, db: &Db, left: ProcessEnd) -> Outcome<(Contents, Live)> {
        let mut names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        names.sort();
        let lives: Vec<_> = self.history.lives().cloned().collect();
        let mut fitting = lives.iter().filter(|live| live.keys().copied().eq(&names)).peekable();
        ensure!(fitting.peek().is_some(), "keyspaces {names:?}, expected one of {lives:?}");
        let mut found = Vec::new();
        for keyspace in db.keyspaces() {
            found.push((keyspace.name().to_owned(), sorted(keyspace.entries()?)?));
        }
        found.sort();
        let now = self.now();
        let candidates = self.history.candidates(left);
        let mut first = None;
        for live in fitting {
            for (number, candidate) in candidates.iter().enumerate() {
                let wrong = found.iter().zip(live.values()).find_map(|((name, found), inc)| {
                    let expected: Entries = candidate.at(*inc, now).into_iter().collect();
                    (*found != expected)
                        .then(|| format!("`{name}`: {}", difference(found, &expected)))
                });
                let Some(wrong) = wrong else {
                    let gone = candidates.len() - 1;
                    self.note(format!("  opened: {number} of up to {gone} writes gone"));
                    self.answered((number, live));
                    return Ok((candidate.clone(), live.clone()));
                };
                first.get_or_insert(wrong);
            }
        }
        let many = candidates.len();
        let first = first.unwrap_or_default();
        Err(StepError::Wrong(format!("left by {left:?}: none of {many} states fits; {first}")))
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(&mut self) -> Outcome {
        self.close()?;
        self.open(ProcessEnd::Process)
    }

    /// Closes the store, which must release all charged memory.
    pub(crate) fn close(&mut self) -> Outcome {
        self.catch_up();
        self.end_users();
        self.db = None;
        let usage = self.resources().memory_usage();
        let kept = ["page cache", "row cache", "flushes", "SCM map"];
        let leak = usage
            .components
            .iter()
            .find(|component| component.used > 0 && !kept.contains(&component.name));
        ensure!(leak.is_none(), "a closed store holds memory: {leak:?}");
        // The process may go on without the store.
        if self.tier_rng().one_in(2) { Ok(()) } else { self.end_process() }
    }

    /// Kills the process or cuts power: now, or at the time when the device was frozen.
    pub(crate) fn crash(&mut self, left: ProcessEnd) -> Outcome {
        self.catch_up();
        let image = match left {
            ProcessEnd::Process => self.device.process_death_image()?,
            ProcessEnd::Power => self.device.crash_image(self.rng.next_u64())?,
        };
        let lossy = self.is_lossy();
        self.die(left)?;
        self.device = Arc::new(Faulty::over(&image, self.rng.next_u64())?);
        (self.broken, self.lossy_after, self.cut) = (false, None, None);
        self.note(format!("  crash: {left:?}{}", if lossy { ", syncs failed" } else { "" }));
        self.open(if lossy { ProcessEnd::Power } else { left })
    }

    /// A store that ends may forget the last minute, so the clock must be right again before.
    fn catch_up(&mut self) {
        let now = self.now();
        if self.clock.unix_millis() < now {
            self.clock.set_unix_millis(now);
        }
    }

    /// Opens a copy of the store and compares it with the current contents.
    pub(crate) fn check_copy(&mut self, medium: Arc<dyn Medium>, what: &str) -> Outcome {
        let db =
            Db::on_medium(medium).resources(self.resources()).create_if_missing(false).open()?;
        ensure!(db.recovery().damaged_tables.is_empty(), "{what}: {:?}", db.recovery());
        let names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        let live = self.history.live.clone();
        ensure!(names.len() == live.len(), "{what}: {names:?}, expected {live:?}");
        let now = self.now();
        for (name, incarnation) in &live {
            let keyspace = db.keyspace(name);
            ensure!(keyspace.is_ok(), "{what}: no keyspace `{name}`");
            let model = self.history.current.at(*incarnation, now);
            let mut rng = Rng::new(self.rng.next_u64());
            let same = keyspace.map(|keyspace| compare::all(&keyspace, &model, &mut rng));
            if let Ok(Err(StepError::Wrong(why))) = same {
                return Err(StepError::Wrong(format!("{what}: {why}")));
            }
        }
        Ok(())
    }
}

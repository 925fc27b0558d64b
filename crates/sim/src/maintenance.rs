//! Steps of maintenance: flush, compaction, settings, check, bulk ingest, checkpoint and backup.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use media::{Fault, Faulty, Medium, OpKind, Rule};
use terracedb::tools::{Backup, CheckpointOptions};
use terracedb::{Durability, EntryOptions, ErrorKind};

use crate::cells::{Change, key, value};
use crate::history::Event;
use crate::settings::Variant;
use crate::step_error::{Outcome, ensure};
use crate::users::PendingIngest;
use crate::world::World;

impl World {
    pub(crate) fn flush(&mut self) -> Outcome {
        let Some((name, _)) = self.some_keyspace() else { return Ok(()) };
        let flushed = self.keyspace(name)?.flush();
        self.note(format!("  flush {name}: {flushed:?}"));
        Ok(flushed?)
    }

    pub(crate) fn flush_all(&mut self) -> Outcome {
        let flushed = self.db().flush();
        self.note(format!("  flush all: {flushed:?}"));
        flushed?;
        self.history.synced();
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Outcome {
        let synced = self.db().sync();
        self.note(format!("  sync: {synced:?}"));
        synced?;
        self.history.synced();
        Ok(())
    }

    pub(crate) fn compact(&mut self) -> Outcome {
        let Some((name, _)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let span = match keyspace.hashed_policy() {
            None => self.span(),
            Some(_) => (Bound::Unbounded, Bound::Unbounded),
        };
        let done = match self.rng.below(4) {
            0 => self.db().compact(),
            1 => self.db().start_compaction().map(drop),
            2 => keyspace.start_compaction(span).map(drop),
            _ => keyspace.compact_range(span),
        };
        self.note(format!("  compact {name}: {done:?}"));
        Ok(done?)
    }

    pub(crate) fn settle_down(&mut self) -> Outcome {
        let mut settled = self.db().wait_until_settled();
        self.note(format!("  settle: {settled:?}"));
        if settled.is_err() && !self.broken {
            // A failed merge is retried within 64 seconds.
            self.clock.advance(Duration::from_secs(65));
            self.work(20);
            settled = self.db().wait_until_settled();
        }
        Ok(settled?)
    }

    pub(crate) fn let_pass(&mut self) -> Outcome {
        let most = if self.rng.one_in(10) { 120_000 } else { 500 };
        let time = self.rng.below(most);
        self.pass(Duration::from_millis(time));
        Ok(())
    }

    /// Sets the wall clock back. Values that a read saw expired must stay expired.
    pub(crate) fn set_back(&mut self) -> Outcome {
        let Some((name, _)) = self.some_keyspace() else { return Ok(()) };
        drop(self.keyspace(name)?.entries()?);
        let now = self.now();
        self.clock.set_unix_millis(now - self.rng.below(20_000));
        Ok(())
    }

    pub(crate) fn resize(&mut self) -> Outcome {
        if self.fixed.is_none() {
            let memory = (64 << 20) + self.rng.below(256 << 20);
            let left = self.resources().set_memory(memory)?;
            self.note(format!("  memory {memory}, {left} to come back"));
        }
        Ok(())
    }

    /// Closes the store and opens it with other settings.
    pub(crate) fn reopen_changed(&mut self) -> Outcome {
        if self.fixed.is_none() {
            self.variant = Variant::random(&mut self.rng);
            if self.is_crowded {
                self.variant.memory = 64 << 20;
            }
        }
        self.note(format!("  as {:?}", self.variant));
        self.reopen()
    }

    /// Checks the closed store: the check must find no problem.
    pub(crate) fn check_closed(&mut self) -> Outcome {
        self.close()?;
        let medium = Arc::clone(&self.device) as Arc<dyn Medium>;
        let report = terracedb::tools::check(&medium, &mut |_, _| ());
        let checked = report.map(|report| (report.is_clean(), report.problems));
        // Opening heals a broken device.
        let was_broken = self.broken;
        self.open(crate::history::ProcessEnd::Process)?;
        let (clean, problems) = match checked {
            Err(_) if was_broken => return Ok(()),
            checked => checked?,
        };
        ensure!(clean || was_broken, "check: {problems:?}");
        Ok(())
    }

    /// Begins a bulk ingest, or adds entries to one.
    pub(crate) fn ingest(&mut self) -> Outcome {
        if self.ingests.len() < 2 && (self.ingests.is_empty() || self.rng.one_in(3)) {
            let Some((name, incarnation)) = self.some_ordered_keyspace() else { return Ok(()) };
            let ingest = self.keyspace(name)?.ingest()?;
            let (struck, next) = (self.device.struck(), self.rng.below(self.keys));
            self.ingests.push(PendingIngest {
                ingest,
                struck,
                incarnation,
                next,
                added: Vec::new(),
            });
        }
        let Some(number) = self.pick(self.ingests.len()) else { return Ok(()) };
        let mut filling = self.ingests.swap_remove(number);
        for _ in 0..1 + self.rng.below(8) {
            let chosen = key(filling.next);
            filling.next += 1 + self.rng.below(self.keys / 8 + 1);
            let (version, now) = (self.version(), self.now());
            // Keys of one length ascend by number, and a longer key begins with a shorter one.
            let change = if self.rng.one_in(4) {
                Change::expiring(&mut self.rng, chosen, version, now)
            } else {
                Change::Put(chosen, value(&mut self.rng, version))
            };
            let added = match &change {
                Change::PutExpiring(key, value, expiry) => {
                    let expiry = crate::cells::system_time(*expiry);
                    filling.ingest.put_opt(key, value, &EntryOptions::new().expires_at(expiry))
                }
                Change::Put(key, value) => filling.ingest.put(key, value),
                _ => Ok(()),
            };
            let gone = !self.history.live.values().any(|live| *live == filling.incarnation);
            match added {
                // The keyspace was dropped during the ingest: any call may report it.
                Err(error) if gone && error.kind() == ErrorKind::Closed => return Ok(()),
                added => added?,
            }
            filling.added.push(change);
        }
        self.ingests.push(filling);
        Ok(())
    }

    pub(crate) fn finish_ingest(&mut self) -> Outcome {
        let Some(number) = self.pick(self.ingests.len()) else { return Ok(()) };
        let PendingIngest { ingest, struck, incarnation, added, .. } =
            self.ingests.swap_remove(number);
        if self.rng.one_in(8) {
            drop(ingest);
            return Ok(());
        }
        let gone = !self.history.live.values().any(|live| *live == incarnation);
        let finished = ingest.finish();
        self.note(format!("  ingest of {}: {finished:?}", added.len()));
        let is_lost =
            |e: &terracedb::Error| matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::NoSpace);
        if finished.as_ref().is_err_and(is_lost) && self.device.struck() > struck {
            // A failed sync of names may have lost the ingest's file names, even if the device was healed
            // since. Nothing was added.
            return Ok(());
        }
        if gone {
            let closed = |e: &terracedb::Error| e.kind() == ErrorKind::Closed;
            ensure!(added.is_empty() || finished.is_err(), "an ingest into a dropped keyspace");
            return match finished {
                Err(error) if !closed(&error) => Err(error.into()),
                _ => Ok(()),
            };
        }
        let event = Event(added.into_iter().map(|change| (incarnation, change)).collect());
        self.wrote(event, finished.map(drop), Durability::Sync)
    }

    /// A checkpoint holds all acknowledged writes, even after an immediate power cut.
    pub(crate) fn checkpoint(&mut self) -> Outcome {
        let to = Arc::new(Faulty::new(self.rng.next_u64()));
        let medium = Arc::clone(&to) as Arc<dyn Medium>;
        let options = CheckpointOptions::default().flush(self.rng.one_in(2));
        let done = self.db().checkpoint_on(&medium, &options);
        self.note(format!("  checkpoint: {done:?}"));
        done?;
        let image = to.crash_image(self.rng.next_u64())?;
        self.check_copy(Arc::new(image), "checkpoint")
    }

    /// A backup holds all acknowledged writes, even if an operation of its repository failed and the backup
    /// was repeated, or the repository lost power.
    pub(crate) fn backup(&mut self) -> Outcome {
        let backup = Backup::on_medium(Arc::clone(&self.repository) as _);
        let struck = self.repository.struck();
        if self.rng.one_in(3) {
            let on = [OpKind::Write, OpKind::Sync, OpKind::Names, OpKind::Names];
            let on = on[self.rng.below(on.len() as u64) as usize];
            self.repository.inject(Rule::new(on, Fault::Io).after(self.rng.below(16)))?;
        }
        let mut done = backup.create(self.db(), "simulated");
        self.note(format!("  backup: {:?}", done.as_ref().map(|report| report.id)));
        self.repository.heal();
        if done.is_err() && self.repository.struck() > struck {
            done = backup.create(self.db(), "again");
            self.note(format!("  backup, again: {:?}", done.as_ref().map(|report| report.id)));
        }
        let id = done?.id;
        if self.rng.one_in(3) {
            let image = self.repository.crash_image(self.rng.next_u64())?;
            self.repository = Arc::new(Faulty::over(&image, self.rng.next_u64())?);
        }
        let backup = Backup::on_medium(Arc::clone(&self.repository) as _);
        for listed in backup.list()?.backups {
            let report = backup.verify(listed.id)?;
            ensure!(report.is_clean(), "backup {}: {:?}", listed.id, report.problems);
        }
        let to = Arc::new(Faulty::new(self.rng.next_u64())) as Arc<dyn Medium>;
        backup.restore_on(id, &to)?;
        self.check_copy(to, "restored backup")?;
        if self.rng.one_in(2) {
            backup.prune(1)?;
        }
        Ok(())
    }
}

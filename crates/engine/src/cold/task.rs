//! The background task of cold tables: uploads tables that are due, and removes obsolete ones.
//!
//! Runs on an executor that no flush and no merge waits for, because a request may take a minute. Every error
//! ends the claim: the next try begins with a new one, which finds out what became of requests without an
//! answer. An error after the manifest may have named the object ends the work until the store is opened
//! again, since only the manifest on the device tells whether the object is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Account, Clock, Error, ErrorKind, Problem, Progress, Result, Task, invariant};
use manifest::Edit;
use media::ColdName;
use tree::{TreeContext, Trees};

use super::claim::Claim;
use super::status::ColdStatus;
use super::upload::Upload;
use super::{ColdConfig, Due, cold_file_name};

/// The longest time after which the task looks for work.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);
/// Wait after the first error; doubled after each further one.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// See the module.
pub(crate) struct ColdTask {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) config: ColdConfig,
    pub(crate) status: ColdStatus,
    pub(crate) account: Account,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) work: Work,
}

/// What the task has begun.
#[derive(Default)]
pub(crate) struct Work {
    claim: Option<Claim>,
    due: Due,
    upload: Option<Upload>,
    /// Drawn with the first claim; and the uploads begun.
    nonce: Option<u64>,
    uploads: u64,
    /// Errors since the last success.
    errors: u32,
    /// The error after which nothing is tried any more.
    refused: Option<Error>,
}

impl Task for ColdTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            self.work.upload = None;
            self.work.claim = None;
            return Progress::Done;
        }
        if self.work.refused.is_some() {
            return Progress::Idle;
        }
        self.work().unwrap_or_else(|error| self.failed(error))
    }
}

impl ColdTask {
    fn work(&mut self) -> Result<Progress> {
        if self.work.upload.is_some() {
            self.upload()?;
            return Ok(Progress::Again);
        }
        self.remove()?;
        let now = self.clock.monotonic();
        let state = self.context.manifest.state();
        let due = self.work.due.next(&self.trees, &state, now, self.config.after);
        let Some((tree, file)) = due else {
            self.succeeded();
            let wait = self.config.after.min(LOOK_EVERY_MAX);
            return Ok(Progress::IdleFor(wait.max(Duration::from_millis(1))));
        };
        let nonce = self.claim()?;
        let name = cold_file_name(file.entry().id, nonce, self.work.uploads);
        self.work.uploads += 1;
        let charge = self.account.charge(Upload::step_bytes())?;
        let place = (&*self.config.medium, &*self.status.cold);
        let upload = Upload::begin(place, tree, file, name, charge)?;
        self.work.upload = Some(upload);
        Ok(Progress::Again)
    }

    /// Claims the prefix, unless this task has. Returns the nonce of names.
    fn claim(&mut self) -> Result<u64> {
        let nonce = match self.work.nonce {
            Some(nonce) => nonce,
            // An id is random too.
            None => *self.work.nonce.insert(base::StoreId::random()?.0 as u64),
        };
        if self.work.claim.is_none() {
            let (store, manifest) = (self.context.store, &self.context.manifest);
            let claim = Claim::begin(&*self.config.medium, store, manifest, &self.status.cold)?;
            self.work.claim = Some(claim);
        }
        Ok(nonce)
    }

    /// Removes objects of tables that the manifest does not name any more. After an error the next claim
    /// removes them.
    fn remove(&mut self) -> Result<()> {
        let removed = self.status.cold.take_removed();
        if removed.is_empty() {
            return Ok(());
        }
        let has_claim = self.work.claim.is_some();
        self.claim()?;
        if has_claim {
            removed.iter().try_for_each(|name| self.config.medium.remove(name))?;
            self.config.medium.sync_names(&[])?;
        }
        self.status.counters.removals.add(removed.len() as u64);
        Ok(())
    }

    fn upload(&mut self) -> Result<()> {
        let Some(upload) = &mut self.work.upload else { return Ok(()) };
        if upload.file.is_obsolete() || upload.tree.is_dropped() {
            return self.give_up();
        }
        match upload.read() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let (tree, file) = (Arc::clone(&upload.tree), Arc::clone(&upload.file));
                let problem = Problem::of(&table::file_name(file.entry().id), error);
                self.context.quarantine.add(&tree, &file, problem.in_keyspace(tree.name()));
                return self.give_up();
            }
            Err(error) => return Err(error),
        }
        if !upload.send()? {
            return Ok(());
        }
        upload.finish(&*self.config.medium)?;
        self.install()
    }

    /// Gives up an upload whose table is of no use any more.
    fn give_up(&mut self) -> Result<()> {
        let Some(upload) = self.work.upload.take() else { return Ok(()) };
        let name = upload.name.clone();
        drop(upload);
        match self.config.medium.remove(&name) {
            // It was never complete.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
            removed => removed.and_then(|()| self.config.medium.sync_names(&[])),
        }
    }

    /// States in the manifest that the uploaded table is cold, and switches to its object.
    fn install(&mut self) -> Result<()> {
        let Some(upload) = &self.work.upload else { return Ok(()) };
        let (id, len, keyspace) = (upload.file.entry().id, upload.len(), upload.tree.id());
        let guard = upload.tree.version_edit();
        let state = self.context.manifest.state();
        let live = state.keyspaces.get(&keyspace).and_then(|it| it.tables.get(&id));
        if upload.tree.is_dropped() || live.is_none_or(|live| live.cold.is_some()) {
            drop(guard);
            return self.give_up();
        }
        invariant!(self.work.claim.is_some(), "only the owner of a prefix names its objects");
        let edit = Edit::TableCold { keyspace, table: id, file: upload.name.as_str().into() };
        let cold = ColdName { file: upload.name.clone(), len };
        let installed = (self.context.append(vec![edit]))
            .and_then(|()| self.status.cold.switch(&table::file_name(id), cold));
        drop(guard);
        self.work.upload = None;
        if let Err(error) = installed {
            self.work.refused = Some(error.clone());
            return Err(error);
        }
        self.succeeded();
        self.status.counters.uploads.add(1);
        self.status.counters.uploaded_bytes.add(len);
        Ok(())
    }

    /// Something was done, or there is nothing to do.
    fn succeeded(&mut self) {
        self.work.errors = 0;
        *self.status.counters.error.lock() = None;
    }

    fn failed(&mut self, error: Error) -> Progress {
        let work = &mut self.work;
        (work.upload, work.claim) = (None, None);
        if error.kind() == ErrorKind::Conflict && error.what() == "object store of cold tables" {
            work.refused = Some(error.clone());
        }
        self.status.counters.failures.add(1);
        *self.status.counters.error.lock() = Some(error);
        let wait = WAIT_FIRST.saturating_mul(1 << work.errors.min(16)).min(WAIT_MAX);
        work.errors += 1;
        if work.refused.is_some() { Progress::Idle } else { Progress::IdleFor(wait) }
    }
}

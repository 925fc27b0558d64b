//! The part of a merge that concerns workers: offering it, giving an attempt up, and what its outcome must
//! say.

use std::ops::{Range, RangeInclusive};

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, Result, StoreId, TableId};
use compact::offload::{RemoteRun, Verify};
use compact::{Outcome, Run, Verification};

use super::inputs::open_inputs;
use super::{MergeJob, Stage};
use crate::TreeContext;
use crate::compaction::offloading::ATTEMPTS_MAX;
use crate::events::Event;

/// Ids of a job that are no outputs of tables: a value file, and the proof of a shared directory.
const OTHER_IDS: u64 = 2;

/// Why a merge that workers failed was put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Postponed {
    /// There is too little memory to run the merge in this process.
    ForMemory,
    /// The merge may run at workers only, and none takes it now.
    ForWorker,
}

impl MergeJob {
    /// Offers the job to a worker, or begins to run it here.
    pub(super) fn offer(&mut self) -> Result<Stage> {
        // Behind the ids of the outputs.
        let proof = self.job.values.ids.end;
        let offered = self.offloading.as_ref().filter(|_| self.attempts < ATTEMPTS_MAX);
        let offered = offered
            .and_then(|it| it.workers.offer(&self.job, &self.placed.0, &self.compact, proof));
        if let Some(remote) = offered {
            return Ok(Stage::Remote(remote));
        }
        if self.offloading.as_ref().is_some_and(|it| !it.workers.falls_back()) {
            self.postponed = Some(Postponed::ForWorker);
            return Err(
                Error::retry("merge that no worker took").expected("a worker, as configured")
            );
        }
        if !self.memory.change_to(self.local_bytes) {
            self.postponed = Some(Postponed::ForMemory);
            return Err(Error::retry("memory of a merge that no worker took"));
        }
        let mut run = Run::new(self.job.clone(), &self.compact)?;
        run.set_open_inputs(open_inputs(&self.inputs)?);
        Ok(Stage::Running(Box::new(run)))
    }

    /// Ends the attempt of a worker and prepares the next one, with other ids: a worker that goes on
    /// unnoticed writes no file of it.
    pub(super) fn give_up(
        &mut self,
        env: &TreeContext,
        mut remote: Box<dyn RemoteRun>,
        error: Error,
    ) -> Result<Stage> {
        remote.judged(Err(&error));
        self.abandon(env, remote);
        self.attempts += 1;
        let keyspace = self.tree.name().to_owned();
        env.events.tell(|| Event::OffloadFailed { keyspace, error });
        let tables = self.job.output.ids.end.0.saturating_sub(self.job.output.ids.start.0);
        (self.job.output.ids, self.job.values.ids) = reserve_ids(env, tables)?;
        self.job.epoch = self.job.epoch.saturating_add(1);
        Ok(Stage::Planned(None))
    }

    /// Cancels the attempt of a worker, and removes what it wrote, now and later.
    pub(super) fn abandon(&self, env: &TreeContext, remote: Box<dyn RemoteRun>) {
        // Before the files are removed: it writes none through this process any more.
        drop(remote);
        self.discard(env);
        if let Some(offloading) = &self.offloading {
            offloading.count_fallback();
            offloading.abandon(self.job.output.ids.start..TableId(self.job.values.ids.end.0 + 1));
        }
    }

    /// Whether the job waits for a worker.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Remote(_) | Stage::VerifiedElsewhere(..))
    }

    /// Begins to verify the outcome of a worker: at another worker, if so configured and one is ready, or
    /// here.
    pub(super) fn begin_verification(
        &mut self,
        env: &TreeContext,
        remote: Box<dyn RemoteRun>,
        outcome: Outcome,
    ) -> Result<Stage> {
        let verifies = self.offloading.as_ref().map(|it| it.workers.verifies());
        // Its numbers are checked before anyone reads pages.
        let pages = match verifies {
            Some(Verify::Sampled) => Verify::Sampled,
            Some(Verify::Full | Verify::Elsewhere) | None => Verify::Full,
        };
        let started = match self.verification(env, &outcome, Some(pages)) {
            Ok(started) => started,
            Err(error) => return self.give_up(env, remote, error),
        };
        let proof = self.job.values.ids.end;
        let verifier =
            self.offloading.as_ref().filter(|_| verifies == Some(Verify::Elsewhere)).and_then(
                |it| it.workers.verify(&self.job, &outcome, &self.compact, proof, &remote.worker()),
            );
        Ok(match verifier {
            Some(verifier) => Stage::VerifiedElsewhere(remote, verifier, outcome),
            None => Stage::Verifying(Box::new(started), outcome, Some(remote)),
        })
    }

    /// Goes on after another worker verified `outcome`: with a sample, or with every page if that worker was
    /// lost. Damage that it found is the fault of the worker that wrote.
    pub(super) fn end_verification_elsewhere(
        &mut self,
        env: &TreeContext,
        (remote, mut verifier): (Box<dyn RemoteRun>, Box<dyn RemoteRun>),
        outcome: Outcome,
        ended: Result<()>,
    ) -> Result<Stage> {
        let pages = match ended {
            Ok(()) => {
                verifier.judged(Ok(()));
                Verify::Sampled
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                verifier.judged(Ok(()));
                drop(verifier);
                return self.give_up(env, remote, error);
            }
            Err(error) => {
                verifier.judged(Err(&error));
                Verify::Full
            }
        };
        drop(verifier);
        match self.verification(env, &outcome, Some(pages)) {
            Ok(started) => Ok(Stage::Verifying(Box::new(started), outcome, Some(remote))),
            Err(error) => self.give_up(env, remote, error),
        }
    }

    /// Prepares to verify `outcome`: of the outputs of a worker as many pages as `remote` says, of those of
    /// this process all.
    pub(super) fn verification(
        &mut self,
        env: &TreeContext,
        outcome: &Outcome,
        remote: Option<Verify>,
    ) -> Result<Verification> {
        outcome.expect(&self.job)?;
        outcome.expect_read(self.versions()?)?;
        if remote.is_some() {
            outcome.expect_conserved(self.entry_sum()?)?;
        }
        let (job, compact) = (&self.job, &self.compact);
        let verification = Verification::new(job, outcome.clone(), compact, env.output_accounts())?;
        let pages = outcome.tables.iter().map(|table| u64::from(table.pages)).sum::<u64>();
        let values = outcome.values.map_or(0, |values| values.file_bytes / PAGE_BYTES as u64);
        self.warm_outputs.iter_mut().for_each(|it| it.begin(pages + values));
        let verification = match self.inputs.first() {
            Some((_, piece)) => verification.keys_are(piece.table()?.properties().key_form()),
            None => verification,
        };
        match remote {
            Some(Verify::Sampled) => Ok(verification.sampling(StoreId::random()?.0 as u64)),
            Some(Verify::Full | Verify::Elsewhere) | None => Ok(verification),
        }
    }

    /// The sum of the hashes of the inputs' entries; `None` if one is read in part or at another seqno, or
    /// was written without sums.
    fn entry_sum(&self) -> Result<Option<u64>> {
        let mut all = Some(0u64);
        for (_, piece) in &self.inputs {
            let table = piece.table()?;
            let properties = table.properties();
            let range = piece.range().intersection(&self.rectangle.range);
            let is_whole = range.covers(&piece.entry().range) && table.seqno().is_none();
            let is_known = is_whole && (properties.entry_sum != 0 || properties.entries == 0);
            all = all.filter(|_| is_known).map(|sum| sum.wrapping_add(properties.entry_sum));
        }
        Ok(all)
    }

    /// The number of versions in the inputs: the least and the most, because a table that is read in part
    /// does not tell.
    fn versions(&self) -> Result<RangeInclusive<u64>> {
        let (mut least, mut most) = (0, 0);
        for (_, piece) in &self.inputs {
            let entries = piece.table()?.properties().entries;
            let read = piece.range().intersection(&self.rectangle.range);
            least += if read.covers(&piece.entry().range) { entries } else { 0 };
            most += entries;
        }
        Ok(least..=most)
    }
}

/// Reserves ids for a job: those of `tables` output tables, and that of its value file. The one behind is
/// the proof of a shared directory.
///
/// # Errors
/// The manifest's.
pub(super) fn reserve_ids(
    env: &TreeContext,
    tables: u64,
) -> Result<(Range<TableId>, Range<TableId>)> {
    let ids = env.manifest.reserve_tables(tables + OTHER_IDS)?;
    let values = TableId(ids.end.0 - OTHER_IDS);
    base::invariant!(
        ids.start < values && values < ids.end,
        "the tables and the value file of a merge get different ids"
    );
    Ok((ids.start..values, values..TableId(values.0 + 1)))
}

//! Workers of a simulated store, and the wire to them.
//!
//! Jobs and outcomes cross the wire as messages, encoded and decoded. The wire loses, delays, repeats and
//! garbles outcomes, brings those of earlier attempts and of earlier lives of the store, and ends leases of
//! workers that go on. Workers refuse, die, and lie. A worker runs when the store asks for its outcome, or
//! when another attempt is asked for: so a worker that was given up works beside the next attempt.
//!
//! The store must answer as without workers; and each attempt that was spoilt must be counted as a fallback,
//! none else.

use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Account, Error, Result, Rng, TableId};
use compact::offload::{
    BlockEngine, Decision, JobShape, Offload, Placement, RemoteRun, Verify, WorkerStatistics,
};
use compact::{Env, Job, Outcome, Run};

/// Most workers that go on after their attempts were given up, and outcomes that are still on their way.
const LATE_MAX: usize = 8;

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Good,
    /// The outcome comes after a number of questions.
    Late(u64),
    /// The outcome comes, and once more for a later attempt.
    Repeated,
    Refused,
    /// The lease ends after some steps; the worker goes on.
    LeaseLost(u64),
    /// The worker dies after some steps.
    Dies(u64),
    /// The outcome is lost, and comes for a later attempt.
    OutcomeLost,
    /// The outcome of an earlier attempt comes first.
    Stale,
    /// A bit of the outcome is changed on the wire.
    Garbled,
    /// The worker's memory is bad, or it lies.
    Lies(u64),
}

impl Fate {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(20) {
            0 => Self::Refused,
            1 => Self::LeaseLost(rng.below(4)),
            2 => Self::Dies(rng.below(4)),
            3 => Self::OutcomeLost,
            4 => Self::Stale,
            5 => Self::Garbled,
            6 | 7 => Self::Lies(rng.below(6)),
            8 | 9 => Self::Late(rng.below(5)),
            10 => Self::Repeated,
            _ => Self::Good,
        }
    }
}

/// What the workers of a simulation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadSums {
    /// Attempts that were offered.
    pub attempts: u64,
    /// Outcomes that were installed.
    pub installed: u64,
    /// Attempts whose failure the store was told, or found.
    pub spoilt: u64,
    /// Lies that were refused.
    pub lies: u64,
    /// Outcomes of other attempts that were refused.
    pub stale: u64,
    /// Workers that went on after their attempts were given up.
    pub zombies: u64,
    /// Outcomes that another worker verified.
    pub verified: u64,
}

impl AddAssign for OffloadSums {
    fn add_assign(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.installed += other.installed;
        self.spoilt += other.spoilt;
        self.lies += other.lies;
        self.stale += other.stale;
        self.zombies += other.zombies;
        self.verified += other.verified;
    }
}

struct State {
    rng: Rng,
    /// Workers that go on although their attempts were given up.
    zombies: Vec<Run>,
    /// Outcomes that are on their way for too long.
    late: Vec<Vec<u8>>,
    sums: OffloadSums,
}

/// Workers of a simulated store. They outlive its processes.
pub(crate) struct SimWorkers(Arc<Mutex<State>>);

impl SimWorkers {
    pub(crate) fn new(seed: u64) -> Self {
        let (rng, sums) = (Rng::new(seed), OffloadSums::default());
        let state = State { rng, zombies: Vec::new(), late: Vec::new(), sums };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn sums(&self) -> OffloadSums {
        self.0.lock().unwrap().sums
    }

    /// Ends workers that write to a device of a process that ended. What they wrote, and outcomes on their
    /// way, remain.
    pub(crate) fn process_ended(&self) {
        self.0.lock().unwrap().zombies.clear();
    }
}

impl fmt::Debug for SimWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimWorkers")
    }
}

/// The environment of a worker: its own memory and dictionaries.
fn worker_env(job: &Job, env: &Env) -> Env {
    let account = Account::unlimited("worker");
    let medium = Arc::clone(&env.medium);
    let dictionaries = table::StoreDictionaries::new(medium, job.store, account.clone());
    Env {
        dictionaries: Arc::new(dictionaries),
        account: account.clone(),
        tables: account,
        engine: None,
        sums_entries: true,
        ..env.clone()
    }
}

impl Offload for SimWorkers {
    fn place(&self, _: &JobShape) -> Placement {
        match self.0.lock().unwrap().rng.one_in(5) {
            true => Placement::Local,
            false => Placement::Remote,
        }
    }

    fn ended(&self, _: &JobShape, _: Placement, _: Duration, _: bool) {}

    fn engine(&self) -> Option<Arc<dyn BlockEngine>> {
        None
    }

    fn falls_back(&self) -> bool {
        true
    }

    fn verifies(&self) -> Verify {
        [Verify::Full, Verify::Sampled, Verify::Elsewhere]
            [self.0.lock().unwrap().rng.below(3) as usize]
    }

    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }

    fn offer(&self, job: &Job, _: &JobShape, env: &Env, _: TableId) -> Option<Box<dyn RemoteRun>> {
        let mut state = self.0.lock().unwrap();
        if state.rng.one_in(10) {
            return None;
        }
        let fate = Fate::random(&mut state.rng);
        state.sums.attempts += 1;
        let decoded = Job::decode(&job.encode()).expect("a job crosses the wire");
        let run = Run::new(decoded, &worker_env(job, env));
        let state = Arc::clone(&self.0);
        Some(Box::new(SimRun { state, run: Some(run), fate, asked: 0, message: None, job: job.id }))
    }

    fn verify(
        &self,
        job: &Job,
        outcome: &Outcome,
        env: &Env,
        _: TableId,
        _: &str,
    ) -> Option<Box<dyn RemoteRun>> {
        let mut state = self.0.lock().unwrap();
        if state.rng.one_in(5) {
            return None;
        }
        let is_lost = state.rng.one_in(5);
        let (job, outcome, env) = (job.clone(), outcome.clone(), worker_env(job, env));
        let state = Arc::clone(&self.0);
        Some(Box::new(SimVerification { state, work: Some((job, outcome, env)), is_lost }))
    }

    fn statistics(&self) -> Vec<WorkerStatistics> {
        Vec::new()
    }
}

fn lost() -> Error {
    Error::retry("lease").got("silence of the worker")
}

/// An attempt at a simulated worker.
struct SimRun {
    state: Arc<Mutex<State>>,
    run: Option<Result<Run>>,
    fate: Fate,
    /// How often the store asked.
    asked: u64,
    /// The outcome, on its way.
    message: Option<Vec<u8>>,
    job: u64,
}

impl SimRun {
    /// Does some steps. The error of the worker, which it sends.
    fn work(&mut self, steps: u64) -> Result<()> {
        for _ in 0..steps {
            match self.run.take() {
                None => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok(mut run)) => match run.step()? {
                    None => self.run = Some(Ok(run)),
                    Some(outcome) => self.message = Some(lie(outcome, self.fate).encode()),
                },
            }
        }
        Ok(())
    }

    /// The answer to a question of the store, as it leaves the wire.
    fn answer(&mut self) -> Result<Option<Vec<u8>>> {
        self.asked += 1;
        match self.fate {
            Fate::Refused => return Err(Error::retry("job").got("a refusal")),
            Fate::LeaseLost(after) | Fate::Dies(after) if self.asked > after => {
                let run = self.run.take().and_then(Result::ok);
                let mut state = self.state.lock().unwrap();
                if let (Fate::LeaseLost(_), Some(run)) = (self.fate, run)
                    && state.zombies.len() < LATE_MAX
                {
                    state.sums.zombies += 1;
                    state.zombies.push(run);
                }
                return Err(lost());
            }
            Fate::Stale => {
                let stale = self.state.lock().unwrap().late.pop();
                if let Some(stale) = stale {
                    return Ok(Some(stale));
                }
            }
            _ => {}
        }
        let steps = 1 + self.state.lock().unwrap().rng.below(3);
        self.work(steps)?;
        let Some(mut message) = self.message.take() else { return Ok(None) };
        let mut state = self.state.lock().unwrap();
        match self.fate {
            Fate::Late(questions) if self.asked <= questions => self.message = Some(message),
            Fate::OutcomeLost => {
                keep(&mut state.late, message);
                return Err(lost());
            }
            Fate::Repeated => {
                keep(&mut state.late, message.clone());
                return Ok(Some(message));
            }
            Fate::Garbled => {
                let at = state.rng.below(message.len() as u64) as usize;
                message[at] ^= 1 << state.rng.below(8);
                return Ok(Some(message));
            }
            _ => return Ok(Some(message)),
        }
        Ok(None)
    }
}

fn keep(late: &mut Vec<Vec<u8>>, message: Vec<u8>) {
    if late.len() < LATE_MAX {
        late.push(message);
    }
}

/// The outcome of a worker that lies in way `fate`.
fn lie(mut outcome: Outcome, fate: Fate) -> Outcome {
    let Fate::Lies(way) = fate else { return outcome };
    let sums = outcome.sums.get_or_insert_default();
    match way {
        // An entry was changed after it was decoded.
        0 => sums.dropped = sums.dropped.wrapping_add(1),
        // One was changed before.
        1 => {
            sums.read = sums.read.wrapping_add(1);
            sums.dropped = sums.dropped.wrapping_add(1);
        }
        2 => outcome.sums = None,
        3 => {
            outcome.counts.read += 1;
            outcome.counts.superseded += 1;
        }
        4 => outcome.counts.kept += 1,
        _ => outcome.epoch += 1,
    }
    outcome
}

impl RemoteRun for SimRun {
    fn poll(&mut self) -> Result<Option<Outcome>> {
        let mut state = self.state.lock().unwrap();
        let ended = |run: &mut Run| !matches!(run.step(), Ok(None));
        // The outcome of a worker that was given up comes too late, and its files stay.
        let State { zombies, .. } = &mut *state;
        zombies.extract_if(.., ended).for_each(drop);
        drop(state);
        let Some(message) = self.answer()? else { return Ok(None) };
        Outcome::decode(&message).map(Some)
    }

    fn worker(&self) -> String {
        format!("job {}", self.job)
    }

    fn judged(&mut self, verdict: Result<(), &Error>) {
        let sums = &mut self.state.lock().unwrap().sums;
        match (verdict, self.fate) {
            (Ok(()), Fate::Lies(1)) => {
                // The store knows the sum of the inputs only if it reads them whole.
                sums.installed += 1;
            }
            (Ok(()), Fate::Lies(3)) => sums.installed += 1,
            (Ok(()), Fate::Lies(_) | Fate::Garbled | Fate::Refused | Fate::OutcomeLost) => {
                panic!("an attempt with fate {:?} was installed", self.fate);
            }
            (Ok(()), _) => sums.installed += 1,
            (Err(_), fate) => {
                sums.spoilt += 1;
                sums.lies += u64::from(matches!(fate, Fate::Lies(_)));
                sums.stale += u64::from(fate == Fate::Stale);
            }
        }
    }
}

impl fmt::Debug for SimRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRun({:?}, asked {} times)", self.fate, self.asked)
    }
}

/// A verification at a simulated worker.
struct SimVerification {
    state: Arc<Mutex<State>>,
    work: Option<(Job, Outcome, Env)>,
    is_lost: bool,
}

impl RemoteRun for SimVerification {
    fn poll(&mut self) -> Result<Option<Outcome>> {
        let Some((job, outcome, env)) = self.work.take() else { return Ok(None) };
        if self.is_lost {
            return Err(lost());
        }
        let tables = compact::verify(&job, outcome.clone(), &env, &env.tables)?;
        for table in tables {
            let report = table.check(&env.account, &mut |_, _| {})?;
            // A read that the medium failed says nothing of the output.
            let mut listed = report.listed.iter();
            if let Some(damage) = listed.find(|it| std::error::Error::source(&it.error).is_some()) {
                return Err(damage.error.clone());
            }
            assert!(report.is_clean(), "outputs of a worker: {report:?}");
        }
        self.state.lock().unwrap().sums.verified += 1;
        Ok(Some(outcome))
    }

    fn worker(&self) -> String {
        "verifier".to_owned()
    }

    fn judged(&mut self, _: Result<(), &Error>) {}
}

impl fmt::Debug for SimVerification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimVerification")
    }
}

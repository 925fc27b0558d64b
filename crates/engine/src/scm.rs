//! The tier of storage-class memory below DRAM: how it is set, opened, kept going and told of.
//!
//! A store never needs it: where it cannot be opened, or fails later, everything is read from flash, and
//! statistics say why.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Account, Clock, Error, Executor, Progress, Result, StoreId, Task};
use cache::{PageCache, Placement, Prior, RowCache, SCM_MAGIC, ScmOptions, ScmStatistics, ScmTier};
use media::scm::{Facts, ScmLocation};
use media::{Calibration, FoundCalibration};
use parking_lot::Mutex;

/// A second cache tier on storage-class memory, for [`crate::ResourcesBuilder::scm`].
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().to_str().unwrap();
/// use terracedb::Scm;
///
/// let scm = Scm::new(path, 64 << 20)?.write_budget(16 << 20);
/// let db = terracedb::Db::builder(dir.path().join("store")).memory(64 << 20).scm(scm).open()?;
/// assert_eq!(db.statistics().scm.unwrap().failure, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Scm {
    source: Source,
    placement: Placement,
    write_budget: Option<u64>,
}

impl Scm {
    /// On `size` bytes of `path`: a directory or file, a DAX or block device, `numa:N`, or
    /// `emulated:PROFILE` (docs/media.md). A file that holds something else is not taken; a block device
    /// is overwritten.
    ///
    /// # Errors
    /// `Invalid` where `path` is none of these.
    pub fn new(path: &str, size: u64) -> Result<Self> {
        let (placement, write_budget) = Default::default();
        Ok(Self { source: Source::At(path.parse()?, size), placement, write_budget })
    }

    /// On what was `opened` already, for the first that uses it, where `id` is drawn for a place that is
    /// taken over: for simulations, in which nothing but their seed decides.
    #[doc(hidden)]
    #[must_use]
    pub fn given(id: u64, opened: Result<media::scm::Scm>) -> Self {
        let (placement, write_budget) = Default::default();
        let opened = Arc::new(Mutex::new(Some(opened)));
        Self { source: Source::Given(id, opened), placement, write_budget }
    }

    /// Where pages go; [`Placement::Adaptive`] by default.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The most that is written to it, bytes a second over any minute; no limit by default. A device
    /// wears out by what is written.
    #[must_use]
    pub fn write_budget(mut self, bytes_per_second: u64) -> Self {
        self.write_budget = Some(bytes_per_second);
        self
    }

    fn open(
        &self,
        account: &Account,
        clock: &Arc<dyn Clock>,
    ) -> Result<(ScmTier, Option<ScmCalibration>)> {
        let (placement, write_budget) = (self.placement, self.write_budget);
        let (id, opened, known) = match &self.source {
            Source::At(place, size) => {
                let opened = media::scm::Scm::open(place, *size, &SCM_MAGIC)?;
                let known = calibrated(place, opened.facts(), clock.unix_millis());
                (StoreId::random()?.0 as u64, opened, known)
            }
            Source::Given(id, opened) => {
                let opened = opened.lock().take();
                let opened = opened.unwrap_or_else(|| Err(Error::closed("place of an SCM tier")));
                (*id, opened?, None)
            }
        };
        let (prior, known) = known.unzip();
        let options = ScmOptions {
            placement,
            write_budget,
            id,
            prior: prior.flatten(),
            ..ScmOptions::default()
        };
        Ok((ScmTier::open(opened, options, account, clock)?, known))
    }
}

/// What is kept with `place` of its device, and what that says of it; none where nothing is kept. A
/// calibration that cannot be used costs nothing: what its device is like is found out by using it.
fn calibrated(
    place: &ScmLocation,
    facts: &Facts,
    now: u64,
) -> Option<(Option<Prior>, ScmCalibration)> {
    let FoundCalibration { file, calibration } = Calibration::find(place)?;
    let measured = calibration.as_ref().map_or(0, |found| found.measured_unix_ms);
    let usable = calibration
        .and_then(|found| found.holds_for(place, facts, now).map(|()| found))
        .map(|found| Prior::calibrated(facts, &found));
    let ignored = usable.as_ref().err().map(Error::to_string);
    let told =
        ScmCalibration { file: file.display().to_string(), measured_unix_ms: measured, ignored };
    Some((usable.ok(), told))
}

/// A calibration that lies with the tier (`terrace calibrate`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScmCalibration {
    /// Its file.
    pub file: String,
    /// When the device was measured, Unix milliseconds; 0 where it cannot be read.
    pub measured_unix_ms: u64,
    /// Why it is not used, where it is not: it cannot be read, is old, or of another device.
    pub ignored: Option<String>,
}

/// Where a tier comes from.
#[derive(Clone, Debug)]
enum Source {
    /// A place, and how many bytes of it.
    At(ScmLocation, u64),
    /// What was opened, and a number for a place that is taken over.
    Given(u64, Arc<Mutex<Option<Result<media::scm::Scm>>>>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(place, _) => place.fmt(f),
            Self::Given(..) => f.write_str("given"),
        }
    }
}

/// What `terracedb::Statistics` tells of the tier below DRAM.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScmStatus {
    /// Where it lies.
    pub place: String,
    /// How that is reached, and the profile of an emulated one.
    pub backend: &'static str,
    /// See `backend`.
    pub emulated: Option<&'static str>,
    /// Processor time burnt in emulated waiting, seconds.
    pub wait_cpu_seconds: f64,
    /// Loads and stores reach it: pages are used where they lie.
    pub byte_addressable: bool,
    /// What its content outlives: the process, the machine's next start, a power cut.
    pub persistence: &'static str,
    /// The policy in force.
    pub placement: &'static str,
    /// Why it could not be opened, or is off: everything is read from flash then.
    pub failure: Option<String>,
    /// It is slower than flash: reads go past it, but for a few that tell when it is no longer.
    pub slow: bool,
    /// What lies with it of its device's measured constants; none where nothing does.
    pub calibration: Option<ScmCalibration>,
    /// What a page was taken to cost before anything was measured: read, and written, nanoseconds. What it
    /// costs lately stands among the counts.
    pub prior_read_nanos: u32,
    /// See `prior_read_nanos`.
    pub prior_write_nanos: u32,
    /// Writes in flight at its device, at most; in memory there is one.
    pub writes_in_flight: u32,
    /// What it did.
    pub counts: ScmStatistics,
}

/// The tier, as a process's stores share it.
pub(crate) struct ScmCache {
    scm: Scm,
    opened: Result<Arc<ScmTier>>,
    calibration: Option<ScmCalibration>,
    /// Where it is kept going.
    _lane: Arc<dyn Executor>,
}

impl ScmCache {
    /// Opens the tier below `cache` and `rows` and keeps it going on `executor`.
    pub(crate) fn start(
        scm: Scm,
        account: &Account,
        (cache, rows): (&Arc<PageCache>, &Arc<RowCache>),
        executor: Arc<dyn Executor>,
    ) -> Self {
        let opened = scm.open(account, executor.clock());
        let (opened, calibration) = match opened {
            Ok((tier, calibration)) => (Ok(Arc::new(tier)), calibration),
            Err(error) => (Err(error), None),
        };
        if let Ok(tier) = &opened {
            cache.set_lower_tier(tier);
            rows.set_lower_tier(tier);
            let (tier, cache) = (Arc::downgrade(tier), Arc::downgrade(cache));
            let task = ScmTask { tier: Weak::clone(&tier), cache, rows: Arc::downgrade(rows) };
            let handle = executor.spawn("SCM tier", Box::new(task));
            if let Some(tier) = tier.upgrade() {
                tier.on_work(Box::new(move || handle.wake()));
            }
        }
        Self { scm, opened, calibration, _lane: executor }
    }

    pub(crate) fn status(&self) -> ScmStatus {
        let tier = self.opened.as_ref().ok();
        let facts = tier.map(|tier| tier.facts());
        let prior = tier.map(|tier| tier.prior());
        let failure = match &self.opened {
            Ok(tier) => tier.failure(),
            Err(error) => Some(error.clone()),
        };
        ScmStatus {
            place: self.scm.source.to_string(),
            backend: facts.map_or("none", |facts| facts.backend),
            emulated: facts.and_then(|facts| facts.emulated),
            wait_cpu_seconds: tier
                .and_then(|tier| tier.emulation())
                .map_or(0.0, |emulation| emulation.wait_cpu_seconds),
            byte_addressable: facts.is_some_and(|facts| facts.byte_addressable),
            persistence: facts.map_or("none", |facts| facts.persistence.name()),
            placement: self.scm.placement.name(),
            failure: failure.map(|error| error.to_string()),
            slow: tier.is_some_and(|tier| tier.is_slow()),
            calibration: self.calibration.clone(),
            prior_read_nanos: prior.map_or(0, |prior| prior.read_nanos),
            prior_write_nanos: prior.map_or(0, |prior| prior.write_nanos),
            writes_in_flight: prior.map_or(0, |prior| prior.writes as u32),
            counts: tier.map(|tier| tier.statistics()).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for ScmCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScmCache({:?})", self.opened)
    }
}

/// Writes, copies and forgets pages and rows of the tier; woken as some wait. It ends with the tier.
struct ScmTask {
    tier: Weak<ScmTier>,
    cache: Weak<PageCache>,
    rows: Weak<RowCache>,
}

/// How long a few pages or rows wait, at most.
const INTERVAL: Duration = Duration::from_millis(20);

impl Task for ScmTask {
    fn step(&mut self) -> Progress {
        let (Some(tier), Some(cache)) = (self.tier.upgrade(), self.cache.upgrade()) else {
            return Progress::Done;
        };
        let rows_wait = self.rows.upgrade().is_some_and(|rows| rows.demote_rows());
        match tier.step(&cache) || rows_wait {
            true => Progress::Again,
            false => Progress::IdleFor(INTERVAL),
        }
    }
}

//! The SCM tier of a process's stores: its configuration, its task, and its statistics.
//!
//! No store depends on it: if it cannot be opened or fails later, everything is read from flash, and
//! statistics report the failure.

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
/// use terracedb::scm::Scm;
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
    /// A tier of `size` bytes on `path`: a directory or file, a DAX or block device, `numa:N`, or
    /// `emulated:PROFILE` (docs/scm-tier.md). A file with other content is refused; a block device is
    /// overwritten.
    ///
    /// # Errors
    /// `Invalid` if `path` is none of these.
    pub fn new(path: &str, size: u64) -> Result<Self> {
        let (placement, write_budget) = Default::default();
        Ok(Self {
            source: Source::Location { location: path.parse()?, bytes: size },
            placement,
            write_budget,
        })
    }

    /// A tier on an already `opened` device, for the first resources that use it. `id` is the tier's id
    /// if the device holds no tier yet. For simulations: there the seed must decide everything.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn given(id: u64, opened: Result<media::scm::Scm>) -> Self {
        let (placement, write_budget) = Default::default();
        let opened = Arc::new(Mutex::new(Some(opened)));
        Self { source: Source::Opened { id, opened }, placement, write_budget }
    }

    /// Sets the placement policy; [`Placement::Adaptive`] by default.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the write budget, bytes per second over any minute; no limit by default. Writes wear a device
    /// out.
    #[must_use]
    pub fn write_budget(mut self, bytes_per_second: u64) -> Self {
        self.write_budget = Some(bytes_per_second);
        self
    }

    /// Opens the tier, with the calibration of its device if there is one.
    fn open(
        &self,
        account: &Account,
        clock: &Arc<dyn Clock>,
    ) -> Result<(ScmTier, Option<ScmCalibration>)> {
        let (placement, write_budget) = (self.placement, self.write_budget);
        let (id, opened, known) = match &self.source {
            Source::Location { location, bytes } => {
                let opened = media::scm::Scm::open(location, *bytes, &SCM_MAGIC)?;
                let known = find_calibration(location, opened.facts(), clock.unix_millis());
                (StoreId::random()?.0 as u64, opened, known)
            }
            Source::Opened { id, opened } => {
                let opened = opened.lock().take();
                let opened = opened.unwrap_or_else(|| Err(Error::closed("device of an SCM tier")));
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

/// The calibration stored beside the tier at `location`, and the latencies that the tier starts with. `None`
/// if there is no calibration. One that cannot be used is no error: the tier measures its device in use.
fn find_calibration(
    location: &ScmLocation,
    facts: &Facts,
    now: u64,
) -> Option<(Option<Prior>, ScmCalibration)> {
    let FoundCalibration { file, calibration } = Calibration::find(location)?;
    let measured = calibration.as_ref().map_or(0, |found| found.measured_unix_ms);
    let usable = calibration
        .and_then(|found| found.holds_for(location, facts, now).map(|()| found))
        .map(|found| Prior::calibrated(facts, &found));
    let ignored = usable.as_ref().err().map(Error::to_string);
    let report =
        ScmCalibration { file: file.display().to_string(), measured_unix_ms: measured, ignored };
    Some((usable.ok(), report))
}

/// A calibration of the tier's device (`terrace calibrate`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScmCalibration {
    /// The calibration's file.
    pub file: String,
    /// When the device was measured, Unix milliseconds. 0 if the file cannot be read.
    pub measured_unix_ms: u64,
    /// Why the calibration is not used: it cannot be read, is old, or is of another device. `None` if it is
    /// used.
    pub ignored: Option<String>,
}

/// The device of a tier.
#[derive(Clone, Debug)]
enum Source {
    /// A location, and the size of the tier there.
    Location { location: ScmLocation, bytes: u64 },
    /// An already opened device, until its first use, and the id of a new tier on it.
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "only the hooks of tests open a device themselves")
    )]
    Opened { id: u64, opened: Arc<Mutex<Option<Result<media::scm::Scm>>>> },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Location { location, .. } => location.fmt(f),
            Self::Opened { .. } => f.write_str("given"),
        }
    }
}

/// State and counters of the SCM tier, in `terracedb::stats::Statistics`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScmStatus {
    /// Location of the tier.
    pub place: String,
    /// How the device is accessed. `none` if the tier is not open.
    pub backend: &'static str,
    /// The profile of an emulated device.
    pub emulated: Option<&'static str>,
    /// Processor time burnt in emulated waiting, seconds.
    pub wait_cpu_seconds: f64,
    /// Loads and stores reach it: pages are used where they lie.
    pub byte_addressable: bool,
    /// The event that its content outlives: the process, the machine's next start, a power cut.
    pub persistence: &'static str,
    /// The policy in force.
    pub placement: &'static str,
    /// Why the tier could not be opened or is off. Everything is read from flash then.
    pub failure: Option<String>,
    /// The tier is slower than flash: reads bypass it, except a few that measure it.
    pub slow: bool,
    /// The stored calibration of the tier's device, if there is one.
    pub calibration: Option<ScmCalibration>,
    /// Assumed time of a page read before the first measurement, nanoseconds. `counts` has the recent times.
    pub prior_read_nanos: u32,
    /// Assumed time of a page write before the first measurement, nanoseconds.
    pub prior_write_nanos: u32,
    /// Most writes in flight at the device; 1 for memory.
    pub writes_in_flight: u32,
    /// Counters of the tier.
    pub counts: ScmStatistics,
}

/// The tier that a process's stores share.
pub(crate) struct ScmCache {
    scm: Scm,
    opened: Result<Arc<ScmTier>>,
    calibration: Option<ScmCalibration>,
    /// Runs the tier's task.
    _executor: Arc<dyn Executor>,
}

impl ScmCache {
    /// Opens the tier under `cache` and `rows`, and starts its task on `executor`.
    pub(crate) fn start(
        scm: Scm,
        account: &Account,
        cache: &Arc<PageCache>,
        rows: &Arc<RowCache>,
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
        Self { scm, opened, calibration, _executor: executor }
    }

    /// The tier's state and counters.
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

/// Demotes, promotes and removes pages and rows of the tier. Woken when some wait; ends with the tier.
struct ScmTask {
    tier: Weak<ScmTier>,
    cache: Weak<PageCache>,
    rows: Weak<RowCache>,
}

/// The longest time that a few pages or rows wait to be demoted; the tier wakes the task for many.
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

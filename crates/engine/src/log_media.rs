//! The devices of a log on storage-class memory: which they are, and how a store finds and checks them.
//!
//! The manifest records the id and the last place of each device. A store is opened with the recorded places,
//! or with others that the caller names; each device must state its id, so that a device that is missing,
//! empty or another store's is refused by name before anything is written. All devices have one durability,
//! because a write is acknowledged only once earlier ones in all lanes are durable.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, Result, StoreId};
use media::scm::{ScmDirectory, ScmLocation};
use media::{Calibration, Joined, Medium, MemoryMedium};
use wal::{DeviceHeader, LogDevice, LogPlace, OpenDevices};

/// Lanes of a device of persistent memory that was not calibrated: two writers fill an Optane module.
const LANES_OF_DAX: u16 = 2;

/// The most lanes of other memory that was not calibrated.
const LANES_MAX_UNMEASURED: u16 = 8;

/// The devices that a store's log is opened with.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The places of the devices; none: those that the store recorded, or its directory for a new store.
    pub places: Vec<String>,
    /// The number of lanes of each device of a new log; by default as many as its calibration says.
    pub lanes: Option<u16>,
    /// Opens the places.
    pub devices: Arc<dyn OpenDevices>,
    /// Replaces devices that cannot be opened by empty memory, for a repair.
    pub replace_missing: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::at(Vec::new())
    }
}

/// Opens directories on storage-class memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScmDevices;

impl OpenDevices for ScmDevices {
    fn open(&self, place: &str, create: bool) -> Result<Arc<dyn Medium>> {
        Ok(Arc::new(ScmDirectory::open(&place.parse()?, create)?))
    }

    fn absolute(&self, place: &str) -> Result<String> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Error::io("find the directory", path.display(), error))
        };
        let place = match place.parse()? {
            ScmLocation::Path(path) => ScmLocation::Path(absolute(path)?),
            ScmLocation::Emulated(profile, Some(path)) => {
                ScmLocation::Emulated(profile, Some(absolute(path)?))
            }
            other => other,
        };
        Ok(place.to_string())
    }
}

/// The open devices of a log, in the order of the manifest.
pub struct OpenLog {
    /// The devices with their present places.
    pub place: LogPlace,
    /// Their files.
    pub media: Vec<Arc<dyn Medium>>,
    /// The devices that were replaced by empty memory, each with the reason.
    pub missing: Vec<(LogDevice, Error)>,
    /// Their locks.
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl OpenLog {
    fn new(lanes_each: u16) -> Self {
        let place = LogPlace { devices: Vec::new(), lanes_each };
        Self { place, media: Vec::new(), missing: Vec::new(), guards: Vec::new() }
    }

    fn add(&mut self, device: LogDevice, medium: Arc<dyn Medium>) -> Result<()> {
        self.guards.push(medium.lock().map_err(|error| error.at(&device.place))?);
        self.place.devices.push(device);
        self.media.push(medium);
        Ok(())
    }

    /// Attaches the devices to `joined`, and removes files of the first medium that have names of theirs: a
    /// log that moved away from it left them. Returns the locks.
    ///
    /// # Errors
    /// Those of the first medium.
    pub fn attach(self, joined: &Joined) -> Result<Vec<Box<dyn Any + Send + Sync>>> {
        joined.attach(self.media)?;
        // A file that cannot be removed stays hidden, so that its only cost is space.
        joined.hidden()?.iter().for_each(|name| drop(joined.remove_hidden(name)));
        Ok(self.guards)
    }
}

impl fmt::Debug for OpenLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLog")
            .field("place", &self.place)
            .field("missing", &self.missing)
            .finish()
    }
}

/// Makes the places of `config` devices of the log of `store`, durably. Without places: a log in the store's
/// directory.
///
/// # Errors
/// `Invalid` for a place that is missing, in use, of another store, or of another durability; those of the
/// device.
pub fn prepare_log(config: &LogConfig, store: StoreId) -> Result<OpenLog> {
    config.prepare(store)
}

/// Opens the devices that the manifest of `store` records.
///
/// # Errors
/// `Invalid` for a device that is missing or not the recorded one, and for places of a store whose log is in
/// its directory; those of the device.
pub fn open_log(config: &LogConfig, store: StoreId, recorded: &LogPlace) -> Result<OpenLog> {
    config.open(store, recorded)
}

/// A place that the caller named: its absolute name, its files, and its header, if it has one.
type Given = (String, Arc<dyn Medium>, Option<DeviceHeader>);

impl LogConfig {
    /// A log on devices at `places`; none: as [`LogConfig::places`] says.
    #[must_use]
    pub fn at(places: Vec<String>) -> Self {
        Self { places, lanes: None, devices: Arc::new(ScmDevices), replace_missing: false }
    }

    /// As [`prepare_log`].
    ///
    /// # Errors
    /// As [`prepare_log`].
    pub(crate) fn prepare(&self, store: StoreId) -> Result<OpenLog> {
        let mut log = OpenLog::new(0);
        for place in &self.places {
            let named = |error: Error| error.at(format_args!("log.path `{place}`"));
            let medium = self.devices.open(place, true).map_err(named)?;
            let place = self.devices.absolute(place).map_err(named)?;
            log.add(LogDevice { id: StoreId::random()?.0, place }, medium).map_err(named)?;
        }
        self.check_durability(&log)?;
        let lanes =
            self.places.iter().zip(&log.media).map(|(place, medium)| lanes_of(place, &**medium));
        let lanes = self.lanes.or_else(|| lanes.min()).filter(|_| !self.places.is_empty());
        log.place.lanes_each = lanes.unwrap_or(0);
        log.place.check()?;
        for (device, medium) in log.place.devices.iter().zip(&log.media) {
            let header = DeviceHeader { store, device: device.id };
            header
                .install(&**medium)
                .map_err(|error| error.at(format_args!("log.path `{}`", device.place)))?;
        }
        Ok(log)
    }

    /// As [`open_log`].
    ///
    /// # Errors
    /// As [`open_log`].
    pub(crate) fn open(&self, store: StoreId, recorded: &LogPlace) -> Result<OpenLog> {
        if !recorded.is_on_devices() && !self.places.is_empty() {
            return Err(Error::invalid("log.path")
                .expected("no path: the log of this store is in its directory; `terrace log move` moves it")
                .got(format_args!("`{}`", self.places.join("`, `"))));
        }
        let mut given = self.given(store)?;
        let mut log = OpenLog::new(recorded.lanes_each);
        for device in &recorded.devices {
            match self.find(store, device, &mut given) {
                Ok((place, medium)) => log.add(LogDevice { place, ..device.clone() }, medium)?,
                Err(error) if self.replace_missing => {
                    log.add(device.clone(), Arc::new(MemoryMedium::new()))?;
                    log.missing.push((device.clone(), error));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some((place, ..)) = given.first().filter(|_| !self.replace_missing) {
            return Err(Error::invalid("log.path")
                .at(format_args!("`{place}`"))
                .expected(format_args!("the {} devices of the store's log", recorded.devices.len()))
                .got("one more"));
        }
        if !self.replace_missing {
            self.check_durability(&log)?;
        }
        Ok(log)
    }

    /// The devices at the places that the caller named, each with its header.
    fn given(&self, store: StoreId) -> Result<Vec<Given>> {
        let mut given = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let named = |error: Error| error.at(format_args!("log.path `{place}`"));
            let medium = match self.devices.open(place, false) {
                Ok(medium) => medium,
                Err(_) if self.replace_missing => continue,
                Err(error) => return Err(named(error)),
            };
            let header =
                DeviceHeader::find(&*medium).or_else(|error| match self.replace_missing {
                    true => Ok(None),
                    false => Err(named(error)),
                })?;
            if let Some(header) = header.filter(|header| header.store != store)
                && !self.replace_missing
            {
                return Err(named(
                    Error::invalid("device of the log")
                        .expected(format_args!("one of store {store}"))
                        .got(format_args!("one of another store, {}", header.store)),
                ));
            }
            given.push((self.devices.absolute(place).map_err(named)?, medium, header));
        }
        Ok(given)
    }

    /// The recorded device `device`: among the `given` ones, or at its recorded place if none are given.
    fn find(
        &self,
        store: StoreId,
        device: &LogDevice,
        given: &mut Vec<Given>,
    ) -> Result<(String, Arc<dyn Medium>)> {
        let header = DeviceHeader { store, device: device.id };
        let place = format!("log device last at `{}`", device.place);
        if self.places.is_empty() {
            let medium =
                self.devices.open(&device.place, false).map_err(|error| error.at(&place))?;
            header.check(&*medium).map_err(|error| error.at(&place))?;
            return Ok((device.place.clone(), medium));
        }
        match given.iter().position(|(.., found)| *found == Some(header)) {
            Some(at) => {
                let (place, medium, _) = given.swap_remove(at);
                Ok((place, medium))
            }
            None => Err(Error::invalid("device of the log")
                .at(&place)
                .expected(format_args!("device {:032x} at a place of log.path", device.id))
                .got(format_args!("`{}`", self.places.join("`, `")))),
        }
    }

    /// Refuses devices of different durability.
    fn check_durability(&self, log: &OpenLog) -> Result<()> {
        let survives = |medium: &Arc<dyn Medium>| medium.capabilities().persistent;
        let Some(first) = log.media.first() else { return Ok(()) };
        let other = log.media.iter().position(|medium| survives(medium) != survives(first));
        let Some(device) = other.and_then(|at| log.place.devices.get(at)) else { return Ok(()) };
        Err(Error::invalid("log.path")
            .at(format_args!("`{}`", device.place))
            .expected("devices that all survive a power cut, or none"))
    }
}

/// The number of lanes that keep the device at `place` busy.
fn lanes_of(place: &str, medium: &dyn Medium) -> u16 {
    let calibration = place.parse::<ScmLocation>().ok().and_then(|place| Calibration::find(&place));
    if let Some(calibration) = calibration.and_then(|found| found.calibration.ok()) {
        let lanes = u16::try_from(calibration.log_lanes()).unwrap_or(u16::MAX);
        return lanes.clamp(1, wal::DEVICE_LANES_MAX);
    }
    if medium.capabilities().persistent {
        return LANES_OF_DAX;
    }
    // More lanes than threads that run at once gain nothing.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u16::try_from(cores).unwrap_or(u16::MAX).clamp(2, LANES_MAX_UNMEASURED)
}

/// The files of the closed store on `medium`, with those of its log's devices, for tools. Without a readable
/// manifest, `medium` alone. The result keeps the devices locked.
///
/// # Errors
/// As [`open_log`].
pub fn join_log(medium: &Arc<dyn Medium>, config: &LogConfig) -> Result<JoinedLog> {
    let joined = Arc::new(Joined::new(Arc::clone(medium), wal::device_of));
    let mut log =
        JoinedLog { medium: Arc::clone(&joined) as _, missing: Vec::new(), _guards: Vec::new() };
    // A damaged manifest is reported by the tool that reads it next.
    let Ok(Ok(found)) = manifest::recover(&**medium, true) else { return Ok(log) };
    if found.state.log_place.is_on_devices() || !config.places.is_empty() {
        let mut open = config.open(found.store, &found.state.log_place)?;
        log.missing = std::mem::take(&mut open.missing);
        joined.attach(open.media)?;
        log._guards = open.guards;
    }
    Ok(log)
}

/// As [`join_log`] returns it.
pub struct JoinedLog {
    /// All files of the store.
    pub medium: Arc<dyn Medium>,
    /// The devices that were replaced by empty memory, each with the reason.
    pub missing: Vec<(LogDevice, Error)>,
    _guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for JoinedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedLog")
            .field("medium", &self.medium)
            .field("missing", &self.missing)
            .finish()
    }
}

//! New devices of the log in place of lost ones, for a store with resident keyspaces: their entries are in
//! the log, which therefore stays on its devices.

use std::any::Any;
use std::sync::Arc;

use base::{Error, Result, StoreId};
use engine::{JoinedLog, LogConfig};
use manifest::{Edit, Manifest};
use media::Medium;
use wal::{DeviceHeader, LogDevice, LogPlace};

/// Empty devices that are ready to take the places of lost ones.
pub(super) struct NewDevices {
    /// Each with the id of the lost one.
    devices: Vec<(u128, LogDevice)>,
    _guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl NewDevices {
    /// Makes an empty device for each one that is missing in `joined`, durably: at a place of `config` that
    /// has none, or else where the missing one was last. The store does not know them yet.
    ///
    /// # Errors
    /// `Invalid` for a place that cannot be opened, or has a log; those of the device.
    pub(super) fn prepare(config: &LogConfig, joined: &JoinedLog) -> Result<Self> {
        let none = |_| Error::corrupt("store").expected("a manifest").got("none");
        let store = manifest::recover(&*joined.medium, false)?.map_err(none)?.store;
        let mut new = Self { devices: Vec::new(), _guards: Vec::new() };
        let mut empty = config.places.iter().filter(|place| {
            let medium = config.devices.open(place, false).ok();
            medium.is_none_or(|medium| matches!(DeviceHeader::find(&*medium), Ok(None)))
        });
        for (lost, _) in &joined.missing {
            let place = empty.next().unwrap_or(&lost.place);
            let named = |error: Error| error.at(format_args!("new device of the log at `{place}`"));
            let medium = config.devices.open(place, true).map_err(named)?;
            new._guards.push(medium.lock().map_err(named)?);
            let place = config.devices.absolute(place).map_err(named)?;
            let device = LogDevice { id: StoreId::random()?.0, place };
            DeviceHeader { store, device: device.id }.install(&*medium).map_err(named)?;
            new.devices.push((lost.id, device));
        }
        Ok(new)
    }

    /// Makes the devices part of the log of the closed store on `medium`, with one manifest record. Returns
    /// `config` with their places.
    ///
    /// # Errors
    /// Those of the medium.
    pub(super) fn install(self, medium: &Arc<dyn Medium>, config: LogConfig) -> Result<LogConfig> {
        let _lock = medium.lock()?;
        let none = |_| Error::corrupt("store").expected("a manifest").got("none");
        let found = manifest::recover(&**medium, false)?.map_err(none)?;
        let (store, mut state, number) = (found.store, found.state, found.number);
        let LogPlace { mut devices, lanes_each } = state.log_place.clone();
        let mut places = config.places.clone();
        for (lost, new) in self.devices {
            if !places.is_empty() {
                places.push(new.place.clone());
            }
            devices.iter_mut().filter(|it| it.id == lost).for_each(|it| *it = new.clone());
        }
        state.apply(Edit::LogPlaced { place: LogPlace { devices, lanes_each } })?;
        let next = number.checked_add(1).ok_or_else(|| {
            Error::corrupt("manifest number").expected("a number below").got(number)
        })?;
        Manifest::start(Arc::clone(medium), store, state, next)?;
        Ok(LogConfig { places, ..config })
    }
}

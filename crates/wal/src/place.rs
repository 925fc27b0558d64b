//! The place of a log: the lane in the store's directory, or lanes on devices of storage-class memory.
//!
//! The number of a lane says on which device it is: lane 0 is in the store's directory, and each device has
//! [`DEVICE_LANES_MAX`] numbers. So the name of a segment tells its medium, without a table.

use base::{Error, LaneId, Result};

use crate::name::parse_segment_name;
use crate::options::LANES_MAX;
use crate::position::LANE;

/// The most lanes of a device.
pub const DEVICE_LANES_MAX: u16 = 16;

/// The most devices of a log.
pub const DEVICES_MAX: usize = 16;

/// The longest place of a device, bytes: that of a path.
pub const PLACE_BYTES_MAX: usize = 4096;

/// A device of a log, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDevice {
    /// The device's own id, drawn when it became part of the log.
    pub id: u128,
    /// Where it was last found: a directory, or as `media::scm::ScmLocation` prints it.
    pub place: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPlace {
    /// The devices; none: the log is in the store's directory.
    pub devices: Vec<LogDevice>,
    /// The number of lanes of each device.
    pub lanes_each: u16,
}

impl LogPlace {
    /// Checks the numbers of devices and lanes.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or a device has no lane.
    pub fn check(&self) -> Result<()> {
        let (devices, each) = (self.devices.len(), self.lanes_each);
        let is_home = devices == 0 && each == 0;
        let lanes = devices * usize::from(each);
        let is_on_devices = (1..=DEVICES_MAX).contains(&devices)
            && (1..=DEVICE_LANES_MAX).contains(&each)
            && lanes <= LANES_MAX;
        let is_distinct = self.devices.iter().enumerate().all(|(at, device)| {
            self.devices.iter().skip(at + 1).all(|other| other.id != device.id)
        });
        if (is_home || is_on_devices) && is_distinct {
            return Ok(());
        }
        Err(Error::invalid("devices of the log")
            .expected(format_args!(
                "from 1 to {DEVICES_MAX} different ones, of up to {DEVICE_LANES_MAX} lanes each, and at most \
                 {LANES_MAX} lanes in all"
            ))
            .got(format_args!("{devices} with {each} lanes each")))
    }

    /// Whether the log is on storage-class memory.
    #[must_use]
    pub fn is_on_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The lanes that receive appends.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneId> {
        if self.devices.is_empty() {
            return vec![LANE];
        }
        let first = |device: u16| 1 + device * DEVICE_LANES_MAX;
        let devices = u16::try_from(self.devices.len()).unwrap_or(0);
        let lanes = (0..devices)
            .flat_map(|device| (first(device)..first(device) + self.lanes_each).map(LaneId));
        lanes.collect()
    }
}

/// The number of the device, from 0, that the file `name` belongs to; `None` for a file of the store's
/// directory.
#[must_use]
pub fn device_of(name: &str) -> Option<usize> {
    let (LaneId(lane), _) = parse_segment_name(name)?;
    lane.checked_sub(1).map(|lane| usize::from(lane / DEVICE_LANES_MAX))
}

#[cfg(test)]
mod tests {
    use base::SegmentId;

    use super::*;
    use crate::name::segment_name;

    fn place(devices: u128, lanes_each: u16) -> LogPlace {
        let devices =
            (1..=devices).map(|id| LogDevice { id, place: format!("/pmem{id}") }).collect();
        LogPlace { devices, lanes_each }
    }

    #[test]
    fn the_number_of_a_lane_tells_its_device() {
        assert_eq!(LogPlace::default().lanes(), [LANE]);
        let place = place(3, 2);
        place.check().unwrap();
        let lanes: Vec<u16> = place.lanes().into_iter().map(|lane| lane.0).collect();
        assert_eq!(lanes, [1, 2, 17, 18, 33, 34]);
        let device = |lane| device_of(&segment_name(LaneId(lane), SegmentId(4)));
        let devices: Vec<_> = lanes.into_iter().map(device).collect();
        assert_eq!(devices, [0, 0, 1, 1, 2, 2].map(Some));
        assert_eq!((device(0), device(16), device_of("manifest-1")), (None, Some(0), None));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for good in [place(0, 0), place(1, 1), place(4, 16), place(16, 4)] {
            good.check().unwrap();
        }
        let mut twice = place(2, 2);
        twice.devices[1].id = 1;
        for bad in [place(1, 0), place(0, 1), place(1, 17), place(17, 1), place(5, 16), twice] {
            assert_eq!(bad.check().unwrap_err().kind(), base::ErrorKind::Invalid, "{bad:?}");
        }
    }
}

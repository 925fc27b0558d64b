//! Calibrations: the measured latencies and bandwidths of a device. `terrace calibrate` makes one and keeps
//! it as a file on the device, and the store reads it when it opens the device.
//!
//! The format of the file is docs/format/calibration.md.

mod device;
mod find;
mod run;
mod text;
mod values;

pub use device::CalibratedDevice;
pub use find::{FoundCalibration, device_of};
pub use run::calibrate;
pub use values::{Calibration, Points};

#[cfg(test)]
mod tests;

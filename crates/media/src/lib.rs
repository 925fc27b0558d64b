//! Storage devices behind one trait, [`Medium`]: files in a directory, files in memory, and decorators
//! that count, throttle and break them; and storage-class memory, read in place ([`scm`]).
//!
//! Level 1 (docs/ARCHITECTURE.md). `unsafe` is allowed here: aligned buffers, mapped memory and the
//! kernel's completion rings live in this crate and in no other.

mod buf;
mod calibration;
mod check;
mod cold;
mod delegate;
pub mod emulated;
mod faulty;
mod file;
mod fork;
#[cfg(any(test, feature = "forked"))]
mod forked;
mod holding;
mod immediate;
mod joined;
mod locked;
mod medium;
mod memory;
mod metered;
mod naming;
mod overlay;
mod pace;
mod pending;
mod pool;
mod preallocate;
mod purpose;
pub mod scm;
mod throttled;
mod usage;

#[cfg(test)]
mod conformance;

pub use buf::Buf;
pub use calibration::{
    CalibratedDevice, Calibration, FoundCalibration, Points, calibrate, device_of,
};
pub use cold::{Cold, ColdName, ColdReads, KeptWriter, kept_of};
pub use faulty::{Fault, Faulty, Freeze, OpKind, Rule};
pub use file::{FileMedium, FileOptions, Staging, raise_open_files_limit};
#[cfg(any(test, feature = "forked"))]
pub use forked::in_forked_child;
pub use holding::{Hold, Holding};
pub use immediate::Immediate;
pub use joined::{Joined, Route};
pub use medium::{
    Access, Capabilities, Completion, File, Listing, Medium, Op, Queue, Refused, Request, Space,
};
pub use memory::MemoryMedium;
pub use metered::Metered;
pub use naming::Naming;
pub use overlay::Overlay;
pub use pace::Pace;
pub use pending::Pending;
pub use purpose::{Class, Purpose};
pub use throttled::{Rate, Throttled};
pub use usage::{Counts, Usage};

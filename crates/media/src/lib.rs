//! Storage devices behind one trait: memory and files, with decorators that meter, throttle and
//! break them; and storage-class memory, read in place ([`scm`]).
//!
//! Level 1 (docs/ARCHITECTURE.md). `unsafe` is allowed here: aligned buffers, mapped windows and
//! the kernel's completion rings live in this crate and nowhere else.

mod buf;
mod calibration;
mod check;
pub mod emulated;
mod faulty;
mod file;
mod holding;
mod immediate;
mod locked;
mod medium;
mod memory;
mod metered;
mod naming;
mod pace;
mod purpose;
pub mod scm;
mod set_aside;
mod throttled;
mod under_way;
mod usage;

#[cfg(test)]
mod conformance;

pub use buf::Buf;
pub use calibration::{
    Calibration, Device as CalibratedDevice, Found as FoundCalibration, Points, calibrate,
    device_of,
};
pub use faulty::{Fault, Faulty, Freeze, OpKind, Rule};
pub use file::{FileMedium, FileOptions, Staging};
pub use holding::{Hold, Holding};
pub use medium::{
    Access, Capabilities, Completion, File, Listing, Medium, Op, Queue, Refused, Request, Space,
};
pub use memory::MemoryMedium;
pub use metered::Metered;
pub use naming::Naming;
pub use pace::Pace;
pub use purpose::{Class, Purpose};
pub use throttled::{Rate, Throttled};
pub use under_way::Pending;
pub use usage::{Counts, Usage};

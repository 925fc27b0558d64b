//! The log on storage-class memory beside other designs, in virtual time, on emulated devices.
//!
//! The experiment of TyrantKV: many threads write small records to a few devices. [`Kind::Lanes`] models the
//! store's log on such memory; the other kinds write as the published stores do: FlatStore, Viper,
//! ChameleonDB, and a log for each thread. All write the log's own records, and all keep real bytes; every
//! get is verified. Times are those of the emulated devices and of a few constants for the processor, the
//! same for all stores, so that a run gives the same figures on every machine. [`report()`] prints the
//! tables. [`real()`] runs the store itself, in real time on this machine's memory.

mod chameleon;
mod devices;
mod driver;
mod flat;
mod hash_log;
mod lane_store;
mod mix;
mod private_log;
mod published;
mod real;
mod records;
mod report;
mod schedule;
mod store;
#[cfg(test)]
mod tests;
mod viper;

pub use driver::{Kind, Measured, Setup, run};
pub use hash_log::HashLog;
pub use mix::Mix;
pub use published::{Published, published};
pub use real::{RealFigures, RealLine, RealOptions, real};
pub use report::{DeviceName, Line, LoadOver, ReportOptions, Summary, Table, report};
pub use schedule::{Nanos, Schedule};

//! Emulated devices: memory with the latencies and bandwidths of a profile.
//!
//! A [`Profile`] holds the measured constants of a device. The [`Model`] computes from the profile and the
//! earlier accesses how long an access takes: a pure state machine without a clock. Two clocks drive it. In
//! virtual time any number of logical threads take turns by a schedule ([`measure`]), the same on every
//! machine. In real time a [`Device`] makes callers wait, and counts the CPU time that waiting costs, so that
//! a figure can be reported with and without it ([`Emulation`]).
//!
//! Results of an emulated device are marked as such: `Facts::emulated`, `Capabilities::backend`.

mod closed_loop;
mod combining;
mod curve;
mod device;
mod file;
mod medium;
mod model;
mod profile;
mod profiles;
mod queue;
mod tail;
mod waiting;

pub use closed_loop::{Load, Measured, measure};
pub use device::{Device, Emulation, Stream};
pub use medium::Emulated;
pub use model::{Access, AccessKind, Model, Outcome};
pub use profile::{AccessProfile, Interference, Kind, Profile, Tail};
pub use profiles::PROFILES;

pub(crate) use file::EmulatedFile;
pub(crate) use queue::EmulatedQueue;

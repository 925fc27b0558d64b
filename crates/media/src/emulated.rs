//! Devices that are not there: memory that is as slow as a profile says.
//!
//! A [`Profile`] holds what was measured of a device. The [`Model`] says, from the profile and what
//! happened before, how long an access takes: a pure state machine that knows no clock. Two clocks run
//! it. In virtual time any number of logical threads take turns by a schedule ([`measure`]), the same on
//! every machine. In real time a [`Device`] makes callers wait, and counts the processor time that
//! waiting burns, so that a figure can be told with and without it ([`Emulation`]).
//!
//! What comes from an emulated device says so: `Facts::emulated`, `Capabilities::backend`.

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
pub use device::{Device, Emulation};
pub use medium::Emulated;
pub use model::{Access, Act, Model, Outcome};
pub use profile::{Kind, Mixed, Path, Profile, Tail};
pub use profiles::PROFILES;

pub(crate) use file::EmulatedFile;
pub(crate) use queue::EmulatedQueue;

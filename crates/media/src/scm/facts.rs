//! What a place is, as probed.

use std::time::Duration;

use crate::emulated::{Kind, Profile};

/// What content outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persistence {
    /// Nothing: it is gone with the process.
    Process,
    /// The process, not a restart of the machine: tmpfs.
    Machine,
    /// A power cut, once persisted.
    Power,
}

impl Persistence {
    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Machine => "machine",
            Self::Power => "power",
        }
    }
}

/// What a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How it is reached, for statistics: `dax`, `tmpfs`, `memory`, `numa`, a queue's backend.
    pub backend: &'static str,
    /// Loads and stores reach it, so that content is used where it lies.
    pub byte_addressable: bool,
    /// What content outlives.
    pub persistence: Persistence,
    /// The least that is written at once, bytes: a shorter write costs as much.
    pub write_unit: usize,
    /// A read of one unit at rest, by the kind of place: for a first guess, until it is measured.
    pub read_latency: Duration,
    /// The NUMA node of its memory, where one was asked for.
    pub numa_node: Option<u32>,
    /// The profile of an emulated one. Figures from it say so.
    pub emulated: Option<&'static str>,
}

impl Facts {
    /// What an emulated place that is kept nowhere is.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Self {
        Self {
            backend: profile.backend,
            byte_addressable: profile.kind == Kind::Memory,
            persistence: Persistence::Process,
            write_unit: usize::try_from(profile.unit).unwrap_or(4096),
            read_latency: Duration::from_nanos(profile.read.latency_ns as u64),
            numa_node: None,
            emulated: Some(profile.name),
        }
    }
}

//! The properties of storage-class memory, as probed.

use std::time::Duration;

use crate::emulated::{Kind, Profile};

/// The event that content survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persistence {
    /// None: content is lost with the process.
    Process,
    /// The end of the process, but not a restart of the machine: tmpfs.
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

/// The properties of storage-class memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of access, for statistics: `dax`, `tmpfs`, `memory`, `numa`, or the backend of a queue.
    pub backend: &'static str,
    /// Loads and stores reach it, so that content is used in place.
    pub byte_addressable: bool,
    /// The event that content survives.
    pub persistence: Persistence,
    /// The least that the medium writes, bytes: a shorter write costs as much.
    pub write_unit: usize,
    /// Latency of a read on an idle device, typical for the kind: an estimate until it is measured.
    pub read_latency: Duration,
    /// The NUMA node of its memory, if one was requested.
    pub numa_node: Option<u32>,
    /// The profile of an emulated device. Reported figures name it.
    pub emulated: Option<&'static str>,
}

impl Facts {
    /// The properties of an emulated device in memory.
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

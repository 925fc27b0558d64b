//! The list of profiles, each in a file with its sources.

mod cxl_dram;
mod nvme;
mod optane_dimm;
mod optane_dimm_remote;
mod optane_dimm_x6;
mod optane_ssd;

use super::profile::Profile;

/// Every profile.
pub const PROFILES: [&Profile; 6] = [
    &optane_dimm::PROFILE,
    &optane_dimm_remote::PROFILE,
    &optane_dimm_x6::PROFILE,
    &cxl_dram::PROFILE,
    &optane_ssd::PROFILE,
    &nvme::PROFILE,
];

impl Profile {
    /// The profile called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().copied().find(|profile| profile.name == name)
    }
}

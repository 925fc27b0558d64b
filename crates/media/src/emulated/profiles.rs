//! The profiles there are, each in a file with its sources.

mod cxl_dram;
mod nvme;
mod optane_dimm;
mod optane_dimm_x6;
mod optane_ssd;

use super::Profile;

/// Every profile.
pub const PROFILES: [&Profile; 5] = [
    &optane_dimm::PROFILE,
    &optane_dimm_x6::PROFILE,
    &cxl_dram::PROFILE,
    &optane_ssd::PROFILE,
    &nvme::PROFILE,
];

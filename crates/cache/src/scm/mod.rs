//! The second tier: pages as stored, in slots of storage-class memory or of a small fast device, and where
//! that is memory which ends with the process, single rows in some of the slots (`row_sets`).
//!
//! A page that leaves DRAM, or is read from flash, may be put below; one that is asked for below is used
//! where it lies, or read from there, and may be copied up again. Where it goes is [`Placement`]'s
//! choice, whether it is written at all [`admission`]'s; both are pure functions. Writes, copies out of
//! memory and everything else that waits is background work ([`ScmTier::step`]): a caller's path has a
//! lookup, a pin and a place in a queue. A page that a caller read from a device to use it is put into
//! DRAM by that caller, as one from flash is.
//!
//! What lies below may vanish at any time (I6), and is used only after its checksum matched what was
//! asked for (I8): memory once since it was written or found, a device at every read. A tier that fails
//! is off from then on, and the store goes on without it.

pub mod admission;
mod background;
mod backing;
mod costs;
mod demotion;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hit;
mod latency_sampler;
mod lookup;
mod open;
mod pending;
mod pins;
mod placement;
mod prior;
mod row_sets;
mod scrub;
mod shared_ghost;
mod slot_map;
mod statistics;
mod stored_map;
mod tier;
mod tier_bypass;
mod warm_output_counter;
mod warm_outputs;
mod write_budget;
mod writer_state;

pub use admission::Admission;
pub use hit::{ScmHit, ScmPage, ScmRead, ScmSlot};
pub use open::ScmOptions;
pub use placement::{Costs, Placement, Tier};
pub use prior::Prior;
pub use row_sets::RowSetStatistics;
pub use statistics::{Refusals, ScmStatistics};
pub use stored_map::SCM_MAGIC;
pub use tier::ScmTier;
pub use write_budget::WriteBudget;

pub(crate) use demotion::EvictedPage;
pub(crate) use placement::DRAM_HIT_NANOS;
pub(crate) use row_sets::NewRow;

#[cfg(test)]
mod bypass_tests;
#[cfg(test)]
mod curve_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tag_tests;
#[cfg(test)]
mod tests;

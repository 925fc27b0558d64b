//! The lower cache tier: pages as stored, in 4 KiB slots of storage-class memory (SCM) or of a small fast
//! device. In memory that ends with the process some of the slots hold single rows (`row_sets`).
//!
//! Flow: pages that DRAM evicts, or that readers read from flash, are offered to the tier. [`admission`]
//! decides whether a page is written, [`Placement`] which tier it belongs to; both are pure functions. A
//! reader uses a page of memory in place and reads a page of a device. A page that is used often enough is
//! promoted to DRAM: by the background task if the tier is memory, by its reader if the tier is a device.
//!
//! Writes, copies out of memory and all waiting are background work ([`ScmTier::step`]). A caller's path
//! costs a lookup, a pin, and an entry in a queue.
//!
//! Invariants: any page may vanish at any time (I6). A page is used only after its checksum matched the
//! identity asked for (I8): in memory once since it was written or found at open, on a device at every read.
//! A tier that fails is off from then on, and the store goes on without it.

pub mod admission;
mod admission_contest;
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
mod close_tests;
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

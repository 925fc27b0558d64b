//! Storage-class memory (SCM): the medium of the lower cache tier.
//!
//! A location is one string (docs/scm-tier.md): a directory, file or device, `numa:N`, `emulated:PROFILE`. If
//! it can be mapped it becomes a [`Region`], and its [`Slots`] are read in place; otherwise it is [`Blocks`],
//! read through the queues of `file`. The properties of a location, its persistence among them, are probed
//! and reported as [`Facts`]; nothing is inferred from a name.
//!
//! Files on SCM, for the log, are a [`ScmDirectory`].
//!
//! The tier has a fixed size, one owner at a time, and no content that the store relies on (I6): a location
//! that is missing, too small, in use or a file of another program is an ordinary error, and so is the loss
//! of the memory during use.

mod anonymous;
mod blocks;
mod directory;
mod facts;
mod flush;
mod location;
mod mapping;
mod node;
mod open;
mod probe;
mod region;
mod slots;
mod sync;
#[cfg(not(miri))]
mod watch;

pub use anonymous::AnonymousMemory;
pub use blocks::Blocks;
pub use directory::ScmDirectory;
pub use facts::{Facts, Persistence};
pub use location::ScmLocation;
pub use open::Scm;
pub use region::Region;
pub use slots::{Filling, Page, Pinned, SLOT_WORDS, SlotWords, Slots};

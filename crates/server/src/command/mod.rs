//! The commands, and the table of them: name, arity, flags, keys, function. COMMAND, the arity checks and the
//! locks follow from it.

pub(crate) mod acl;
pub(crate) mod bits;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod pubsub;
pub(crate) mod scan;
pub(crate) mod server;
pub(crate) mod sets;
pub(crate) mod sorted;
pub(crate) mod strings;
mod table;
pub(crate) mod transaction;

pub(crate) use table::TABLE;

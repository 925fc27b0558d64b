//! The ordered keyspace: memtables over sorted tables.

mod flush;
mod memtable;
mod training;
mod tree;
mod version;

pub(crate) use flush::{FlushEnv, FlushJob};
pub(crate) use memtable::Memtable;
pub(crate) use tree::{Tree, View};
pub(crate) use version::{Run, TableHandle, Version};

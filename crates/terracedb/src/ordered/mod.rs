//! The ordered keyspace: memtables over sorted tables.

mod flush;
mod memtable;
mod table_file;
mod training;
mod tree;
mod version;

pub(crate) use flush::{FlushEnv, FlushJob};
pub(crate) use memtable::Memtable;
pub(crate) use table_file::TableFile;
pub(crate) use tree::{Shape, Tree, View};
pub(crate) use version::{Change, Piece, Rectangle, Run, Version};

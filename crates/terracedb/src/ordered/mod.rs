//! The ordered keyspace: memtables over sorted tables.

mod deleted_ranges;
mod flush;
mod memtable;
mod row_renewal;
mod semantics;
mod table_file;
mod training;
mod tree;
mod value_file;
mod version;

pub(crate) use deleted_ranges::DeletedRanges;
pub(crate) use flush::{FlushJob, TreeContext};
pub(crate) use memtable::Memtable;
pub(crate) use row_renewal::RowRenewal;
pub(crate) use semantics::{Semantics, Uses};
pub(crate) use table_file::TableFile;
pub(crate) use tree::{Tree, VersionEditGuard, View};
pub(crate) use value_file::{ValueFile, ValueFiles};
pub(crate) use version::{Change, Piece, Rectangle, Run, Version};

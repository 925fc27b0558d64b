//! Sorted tables: immutable files of versions in the order (key ascending, trailer descending).

mod bin_index;
mod block;
mod block_builder;
mod check;
mod cursor;
mod describe;
mod filter;
mod fit;
mod footer;
mod hot;
mod layout;
mod locate;
mod meta;
mod meta_builder;
pub(crate) mod output;
mod pack;
mod partitions;
pub(crate) mod pieces;
mod pinned;
mod pinned_range_deletes;
mod point;
mod properties;
mod range_section;
mod raw_block;
pub(crate) mod read;
mod rebuild;
mod salvage;
mod separator;
pub(crate) mod step;
mod straddle;
mod table;
mod tail;
mod tally;
mod top;
mod writer;

pub use block::visit_block;
pub use check::{Damage, Report};
pub use cursor::TableCursor;
pub use describe::{Fact, describe};
pub use filter::{FILTER_BITS_DEFAULT, FILTER_BITS_MAX, Filter, filter_bytes};
pub use footer::{FORMAT_VERSION, Footer, SORTED_VERSION};
pub use layout::{BinBits, HASH_BYTES, Layout};
pub use meta::MetaPage;
pub use pinned_range_deletes::PinnedRangeDeletes;
pub use point::{FoundVersion, PointRead};
pub use properties::{CodecField, Properties};
pub use raw_block::RawBlock;
pub use read::{CHARGED_BYTES_MIN, decode_with};
pub use salvage::{LostKeys, RangeDeletesFound, SalvageReport, Salvaged, salvage};
pub use step::{Pages, Span, Step};
pub use table::Table;
pub use top::Partition;
pub use writer::{Spec, Summary, Writer};

#[cfg(test)]
mod tests;

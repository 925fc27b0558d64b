//! Immutable table files: sorted tables whose blocks fit pages, their codecs and dictionaries, and value
//! files.
//!
//! Layer 3 of docs/ARCHITECTURE.md. A flush or a merge streams versions into a [`Writer`]. Reads are
//! resumable state machines ([`PointRead`], [`TableCursor`]) over an open [`Table`]: they ask for pages,
//! and the caller, which owns the caches and queues, supplies them. Long values are stored in value
//! files ([`ValuesWriter`], [`ValueRead`]). The formats are in docs/format/table.md, docs/format/bins.md,
//! docs/format/values.md and docs/format/dictionary.md.

mod accounts;
mod bounds;
mod codec;
#[cfg(test)]
mod cut;
mod dictionary;
#[cfg(test)]
mod golden;
mod name;
mod page;
mod page_walk;
mod pointer;
mod range_deletes;
mod reread;
mod sorted;
mod store_dictionaries;
mod values;

pub use accounts::Accounts;
pub use bounds::Bounds;
pub use codec::{
    BlockCompressor, BlockEngine, BlockStream, SoftPool, check_codec, decompress_block, pack_value,
    unpack_value,
};
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionaries, Dictionary, NoDictionaries, gain, train};
pub use name::{file_name, parse_file_name, parse_values_file_name, values_file_name};
pub use page::{
    HEADER_BYTES, Header, NO_ENTRY, PAYLOAD_BYTES, PageKind, Straddle, fold_digest, payload,
    run_pages, verify_page,
};
pub use page_walk::{PageBuffer, PageVisitor, PageWalk, Retries};
pub use pointer::Pointer;
pub use range_deletes::{Fragment, RangeDelete, RangeDeletes};
pub use reread::reread;
pub use sorted::*;
pub use store_dictionaries::StoreDictionaries;
pub use values::{
    ValueDamage, ValueRead, Values, ValuesFooter, ValuesReport, ValuesSpec, ValuesSummary,
    ValuesWriter,
};

//! Sorted tables: immutable files of versions ordered by (key ascending, trailer descending).

mod footer;
mod properties;
mod step;

pub use footer::{FORMAT_VERSION, Footer};
pub use properties::{CodecField, Properties};
pub use step::{Pages, Span, Step};

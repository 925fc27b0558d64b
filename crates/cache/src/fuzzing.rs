//! Private parsers for the fuzz targets; built with the feature `fuzzing` only.

pub use crate::scm::fuzzing::scm_pages;

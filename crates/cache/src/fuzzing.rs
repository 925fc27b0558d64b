//! Parsers that are not public, for the fuzz targets; built with the feature `fuzzing` alone.

pub use crate::scm::fuzzing::scm_pages;

//! The scales at which a case can run.

use std::time::Duration;

use base::{Error, Result};

/// Keys, and operations per step, of a case at the tiny scale.
pub(super) const TINY: u64 = 2000;

/// The scale of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As the case describes.
    Full,
    /// For a quick look: an eighth of large data and of its memory, a fifth of the time.
    Quick,
    /// For a test: a few thousand keys and operations.
    Tiny,
}

impl Scale {
    /// The scale with this name.
    ///
    /// # Errors
    /// `Invalid` if there is none.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "full" => Ok(Self::Full),
            "quick" => Ok(Self::Quick),
            "tiny" => Ok(Self::Tiny),
            _ => Err(Error::invalid("scale").expected("full, quick or tiny").got(name)),
        }
    }

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Tiny => "tiny",
        }
    }

    pub(super) fn seconds(self, seconds: u64) -> Duration {
        match self {
            Self::Full => Duration::from_secs(seconds),
            Self::Quick | Self::Tiny => Duration::from_secs(seconds.div_ceil(5)),
        }
    }
}

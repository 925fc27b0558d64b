//! Why a step did not do what it should.

use std::fmt;

/// What a step of a simulation ends with when it does not end well.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The store refused. Whether it may depends on what was done to its device.
    Refused(terracedb::Error),
    /// An answer is wrong.
    Wrong(String),
}

/// What a step of a simulation ends with.
pub(crate) type Outcome<T = ()> = Result<T, Trouble>;

impl From<terracedb::Error> for Trouble {
    fn from(error: terracedb::Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "refused: {error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

/// Ends the step as [`Trouble::Wrong`] unless `$right`.
macro_rules! ensure {
    ($right:expr, $($why:tt)+) => {
        if !$right {
            return Err(crate::trouble::Trouble::Wrong(format!($($why)+)));
        }
    };
}

pub(crate) use ensure;

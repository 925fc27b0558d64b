//! Why a step did not do what it should.

use std::fmt;

/// What a step of a simulation ends with when it does not end well.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The store refused. Whether it may depends on what was done to its device.
    Refused(terracedb::Error),
    /// An answer is wrong.
    Wrong(String),
}

/// What a step of a simulation ends with.
pub(crate) type Outcome<T = ()> = Result<T, StepError>;

impl From<terracedb::Error> for StepError {
    fn from(error: terracedb::Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "refused: {error}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

/// Ends the step as [`StepError::Wrong`] unless `$right`.
macro_rules! ensure {
    ($right:expr, $($why:tt)+) => {
        if !$right {
            return Err(crate::step_error::StepError::Wrong(format!($($why)+)));
        }
    };
}

pub(crate) use ensure;

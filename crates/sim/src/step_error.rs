//! The errors of a step.

use std::fmt;

/// Why a step failed.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The store returned an error. The state of its device decides whether that is permitted.
    Refused(terracedb::Error),
    /// An answer is wrong.
    Wrong(String),
}

/// The result of a step.
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

/// Returns [`StepError::Wrong`] unless `$right`.
macro_rules! ensure {
    ($right:expr, $($why:tt)+) => {
        if !$right {
            return Err(crate::step_error::StepError::Wrong(format!($($why)+)));
        }
    };
}

pub(crate) use ensure;

//! How a command ended without an error. `main` turns it into an exit status.

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit status 0.
    Done,
    /// Exit status 1: the key is missing, damage was found, or a target was not met.
    Negative,
}

impl Outcome {
    /// [`Outcome::Done`] if `is_good`, else [`Outcome::Negative`].
    pub(crate) const fn good_if(is_good: bool) -> Self {
        if is_good { Self::Done } else { Self::Negative }
    }
}

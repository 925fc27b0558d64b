//! Free space that the writes of a file leave on its device.

use media::Space;

/// Free space that the writes of a file leave to deletes ([`Space::for_deletes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// All of that space.
    ForDeletes,
    /// Half of it: for files that deletes wait for.
    HalfForDeletes,
    /// Nothing.
    Nothing,
}

impl Leave {
    /// The bytes to leave on a device with `space`.
    pub(crate) fn bytes(self, space: Space) -> u64 {
        match self {
            Self::ForDeletes => space.for_deletes(),
            Self::HalfForDeletes => space.for_deletes() / 2,
            Self::Nothing => 0,
        }
    }
}

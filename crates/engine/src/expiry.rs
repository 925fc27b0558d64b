//! Expiry times in the public interface, and as stored.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The expiry of a key's value; see `terracedb::Keyspace::expiry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The value does not expire.
    Never,
    /// The value has expired from this time on. The resolution is a millisecond.
    At(SystemTime),
}

impl Expiry {
    /// The expiry stored as `unix_ms`, Unix milliseconds. 0 means that the value does not expire.
    #[must_use]
    pub fn of(unix_ms: u64) -> Self {
        match unix_ms {
            0 => Self::Never,
            // A time that the platform cannot represent is later than all times that it can.
            _ => {
                UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).map_or(Self::Never, Self::At)
            }
        }
    }
}

/// `time` as stored: Unix milliseconds, at least 1. A time before 1970 becomes 1, which has passed.
pub(crate) fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stored_in_milliseconds() {
        let time = UNIX_EPOCH + Duration::from_micros(1_500_900);
        assert_eq!(unix_millis(time), 1500);
        assert_eq!(Expiry::of(1500), Expiry::At(UNIX_EPOCH + Duration::from_millis(1500)));
        assert_eq!(unix_millis(UNIX_EPOCH - Duration::from_secs(9)), 1);
        assert_eq!(Expiry::of(0), Expiry::Never);
    }
}

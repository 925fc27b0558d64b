//! When a value expires, as users say it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When a key's value is gone; see `terracedb::Keyspace::expiry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays until it is overwritten or deleted.
    Never,
    /// From this moment on, to the millisecond.
    At(SystemTime),
}

impl Expiry {
    /// The expiry stored as `unix_ms`, where zero is never.
    pub fn of(unix_ms: u64) -> Self {
        match unix_ms {
            0 => Self::Never,
            // A time the platform cannot say is later than any it can.
            _ => {
                UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).map_or(Self::Never, Self::At)
            }
        }
    }
}

/// A moment as stored: Unix milliseconds, above zero; what lies before 1970 is long past.
pub fn unix_millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_stored_to_the_millisecond() {
        let moment = UNIX_EPOCH + Duration::from_micros(1_500_900);
        assert_eq!(unix_millis(moment), 1500);
        assert_eq!(Expiry::of(1500), Expiry::At(UNIX_EPOCH + Duration::from_millis(1500)));
        assert_eq!(unix_millis(UNIX_EPOCH - Duration::from_secs(9)), 1);
        assert_eq!(Expiry::of(0), Expiry::Never);
    }
}

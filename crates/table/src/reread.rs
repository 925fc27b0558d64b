//! Reading again what failed: a device that cannot read once may well the next time.

use base::{Error, ErrorKind, Result};

/// How often it is read again before it is called damaged.
const REREADS: usize = 2;

/// Reads again what failed as `first` says, where that may be the device's passing failure, until it
/// succeeds or has failed often enough; the last failure.
///
/// # Errors
/// As `read`; `first`, where it is another than `Corrupt`.
pub fn reread<T>(first: Error, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last = first;
    for _ in 0..REREADS {
        if last.kind() != ErrorKind::Corrupt {
            break;
        }
        match read() {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_read_and_what_stays_is_told() {
        let failing = |times: usize| {
            let mut left = times;
            move || {
                left = left.saturating_sub(1);
                if left > 0 { Err(Error::corrupt("page").got(left)) } else { Ok(7) }
            }
        };
        let read = |times| failing(times)().or_else(|first| reread(first, failing(times - 1)));
        assert_eq!(read(2).unwrap(), 7);
        assert_eq!(read(3).unwrap(), 7);
        assert_eq!(read(4).unwrap_err().kind(), ErrorKind::Corrupt);
        let other = reread(Error::invalid("table"), || Ok(7)).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid);
    }
}

//! Repeats a read that failed: a device may return good bytes the next time.

use base::{Error, ErrorKind, Result};

/// Repetitions before the page counts as damaged.
const REREADS: usize = 2;

/// Repeats a read that failed with the error `first`, until it succeeds or the repetitions are used up.
/// Returns the last error.
///
/// # Errors
/// The last error of `read`; `first` at once if it is not `Corrupt`.
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
    fn a_transient_failure_is_read_again_and_a_lasting_one_is_returned() {
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

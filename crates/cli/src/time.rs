//! Times as people write them.

use std::time::Duration;

/// What a time is written like, for messages.
pub(crate) const WRITTEN: &str = "a time, as in 30 or 0.5 (seconds), 100ms, 5m, 12h or 7d";

const UNITS: [(&str, f64); 5] =
    [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Reads a time: a number, alone or followed by a unit.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, seconds) = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)))
        .unwrap_or((text, 1.0));
    let number: f64 = number.trim_end().parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// Writes a time in the largest unit of which it is a whole number.
pub(crate) fn show(time: Duration) -> String {
    let millis = time.as_millis();
    if millis == 0 || !millis.is_multiple_of(1000) {
        return format!("{millis}ms");
    }
    let seconds = millis / 1000;
    [("d", 86_400), ("h", 3600), ("m", 60)]
        .into_iter()
        .find(|(_, unit)| seconds.is_multiple_of(*unit))
        .map_or_else(|| format!("{seconds}s"), |(name, unit)| format!("{}{name}", seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_write_them() {
        for (text, millis) in
            [("30", 30_000), ("0.5", 500), ("100ms", 100), ("1.5 m", 90_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1y", "nan", "inf", "1e400"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["0ms", "100ms", "1500ms", "59s", "1m", "36h", "7d"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }
}

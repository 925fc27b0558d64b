//! Durations and dates as text.

use std::time::Duration;

/// The expected form of a duration, for error messages.
pub(crate) const EXPECTED: &str = "a time, as in 30 or 0.5 (seconds), 100ms, 5m, 12h or 7d";

const UNITS: [(&str, f64); 5] =
    [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Parses a duration: a number, in seconds or followed by a unit. `None` if `text` is no duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, seconds) = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)))
        .unwrap_or((text, 1.0));
    let number: f64 = number.trim_end().parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// A duration in the largest unit that gives a whole number.
pub(crate) fn format(time: Duration) -> String {
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

/// Date and time of day in UTC (RFC 3339) of a Unix time in seconds.
pub(crate) fn format_utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // A year that begins in March ends with the leap day, and 400 years have 146,097 days (Hinnant,
    // "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are the output of `date -u -d @N +%FT%TZ`.
    #[test]
    fn unix_times_format_as_utc_dates() {
        for (unix_seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_189_816, "2026-11-20T15:50:16Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(format_utc(unix_seconds), text);
        }
    }

    #[test]
    fn durations_parse_with_each_unit_and_format_in_the_largest() {
        for (text, millis) in
            [("30", 30_000), ("0.5", 500), ("100ms", 100), ("1.5 m", 90_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1y", "nan", "inf", "1e400"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["0ms", "100ms", "1500ms", "59s", "1m", "36h", "7d"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }
}

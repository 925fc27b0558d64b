//! Arguments of commands as numbers, options and times, with Redis's error texts.

use std::ops::Range;

use crate::keys::DATABASES;
use crate::reply::Fail;

/// The upper-case text of an option.
pub(crate) fn option(arg: &[u8]) -> String {
    String::from_utf8_lossy(arg).to_ascii_uppercase()
}

/// An integer, as `string2ll` of Redis: no sign `+`, no leading zeros, no spaces.
///
/// # Errors
/// If the value is not an integer.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Fail> {
    let text = std::str::from_utf8(arg).map_err(|_| Fail::not_integer())?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits == "0" || digits.starts_with(|first: char| ('1'..='9').contains(&first));
    if !is_plain || text == "-0" {
        return Err(Fail::not_integer());
    }
    text.parse().map_err(|_| Fail::not_integer())
}

/// An integer from `least` to `most`.
///
/// # Errors
/// If the value is not an integer, or outside.
pub(crate) fn range(arg: &[u8], least: i64, most: i64) -> Result<i64, Fail> {
    let value = integer(arg)?;
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Fail::new(format!(
            "ERR value is out of range, value must between {least} and {most}"
        ))),
    }
}

/// An integer of at least 0.
///
/// # Errors
/// If the value is not one.
pub(crate) fn positive(arg: &[u8]) -> Result<usize, Fail> {
    integer(arg)?;
    positive_or(arg, "ERR value is out of range, must be positive")
}

/// As [`positive`], with another text for everything else.
///
/// # Errors
/// As [`positive`].
pub(crate) fn positive_or(arg: &[u8], text: &str) -> Result<usize, Fail> {
    let value = integer(arg).ok().and_then(|value| usize::try_from(value).ok());
    value.ok_or_else(|| Fail::new(text))
}

/// The number of keys that follow, at least 1.
///
/// # Errors
/// If the value is not one.
pub(crate) fn number_of_keys(arg: &[u8]) -> Result<usize, Fail> {
    let refused = "ERR numkeys should be greater than 0";
    match positive_or(arg, refused)? {
        0 => Err(Fail::new(refused)),
        keys => Ok(keys),
    }
}

/// The number of a database.
///
/// # Errors
/// If it is no number, or out of range.
pub(crate) fn database(arg: &[u8], not_a_number: &str) -> Result<u8, Fail> {
    let number = integer(arg).map_err(|_| Fail::new(not_a_number))?;
    let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
    number.ok_or_else(|| Fail::new("ERR DB index is out of range"))
}

/// The ranks from `start` to `end`, both included; negative ones count from the end.
pub(crate) fn ranks(length: usize, start: i64, end: i64) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let (start, end) = (place(start).max(0), place(end).min(length - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// How a time argument counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Milliseconds of one.
    pub(crate) ms: i64,
    /// Whether the argument is a time since 1970, and not a duration.
    pub(crate) is_absolute: bool,
}

pub(crate) const SECONDS: Unit = Unit { ms: 1000, is_absolute: false };
pub(crate) const MILLIS: Unit = Unit { ms: 1, is_absolute: false };
pub(crate) const AT_SECONDS: Unit = Unit { ms: 1000, is_absolute: true };
pub(crate) const AT_MILLIS: Unit = Unit { ms: 1, is_absolute: true };

impl Unit {
    /// The option names of GETEX and SET.
    pub(crate) fn of_option(name: &str) -> Option<Self> {
        Some(match name {
            "EX" => SECONDS,
            "PX" => MILLIS,
            "EXAT" => AT_SECONDS,
            "PXAT" => AT_MILLIS,
            _ => return None,
        })
    }

    /// The expiry that `value` asks for at `now`, Unix milliseconds; may lie in the past.
    ///
    /// # Errors
    /// If the time of `command` is invalid: it overflows.
    pub(crate) fn expiry(self, value: i64, now: u64, command: &str) -> Result<i64, Fail> {
        let invalid = || Fail::new(format!("ERR invalid expire time in '{command}' command"));
        let since = if self.is_absolute { 0 } else { i64::try_from(now).unwrap_or(i64::MAX) };
        value.checked_mul(self.ms).and_then(|ms| ms.checked_add(since)).ok_or_else(invalid)
    }

    /// As [`Unit::expiry`], of an argument that must be above zero.
    ///
    /// # Errors
    /// As [`Unit::expiry`].
    pub(crate) fn positive(self, arg: &[u8], now: u64, command: &str) -> Result<u64, Fail> {
        let invalid = || Fail::new(format!("ERR invalid expire time in '{command}' command"));
        let value = integer(arg)?;
        if value <= 0 {
            return Err(invalid());
        }
        u64::try_from(self.expiry(value, now, command)?).map_err(|_| invalid())
    }
}

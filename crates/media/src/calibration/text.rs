//! The text format of a calibration: a small subset of TOML (docs/format/calibration.md).

use std::fmt::Write as _;

use base::{Error, Result};

use super::values::{Calibration, Points};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 2;

/// The longest file that is read, bytes, and the most points of a curve.
pub(super) const BYTES_MAX: usize = 64 << 10;
const POINTS_MAX: usize = 1024;

impl Calibration {
    /// The content of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("# Measured by terrace calibrate.\nversion = {VERSION}\n");
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _never = writeln!(text, "{name} = {value}");
        };
        line("place", quoted(&self.place));
        line("device", quoted(&self.device));
        line("measured-unix-ms", self.measured_unix_ms.to_string());
        line("emulated", quoted(&self.emulated));
        line("byte-addressable", self.is_byte_addressable.to_string());
        line("unit-bytes", self.unit_bytes.to_string());
        line("read-latency-ns", number(self.read_latency_ns));
        line("write-latency-ns", number(self.write_latency_ns));
        for (name, points) in [
            ("read-threads", &self.read_threads),
            ("write-threads", &self.write_threads),
            ("read-sizes", &self.read_sizes),
            ("write-sizes", &self.write_sizes),
            ("mixed", &self.mixed),
        ] {
            let point = |(x, gb): &(f64, f64)| format!("[{}, {}]", number(*x), number(*gb));
            let points: Vec<String> = points.iter().map(point).collect();
            line(name, format!("[{}]", points.join(", ")));
        }
        text
    }

    /// Parses the text of [`Calibration::to_text`], edited by hand or not.
    ///
    /// # Errors
    /// `Invalid`, with the line, for an unknown name, a bad value, a missing name or another version.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > BYTES_MAX {
            return Err(refused("length", format_args!("{} bytes", text.len())));
        }
        let mut calibration = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |error: Error| error.at(format_args!("line {}", index + 1));
            let Some((name, value)) = line.split_once('=') else {
                return Err(at(refused("a name, = and a value", format_args!("{line:?}"))));
            };
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(at(refused("each name once", format_args!("{name} again"))));
            }
            calibration.set(name, value).map_err(at)?;
            seen.push(name);
        }
        match NAMES.iter().find(|name| !seen.contains(name)) {
            Some(missing) => Err(refused(*missing, "nothing")),
            None => Ok(calibration),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "version" => match value.parse::<u64>() {
                Ok(VERSION) => {}
                _ => return Err(refused(format_args!("version {VERSION}"), value)),
            },
            "place" => self.place = unquoted(value)?,
            "device" => self.device = unquoted(value)?,
            "measured-unix-ms" => {
                self.measured_unix_ms =
                    value.parse().map_err(|_| refused("Unix milliseconds", value))?;
            }
            "emulated" => self.emulated = unquoted(value)?,
            "byte-addressable" => {
                self.is_byte_addressable =
                    value.parse().map_err(|_| refused("true or false", value))?;
            }
            "unit-bytes" => {
                let unit = value.parse().ok().filter(|unit| (1..=1 << 30).contains(unit));
                self.unit_bytes = unit.ok_or_else(|| refused("1 to 2^30", value))?;
            }
            "read-latency-ns" => self.read_latency_ns = amount(value)?,
            "write-latency-ns" => self.write_latency_ns = amount(value)?,
            "read-threads" => self.read_threads = points(value)?,
            "write-threads" => self.write_threads = points(value)?,
            "read-sizes" => self.read_sizes = points(value)?,
            "write-sizes" => self.write_sizes = points(value)?,
            "mixed" => self.mixed = points(value)?,
            _ => return Err(refused(format_args!("one of {}", NAMES.join(", ")), name)),
        }
        Ok(())
    }
}

/// The names; all are required.
const NAMES: [&str; 14] = [
    "version",
    "place",
    "device",
    "measured-unix-ms",
    "emulated",
    "byte-addressable",
    "unit-bytes",
    "read-latency-ns",
    "write-latency-ns",
    "read-threads",
    "write-threads",
    "read-sizes",
    "write-sizes",
    "mixed",
];

/// Four significant digits: measurements have no more.
fn number(value: f64) -> String {
    let digits = if value >= 1000.0 { 0 } else { 4 };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _never = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn unquoted(value: &str) -> Result<String> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return Err(refused("text in quotes", value)) };
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, c) {
            ('"', _) => return Err(refused("\\\" within quotes", value)),
            ('\\', _) => match chars.next() {
                Some(c @ ('"' | '\\')) => text.push(c),
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                    let c = code.and_then(char::from_u32);
                    text.push(c.ok_or_else(|| refused("\\u and four digits", value))?);
                }
                _ => return Err(refused("\\\", \\\\ or \\u and four digits", value)),
            },
            (c, _) => text.push(c),
        }
    }
    Ok(text)
}

fn amount(value: &str) -> Result<f64> {
    let known = value.parse::<f64>().ok().filter(|value| (0.0..1e18).contains(value));
    known.ok_or_else(|| refused("a number of at least 0", value))
}

/// A curve such as `[[1, 2.9], [2, 5.7]]`; x increases.
fn points(value: &str) -> Result<Points> {
    let wanted = || refused("points sorted by x, as in [[1, 2.9], [2, 5.7]]", value);
    let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(wanted)?.trim();
    let mut points = Points::new();
    let mut rest = inner;
    while !rest.is_empty() {
        let (pair, after) =
            rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or_else(wanted)?;
        let (x, y) = pair.split_once(',').ok_or_else(wanted)?;
        let point = (amount(x.trim())?, amount(y.trim())?);
        if points.last().is_some_and(|(last, _)| *last >= point.0) || points.len() == POINTS_MAX {
            return Err(wanted());
        }
        points.push(point);
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return Err(wanted()),
        };
    }
    Ok(points)
}

#[cold]
fn refused(expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Error {
    let got: String = got.to_string().chars().take(200).collect();
    Error::invalid("calibration").expected(expected).got(got)
}

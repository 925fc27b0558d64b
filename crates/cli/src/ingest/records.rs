//! Parses keys and values from text, record by record. Keys must ascend strictly.
//!
//! Uses memory for one record, whose length is bounded.

use std::io::{BufRead, Read};
use std::path::Path;

use clap::ValueEnum;
use serde_json::Value;
use terracedb::{Error, Result};

use crate::hex;

/// The longest record as text, bytes: the longest key and value, with every byte as two digits or as a JSON
/// escape of six characters.
const RECORD_BYTES_MAX: u64 = 6 * (base::limits::VALUE_BYTES_MAX as u64 + (64 << 10));

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The key up to the first tab, then the value, as `scan` prints
    Tsv,
    /// Two fields, quoted if needed, as spreadsheets write (RFC 4180)
    Csv,
    /// {"key": ..., "value": ...} per line, as `scan --json` prints
    Jsonl,
}

impl Format {
    /// The format by the ending of the file's name.
    pub(super) fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Self::Csv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            _ => Self::Tsv,
        }
    }
}

/// A record and the line on which it begins.
pub(super) struct Record<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    name: &'a str,
    line: u64,
}

impl Record<'_> {
    /// The record's place as `FILE:LINE`, for errors.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }
}

/// Reads records from `R`.
pub(super) struct Records<R> {
    input: R,
    name: String,
    format: Format,
    hex: bool,
    /// The text of the current record.
    text: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Whether a record has been read, so that `key` is the previous key.
    has_previous: bool,
    /// Bytes of text read.
    bytes: u64,
    /// Lines read.
    lines: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R, name: String, format: Format, hex: bool) -> Self {
        let (text, key, value) = (Vec::new(), Vec::new(), Vec::new());
        Self { input, name, format, hex, text, key, value, has_previous: false, bytes: 0, lines: 0 }
    }

    /// Bytes of text read so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next record; `None` after the last one. Empty lines are skipped.
    ///
    /// # Errors
    /// `Invalid` if a line is no record or a key is not greater than the previous one; `Io` if reading fails.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>> {
        let line = loop {
            self.text.clear();
            let line = self.lines + 1;
            if !self.read_line()? {
                return Ok(None);
            }
            if !trimmed(&self.text).is_empty() {
                break line;
            }
        };
        let (key, value) = self.record().map_err(|error| error.at(self.place(line)))?;
        if self.has_previous && key <= self.key {
            return Err(Error::invalid("keys out of order")
                .at(self.place(line))
                .expected(format_args!("a key after `{}`", self.key.escape_ascii()))
                .got(format_args!("`{}`", key.escape_ascii())));
        }
        (self.key, self.value, self.has_previous) = (key, value, true);
        let Self { key, value, name, .. } = self;
        Ok(Some(Record { key, value, name, line }))
    }

    fn place(&self, line: u64) -> String {
        format!("{}:{line}", self.name)
    }

    /// Appends the next line with its newline to `text`. Returns `false` at the end of the input.
    fn read_line(&mut self) -> Result<bool> {
        let limit = RECORD_BYTES_MAX.saturating_sub(self.text.len() as u64);
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| Error::io("read", &self.name, error))? as u64;
        if read == limit && self.text.last() != Some(&b'\n') {
            return Err(Error::invalid("record")
                .at(self.place(self.lines + 1))
                .expected(format_args!("at most {RECORD_BYTES_MAX} bytes")));
        }
        self.lines += u64::from(read > 0);
        self.bytes += read;
        Ok(read > 0)
    }

    /// Parses the current record into key and value.
    fn record(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        let (key, value) = match self.format {
            Format::Tsv => {
                let text = trimmed(&self.text);
                let tab = text.iter().position(|byte| *byte == b'\t');
                let parts = tab.and_then(|tab| text.split_at_checked(tab));
                let (key, value) = parts
                    .ok_or_else(|| Error::invalid("record").expected("a tab after the key"))?;
                (key.to_vec(), value.get(1..).unwrap_or_default().to_vec())
            }
            Format::Csv => self.csv()?,
            Format::Jsonl => json(trimmed(&self.text))?,
        };
        if !self.hex {
            return Ok((key, value));
        }
        let digits = |text: Vec<u8>| hex::decode(&String::from_utf8_lossy(&text), true);
        Ok((digits(key)?, digits(value)?))
    }

    /// Parses two fields (RFC 4180). A quoted field may span several lines.
    fn csv(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        // A quote inside a field is doubled, so a field is open while the number of quotes is odd. Each line
        // is counted once, which keeps the cost linear in the length of the record.
        let mut is_open = has_odd_quotes(&self.text);
        while is_open {
            let counted = self.text.len();
            if !self.read_line()? {
                return Err(Error::invalid("record").expected("a quote that ends the field"));
            }
            is_open ^= has_odd_quotes(self.text.get(counted..).unwrap_or_default());
        }
        let text = trimmed(&self.text);
        let (key, rest) = field(text)?;
        let (value, rest) = match rest.strip_prefix(b",") {
            Some(rest) => field(rest)?,
            None => return Err(Error::invalid("record").expected("two fields").got("one")),
        };
        if !rest.is_empty() {
            return Err(Error::invalid("record").expected("two fields").got("more"));
        }
        Ok((key, value))
    }
}

/// `text` without the newline at its end.
fn trimmed(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

fn has_odd_quotes(text: &[u8]) -> bool {
    text.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

/// The first field of a CSV record, and the text after it.
fn field(text: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| *byte == b',').unwrap_or(text.len());
        let (field, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
        return Ok((field.to_vec(), rest));
    };
    let mut field = Vec::new();
    loop {
        let quote = rest.iter().position(|byte| *byte == b'"');
        let parts = quote.and_then(|quote| rest.split_at_checked(quote));
        let (part, after) = parts
            .ok_or_else(|| Error::invalid("record").expected("a quote that ends the field"))?;
        field.extend_from_slice(part);
        match after {
            [b'"', b'"', more @ ..] => {
                field.push(b'"');
                rest = more;
            }
            [b'"', more @ ..] if more.is_empty() || more.starts_with(b",") => {
                return Ok((field, more));
            }
            _ => return Err(Error::invalid("record").expected("a comma after a quoted field")),
        }
    }
}

/// Parses an object with the texts `key` and `value` and nothing else.
fn json(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let refused = || Error::invalid("record").expected(r#"{"key": "...", "value": "..."}"#);
    let value: Value = serde_json::from_slice(text).map_err(|error| refused().caused_by(error))?;
    let Value::Object(mut fields) = value else { return Err(refused()) };
    match (fields.remove("key"), fields.remove("value"), fields.is_empty()) {
        (Some(Value::String(key)), Some(Value::String(value)), true) => {
            Ok((key.into_bytes(), value.into_bytes()))
        }
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: Format, hex: bool, text: &str) -> Result<Vec<(String, String)>> {
        let mut records = Records::new(text.as_bytes(), "in".to_owned(), format, hex);
        let mut all = Vec::new();
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        while let Some(record) = records.next()? {
            all.push((text(record.key), text(record.value)));
        }
        Ok(all)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_format_parses_to_keys_and_values() {
        let read = |format, text| all(format, false, text).unwrap();
        assert_eq!(
            read(Format::Tsv, "a\t1\t2\n\nb\t\nc\t3"),
            pairs(&[("a", "1\\t2"), ("b", ""), ("c", "3")])
        );
        assert_eq!(
            read(Format::Csv, "a,1\r\n\"b,\"\"x\"\"\",\"two\nlines\"\nc,\n"),
            pairs(&[("a", "1"), ("b,\\\"x\\\"", "two\\nlines"), ("c", "")])
        );
        let lines = "{\"key\":\"a\",\"value\":\"\\u0000\"}\n{\"value\":\"2\",\"key\":\"b\"}\n";
        assert_eq!(read(Format::Jsonl, lines), pairs(&[("a", "\\x00"), ("b", "2")]));
        assert_eq!(all(Format::Tsv, true, "00ff\t0a").unwrap(), pairs(&[("\\x00\\xff", "\\n")]));
    }

    /// A parser that rescans the field after each line would take hours.
    #[test]
    fn quoted_field_with_a_million_lines_parses_in_linear_time() {
        let text = format!("k,\"{}\"\nl,1\n", "\"\"a\"\"\n".repeat(1_000_000));
        let read = all(Format::Csv, false, &text).unwrap();
        let expected =
            [("k".to_owned(), "\\\"a\\\"\\n".repeat(1_000_000)), ("l".to_owned(), "1".to_owned())];
        assert!(read == expected, "{} bytes", read[0].1.len());
    }

    #[test]
    fn errors_name_the_line_of_the_record() {
        for (format, text, place, expected) in [
            (Format::Tsv, "b\t1\na\t2\n", "in:2", "a key after `b`"),
            (Format::Tsv, "a\t1\na\t2\n", "in:2", "out of order"),
            (Format::Tsv, "a\t1\n\nb\n", "in:3", "a tab"),
            (Format::Csv, "a,\"x\ny\"\nb,1,2\n", "in:3", "got more"),
            (Format::Csv, "a,1\nb\n", "in:2", "got one"),
            (Format::Csv, "a,\"1\n", "in:1", "a quote that ends"),
            (Format::Csv, "a,\"1\"2\"\"\n", "in:1", "a comma"),
            (Format::Jsonl, "{\"key\":\"a\"}\n", "in:1", "\"value\""),
            (Format::Jsonl, "{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}\n", "in:1", "\"value\""),
            (Format::Jsonl, "nonsense\n", "in:1", "\"key\""),
        ] {
            let error = all(format, false, text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(expected), "{text}: {error}");
        }
        assert!(all(Format::Tsv, true, "0\t1\n").unwrap_err().to_string().contains("in:1"));
    }
}

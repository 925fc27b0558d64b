//! Parses keys and values from text, record by record. Keys must ascend strictly.
//!
//! Uses memory for one record, of bounded length.

use std::io::{BufRead, Read};
use std::path::Path;

use clap::ValueEnum;
use serde::Deserialize;
use terracedb::{Error, Result};

use crate::{escape, hex};

/// The longest record as text, bytes: the longest key and value, with every byte as two digits or as a JSON
/// escape of six characters.
const RECORD_BYTES_MAX: u64 = 6 * (base::limits::VALUE_BYTES_MAX as u64 + (64 << 10));

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The key up to the first tab, then the value, with escapes such as \t and \\, as `scan` prints
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

/// The end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Lf,
    CrLf,
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
    /// How the first record ended, which is how all lines end; `None` before it.
    line_end: Option<LineEnd>,
    /// Bytes of text read.
    bytes: u64,
    /// Lines read.
    lines: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R, name: String, format: Format, hex: bool) -> Self {
        let (text, key, value) = (Vec::new(), Vec::new(), Vec::new());
        let (has_previous, line_end, bytes, lines) = (false, None, 0, 0);
        Self { input, name, format, hex, text, key, value, has_previous, line_end, bytes, lines }
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
            if !matches!(&*self.text, b"\n" | b"\r\n") {
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
                self.end_record()?;
                let tab = self.text.iter().position(|byte| *byte == b'\t');
                let parts = tab.and_then(|tab| self.text.split_at_checked(tab));
                let (key, value) = parts
                    .ok_or_else(|| Error::invalid("record").expected("a tab after the key"))?;
                let value = value.get(1..).unwrap_or_default();
                if self.hex {
                    (key.to_vec(), value.to_vec())
                } else {
                    (escape::unescape(key)?, escape::unescape(value)?)
                }
            }
            Format::Csv => self.csv()?,
            Format::Jsonl => {
                self.end_record()?;
                json(&self.text)?
            }
        };
        if !self.hex {
            return Ok((key, value));
        }
        let digits = |text: Vec<u8>| hex::decode(&String::from_utf8_lossy(&text));
        Ok((digits(key)?, digits(value)?))
    }

    /// Removes the line end from the text of the current record. A carriage return before a newline may also
    /// be the last byte of the value, so every line must end as the first one.
    fn end_record(&mut self) -> Result<()> {
        if self.text.last() != Some(&b'\n') {
            // The last line of the input.
            if self.line_end == Some(LineEnd::CrLf) && self.text.last() == Some(&b'\r') {
                return Err(Error::invalid("line end").expected("CR LF, as before").got("CR"));
            }
            return Ok(());
        }
        self.text.pop();
        let found = match self.text.last() {
            Some(b'\r') => LineEnd::CrLf,
            _ => LineEnd::Lf,
        };
        match (*self.line_end.get_or_insert(found), found) {
            (LineEnd::Lf, LineEnd::CrLf) => {
                let error = Error::invalid("line end").got("CR LF");
                return Err(match self.format {
                    Format::Tsv => error.expected(r"LF, as before; \r is a CR of the value"),
                    Format::Csv => error.expected("LF, as before; a quoted value may have a CR"),
                    Format::Jsonl => error.expected("LF, as before"),
                });
            }
            (LineEnd::CrLf, LineEnd::Lf) => {
                return Err(Error::invalid("line end").expected("CR LF, as before").got("LF"));
            }
            (LineEnd::CrLf, LineEnd::CrLf) => drop(self.text.pop()),
            (LineEnd::Lf, LineEnd::Lf) => {}
        }
        Ok(())
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
        self.end_record()?;
        let (key, rest) = field(&self.text)?;
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

fn has_odd_quotes(text: &[u8]) -> bool {
    text.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

/// The first field of a CSV record, and the text after it.
fn field(text: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| *byte == b',').unwrap_or(text.len());
        let (field, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
        if field.contains(&b'"') {
            return Err(Error::invalid("record").expected("quotes around a field that has quotes"));
        }
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

/// A record as JSON: an object with these texts, each once, and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRecord {
    key: String,
    value: String,
}

fn json(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let JsonRecord { key, value } = serde_json::from_slice(text).map_err(|error| {
        let refused = Error::invalid("record").expected(r#"{"key": "...", "value": "..."}"#);
        refused.caused_by(error)
    })?;
    Ok((key.into_bytes(), value.into_bytes()))
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
        assert_eq!(read(Format::Tsv, "a\\tb\\\\\t\\x00\\r\n"), pairs(&[("a\\tb\\\\", "\\x00\\r")]));
        assert_eq!(
            read(Format::Csv, "a,1\r\n\"b,\"\"x\"\"\",\"two\nlines\"\r\nc,\r\n"),
            pairs(&[("a", "1"), ("b,\\\"x\\\"", "two\\nlines"), ("c", "")])
        );
        let lines = "{\"key\":\"a\",\"value\":\"\\u0000\"}\n{\"value\":\"2\",\"key\":\"b\"}\n";
        assert_eq!(read(Format::Jsonl, lines), pairs(&[("a", "\\x00"), ("b", "2")]));
        assert_eq!(all(Format::Tsv, true, "00ff\t0a").unwrap(), pairs(&[("\\x00\\xff", "\\n")]));
    }

    /// A carriage return is part of the value or of the line end, and never dropped in doubt.
    #[test]
    fn all_lines_end_as_the_first_one() {
        for format in [Format::Tsv, Format::Csv] {
            let read = |text: &str| match format {
                Format::Csv => all(format, false, &text.replace('\t', ",")),
                _ => all(format, false, text),
            };
            assert_eq!(read("a\t1\r\n\r\nb\t2\r\n").unwrap(), pairs(&[("a", "1"), ("b", "2")]));
            assert_eq!(read("a\t1\nb\t2\r").unwrap(), pairs(&[("a", "1"), ("b", "2\\r")]));
            assert_eq!(read("a\t1\r\nb\t2").unwrap(), pairs(&[("a", "1"), ("b", "2")]));
            for text in ["a\t1\nb\t2\r\n", "a\t1\r\nb\t2\n", "a\t1\r\nb\t2\r"] {
                let error = read(text).unwrap_err().to_string();
                assert!(error.contains("in:2") && error.contains("line end"), "{text:?}: {error}");
            }
        }
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
            (Format::Jsonl, "{\"key\":\"a\",\"key\":\"b\",\"value\":\"\"}\n", "in:1", "\"key\""),
            (Format::Tsv, "a\tC:\\dir\n", "in:1", "for a backslash"),
            (Format::Csv, "a,5\" disk\nb,6\" disk\n", "in:1", "quotes around"),
        ] {
            let error = all(format, false, text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(expected), "{text}: {error}");
        }
        assert!(all(Format::Tsv, true, "0\t1\n").unwrap_err().to_string().contains("in:1"));
    }
}

//! Rows of an input: a key and a value each, from lines, CSV records or JSON objects. A row that is wrong is
//! an error of that row alone, and the next one can be read.

use std::io::BufRead;

use clap::ValueEnum;
use terracedb::{Error, Result};

use super::csv_rows::CsvRows;
use super::json_rows::JsonRows;
use super::lines::Lines;
use crate::{escape, hex};

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The key up to the first tab, then the value, with escapes such as \t and \\, as `scan` prints
    Tsv,
    /// Columns, quoted if needed (RFC 4180), named in the first line; --key and --value choose
    Csv,
    /// A JSON object per line; --key and --value choose fields
    Jsonl,
    /// A whole store, as `terrace dump` writes it
    Dump,
}

/// The columns or fields that are chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) key: Option<String>,
    pub(super) values: Vec<String>,
    pub(super) is_hex: bool,
    pub(super) has_header: bool,
    pub(super) delimiter: u8,
}

impl Selection {
    /// The bytes of a text: those of the text itself, or hexadecimal digits.
    pub(super) fn bytes(&self, text: &[u8]) -> Result<Vec<u8>> {
        match self.is_hex {
            true => hex::decode(&String::from_utf8_lossy(text)),
            false => Ok(text.to_vec()),
        }
    }
}

/// A row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Reads rows from `R`.
pub(super) enum Rows<R> {
    Tsv(TsvRows<R>),
    Csv(Box<CsvRows<R>>),
    Jsonl(JsonRows<R>),
}

impl<R: BufRead> Rows<R> {
    /// Rows of at most `bytes_max` bytes of text.
    ///
    /// # Errors
    /// `Invalid` if the header of a CSV file lacks a chosen column; that of the input.
    pub(super) fn new(
        input: R,
        format: Format,
        selection: Selection,
        bytes_max: usize,
    ) -> Result<Self> {
        Ok(match format {
            Format::Csv => Self::Csv(Box::new(CsvRows::new(input, selection, bytes_max)?)),
            Format::Jsonl => Self::Jsonl(JsonRows::new(Lines::new(input, bytes_max), selection)),
            Format::Tsv | Format::Dump => Self::Tsv(TsvRows {
                lines: Lines::new(input, bytes_max),
                is_hex: selection.is_hex,
                has_cr: None,
            }),
        })
    }

    /// The next row; `None` at the end. The inner error is that of this row alone.
    ///
    /// # Errors
    /// That of the input.
    pub(super) fn next(&mut self) -> Result<Option<Result<Row>>> {
        match self {
            Self::Tsv(rows) => rows.next(),
            Self::Csv(rows) => rows.next(),
            Self::Jsonl(rows) => rows.next(),
        }
    }

    /// The number of the line on which the last row began.
    pub(super) const fn line(&self) -> u64 {
        match self {
            Self::Tsv(rows) => rows.lines.number(),
            Self::Csv(rows) => rows.line(),
            Self::Jsonl(rows) => rows.line(),
        }
    }

    /// Bytes of text read.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tsv(rows) => rows.lines.bytes(),
            Self::Csv(rows) => rows.bytes(),
            Self::Jsonl(rows) => rows.bytes(),
        }
    }
}

/// Lines with a tab between key and value.
pub(super) struct TsvRows<R> {
    lines: Lines<R>,
    is_hex: bool,
    /// Whether the first line ended with CR LF, as all must then. A CR may also be the last byte of a value,
    /// so it is never dropped in doubt.
    has_cr: Option<bool>,
}

impl<R: BufRead> TsvRows<R> {
    fn next(&mut self) -> Result<Option<Result<Row>>> {
        Ok(self.lines.next()?.map(|line| line.and_then(|()| self.row())))
    }

    fn row(&mut self) -> Result<Row> {
        let text = self.lines.text();
        let ended = text.strip_suffix(b"\n");
        let text = ended.unwrap_or(text);
        let without_cr = text.strip_suffix(b"\r");
        if ended.is_some() {
            match (*self.has_cr.get_or_insert(without_cr.is_some()), without_cr.is_some()) {
                (true, false) => {
                    return Err(Error::invalid("line end").expected("CR LF, as before").got("LF"));
                }
                (false, true) => {
                    return Err(Error::invalid("line end")
                        .expected(r"LF, as before; \r is a CR of the value")
                        .got("CR LF"));
                }
                _ => {}
            }
        }
        let text = match self.has_cr {
            Some(true) if ended.is_some() => without_cr.unwrap_or(text),
            _ => text,
        };
        let tab = text.iter().position(|byte| *byte == b'\t');
        let (key, value) = tab
            .and_then(|tab| Some((text.get(..tab)?, text.get(tab + 1..)?)))
            .ok_or_else(|| Error::invalid("row").expected("a tab after the key"))?;
        let bytes = |text: &[u8]| match self.is_hex {
            true => hex::decode(&String::from_utf8_lossy(text)),
            false => escape::unescape(text),
        };
        Ok(Row { key: bytes(key)?, value: bytes(value)? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads all rows: each as `key=value`, or as `LINE: error`.
    pub(crate) fn all(format: Format, selection: &Selection, text: &str) -> Vec<String> {
        let mut rows = Rows::new(text.as_bytes(), format, selection.clone(), 1000).unwrap();
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            all.push(match row {
                Ok(Row { key, value }) => {
                    format!("{}={}", key.escape_ascii(), String::from_utf8_lossy(&value))
                }
                Err(error) => format!("{}: {error}", rows.line()),
            });
        }
        assert_eq!(rows.bytes(), text.len() as u64);
        all
    }

    pub(crate) fn selection(key: &str, values: &[&str]) -> Selection {
        Selection {
            key: Some(key.to_owned()).filter(|key| !key.is_empty()),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            is_hex: false,
            has_header: true,
            delimiter: b',',
        }
    }

    #[test]
    fn lines_are_rows_and_wrong_ones_are_errors_of_their_own() {
        let read = |text: &str| all(Format::Tsv, &selection("", &[]), text);
        assert_eq!(read("b\t1\n\na\\tc\tx\ty\nlast\t"), ["b=1", "a\\tc=x\ty", "last="]);
        assert_eq!(read("b\t1\r\na\t2\r\n"), ["b=1", "a=2"]);
        let rows = read(&format!("a\t1\nnone\n{}\nb\t2\r\nc\tC:\\dir\nd\t3\n", "x".repeat(3000)));
        assert_eq!((&*rows[0], &*rows[5], rows.len()), ("a=1", "d=3", 6));
        for (row, expected) in rows[1..5].iter().zip([
            "2: invalid: row",
            "3: invalid: line",
            "4: invalid: line end",
            "5: invalid: ",
        ]) {
            assert!(row.starts_with(expected), "{row}");
        }
        let rows =
            all(Format::Tsv, &Selection { is_hex: true, ..selection("", &[]) }, "61\t62\n6\t1\n");
        assert!(rows[0] == "a=b" && rows[1].starts_with("2: "), "{rows:?}");
    }
}

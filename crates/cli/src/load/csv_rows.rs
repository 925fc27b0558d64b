//! Rows of a CSV file with chosen columns.

use std::io::{self, BufRead, Read};

use csv::{ByteRecord, ReaderBuilder};
use terracedb::{Error, Result};

use super::rows::{Row, Selection};

/// The reader's buffer: bytes that it may read ahead of a record.
const BUFFER_BYTES: usize = 64 << 10;

/// See the module.
pub(super) struct CsvRows<R> {
    reader: csv::Reader<Limited<R>>,
    record: ByteRecord,
    selection: Selection,
    /// Longest record, bytes.
    bytes_max: usize,
    /// The names of the columns, if the file has them.
    header: Option<Vec<String>>,
    /// The columns of key and value, known with the first record.
    columns: Option<Columns>,
    line: u64,
}

/// Chosen columns, from 0.
struct Columns {
    key: usize,
    /// The columns of the value, with their names.
    values: Vec<(usize, String)>,
    /// Number of columns.
    count: usize,
}

impl<R: BufRead> CsvRows<R> {
    pub(super) fn new(input: R, selection: Selection, bytes_max: usize) -> Result<Self> {
        let limited = Limited { input, left: 0, bytes: 0 };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(selection.delimiter)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(limited);
        let record = ByteRecord::new();
        let (header, columns, line) = (None, None, 0);
        let mut rows = Self { reader, record, selection, bytes_max, header, columns, line };
        if rows.selection.has_header && rows.read()? {
            let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
            let mut names: Vec<String> = rows.record.iter().map(text).collect();
            if let Some(first) = names.first_mut() {
                // The mark that some programs write before UTF-8.
                *first = first.trim_start_matches('\u{feff}').to_owned();
            }
            rows.columns = Some(Columns::of(&rows.selection, &names, names.len())?);
            rows.header = Some(names);
        }
        Ok(rows)
    }

    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn bytes(&self) -> u64 {
        self.reader.get_ref().bytes
    }

    /// Reads the next record. Returns whether there is one.
    fn read(&mut self) -> Result<bool> {
        self.reader.get_mut().left = self.bytes_max + BUFFER_BYTES;
        let read = self.reader.read_byte_record(&mut self.record);
        self.line = match self.record.position() {
            Some(position) => position.line(),
            None => self.reader.position().line(),
        };
        read.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Error::invalid("record").at(format_args!("line {}", self.line)).expected(
                    format_args!(
                        "at most {} bytes (a quote that is not closed?), or more --sort-memory",
                        self.bytes_max
                    ),
                )
            }
            csv::ErrorKind::Io(error) => Error::io("read", "input", error),
            other => Error::invalid("record").expected("CSV").got(format_args!("{other:?}")),
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Result<Row>>> {
        if !self.read()? {
            return Ok(None);
        }
        let count = self.record.len();
        if self.columns.is_none() {
            self.columns = Some(Columns::of(&self.selection, &[], count)?);
        }
        let Some(columns) = &self.columns else {
            return Err(base::broken_invariant!("columns are chosen with the first record"));
        };
        Ok(Some(columns.row(&self.record, &self.selection)))
    }
}

impl Columns {
    /// The chosen columns among `count`, called `names` if they have names: by default the first is the key
    /// and the others are the value.
    fn of(selection: &Selection, names: &[String], count: usize) -> Result<Self> {
        let find = |argument: &'static str, wanted: &str| {
            let by_name = names.iter().position(|name| name == wanted);
            let by_number = || wanted.parse::<usize>().ok()?.checked_sub(1);
            by_name.or_else(by_number).filter(|at| *at < count).ok_or_else(|| {
                let named = match names {
                    [] => String::new(),
                    names => format!("one of [{}], or ", names.join(", ").escape_debug()),
                };
                Error::invalid(argument)
                    .expected(format_args!("{named}a number from 1 to {count}"))
                    .got(format_args!("`{wanted}`"))
            })
        };
        let name_of = |at: usize| names.get(at).cloned().unwrap_or_else(|| (at + 1).to_string());
        let key = match &selection.key {
            Some(key) => find("--key", key)?,
            None => 0,
        };
        let values: Result<Vec<_>> = match &*selection.values {
            [] => Ok((0..count).filter(|at| *at != key).map(|at| (at, name_of(at))).collect()),
            chosen => chosen
                .iter()
                .map(|name| find("--value", name).map(|at| (at, name_of(at))))
                .collect(),
        };
        Ok(Self { key, values: values?, count })
    }

    /// One column is the value as it is; several are an object of texts.
    fn row(&self, record: &ByteRecord, selection: &Selection) -> Result<Row> {
        if record.len() != self.count {
            return Err(Error::invalid("row")
                .expected(format_args!("{} columns", self.count))
                .got(record.len()));
        }
        let field = |at: usize| record.get(at).unwrap_or_default();
        let value = match &*self.values {
            [(at, _)] => selection.bytes(field(*at))?,
            several => {
                let mut object = Vec::new();
                for (at, name) in several {
                    let text = std::str::from_utf8(field(*at)).map_err(|_| {
                        Error::invalid("row").expected(format_args!("UTF-8 in column `{name}`"))
                    })?;
                    let quoted = |text: &str| serde_json::Value::from(text).to_string();
                    object.push(format!("{}:{}", quoted(name), quoted(text)));
                }
                format!("{{{}}}", object.join(",")).into_bytes()
            }
        };
        Ok(Row { key: selection.bytes(field(self.key))?, value })
    }
}

/// An input that ends with an error after a number of bytes, so that a record has a bounded length.
struct Limited<R> {
    input: R,
    /// Bytes that may still be read for this record.
    left: usize,
    bytes: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(self.left);
        if len == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.input.read(buf.get_mut(..len).unwrap_or_default())?;
        self.left -= read;
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::{all, selection};
    use super::super::rows::{Format, Rows, Selection};

    const TEXT: &str = "id,name,\"size, cm\"\nb,\"Bo \"\"B\"\"\",7\n\na,\"two\nlines\",8\n";

    #[test]
    fn columns_are_chosen_by_name_or_number() {
        let read = |key: &str, values: &[&str]| all(Format::Csv, &selection(key, values), TEXT);
        assert_eq!(read("id", &["name"]), ["b=Bo \"B\"", "a=two\nlines"]);
        assert_eq!(read("size, cm", &["1"]), ["7=b", "8=a"]);
        let objects = [
            r#"b={"name":"Bo \"B\"","size, cm":"7"}"#,
            r#"a={"name":"two\nlines","size, cm":"8"}"#,
        ];
        assert_eq!(read("", &[]), objects, "the first column, and the others");
        let no_header = Selection { has_header: false, delimiter: b';', ..selection("2", &[]) };
        assert_eq!(all(Format::Csv, &no_header, "1;b\r\n2;a\r\n"), ["b=1", "a=2"]);
        let hex = Selection { is_hex: true, ..selection("", &[]) };
        let rows = all(Format::Csv, &hex, "k,v\n61,62\n6,1\n");
        assert!(rows[0] == "a=b" && rows[1].starts_with("3: "), "{rows:?}");
    }

    #[test]
    fn wrong_columns_and_records_are_named() {
        for (key, values, expected) in
            [("no", vec![], "one of [id, name, size, cm]"), ("", vec!["4"], "1 to 3")]
        {
            let error = Rows::new(TEXT.as_bytes(), Format::Csv, selection(key, &values), 1000);
            let error = error.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let rows = all(Format::Csv, &selection("", &[]), "a,b\n1,2,3\n4\n5,6\n");
        assert!(rows[0].starts_with("2: ") && rows[0].contains("2 columns, got 3"), "{rows:?}");
        assert!(rows[1].starts_with("3: ") && rows[2] == "5=6", "{rows:?}");
    }

    #[test]
    fn a_quote_that_is_not_closed_ends_within_the_limit() {
        let text = format!("a,b\n1,\"{}", "x\n".repeat(200_000));
        let mut rows = Rows::new(text.as_bytes(), Format::Csv, selection("", &[]), 1000).unwrap();
        let error = rows.next().unwrap_err().to_string();
        assert!(error.contains("not closed") && error.contains("line 2"), "{error}");
    }
}

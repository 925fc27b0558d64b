//! Reads a configuration file: TOML in which every key must be a known setting.
//!
//! Reading continues after a mistake, so that one run reports all of them.

use std::fs;
use std::path::Path;

use terracedb::{Error, Result};
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use super::setting::Setting;
use super::values::Values;

/// The largest configuration file, in bytes. A longer one is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of a file, and its mistakes.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Each setting with its line.
    pub(crate) set: Vec<(Setting, usize)>,
    /// The mistakes, by line.
    pub(crate) problems: Vec<Error>,
}

/// Reads the file at `path` into `values`.
///
/// # Errors
/// `Invalid` if the file is missing, over 1 MiB, or no text.
pub(crate) fn read(path: &Path, values: &mut Values) -> Result<Read> {
    let refused = |got: String| {
        Error::invalid("configuration file").at(path.display()).expected("a TOML file").got(got)
    };
    let metadata = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(refused(
            if metadata.is_file() { "over 1 MiB" } else { "no regular file" }.to_owned(),
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let mut reader = Reader { path, text: &text, values, read: Read::default() };
    match DeTable::parse(&text) {
        Ok(table) => reader.table("", table.get_ref()),
        Err(error) => {
            let line = reader.line(error.span().map_or(0, |span| span.start));
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            reader.read.problems.push(Error::invalid("TOML").at(line).got(message));
        }
    }
    // The parser returns the keys of a table sorted by name.
    reader.read.problems.sort_by_key(line_of);
    Ok(reader.read)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    values: &'a mut Values,
    read: Read,
}

impl Reader<'_> {
    /// `FILE:LINE` of the byte at `offset`.
    fn line(&self, offset: usize) -> String {
        format!("{}:{}", self.path.display(), self.number(offset))
    }

    /// The line number of the byte at `offset`, from 1.
    fn number(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    /// Reads all keys of a table; `section` is its name, empty for the root.
    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let (start, name) = (name.span().start, name.get_ref());
            let key =
                if section.is_empty() { name.to_string() } else { format!("{section}.{name}") };
            let is_section = section.is_empty()
                && known().any(|known| {
                    known.strip_prefix(&*key).is_some_and(|rest| rest.starts_with('.'))
                });
            match value.get_ref() {
                DeValue::Table(inner) if is_section => self.table(&key, inner),
                value => self.value(&key, value, start),
            }
        }
    }

    /// Reads one key, which starts at byte `start`.
    fn value(&mut self, key: &str, value: &DeValue<'_>, start: usize) {
        let at = self.line(start);
        let problem = if let Some(setting) = Setting::of(key) {
            // A number is accepted as text, except as a path.
            let is_path = matches!(
                setting,
                Setting::FlashPath
                    | Setting::ScmPath
                    | Setting::RemoteUrl
                    | Setting::RemoteEndpoint
                    | Setting::RemoteRegion
                    | Setting::CompactionWorkers
                    | Setting::CompactionTokenFile
                    | Setting::CompactionTlsCa
                    | Setting::CompactionTlsCert
                    | Setting::CompactionTlsKey
                    | Setting::ServeUnixSocket
                    | Setting::ServeAclfile
                    | Setting::ServeTlsCert
                    | Setting::ServeTlsKey
                    | Setting::ServeTlsCa
            );
            let is_list = matches!(setting, Setting::LogPath | Setting::ServeDatabases);
            // As a command line separates several texts.
            let separator = if setting == Setting::ServeDatabases { ' ' } else { ',' };
            let text = |value| text(value, separator);
            let fits = match value {
                DeValue::Array(_) => is_list,
                value => value.is_str() || !(is_path || is_list),
            };
            let set = text(value).filter(|text| fits && setting.set(self.values, text));
            let Some(text) = set else {
                let got = text(value).unwrap_or_else(|| value.type_str().to_owned());
                let error = Error::invalid(format!("setting `{key}`")).at(at);
                let error = error.expected(setting.expects()).got(format_args!("`{got}`"));
                self.read.problems.push(error);
                return;
            };
            if setting == Setting::FlashPath {
                let base = self.path.parent().unwrap_or(Path::new(""));
                self.values.flash_path = Some(base.join(text));
            }
            self.read.set.push((setting, self.number(start)));
            return;
        } else {
            Error::invalid(format!("unknown setting `{key}`")).at(at).expected(suggestion(key))
        };
        self.read.problems.push(problem);
    }
}

/// The keys that a file may name.
fn known() -> impl Iterator<Item = &'static str> {
    Setting::ALL.into_iter().map(Setting::key)
}

/// The setting that the user probably meant by the unknown `key`, or all settings if none is close.
pub(super) fn suggestion(key: &str) -> String {
    nearest(key, known()).map_or_else(
        || format!("one of {}", Setting::ALL.map(Setting::key).join(", ")),
        |known| format!("`{known}`"),
    )
}

/// A value as the user would type it on the command line, several texts with `separator` between them; `None`
/// for a table or date.
fn text(value: &DeValue<'_>, separator: char) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(boolean) => Some(boolean.to_string()),
        DeValue::Array(values) => {
            let texts = values.iter().map(|value| value.get_ref().as_str());
            let texts: Vec<&str> = texts.collect::<Option<_>>()?;
            let is_apart = texts.iter().all(|text| !text.contains(separator));
            is_apart.then(|| texts.join(&separator.to_string()))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// The line that a problem names; 0 if it names none.
fn line_of(problem: &Error) -> usize {
    let number = problem.place().and_then(|place| place.rsplit_once(':')?.1.parse().ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Values, Read) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        fs::write(&path, text).unwrap();
        let mut values = Values::default();
        let mut found = read(&path, &mut values).unwrap();
        for problem in &mut found.problems {
            let place = problem.place().unwrap();
            assert!(place.starts_with(path.to_str().unwrap()), "{place}");
        }
        values.flash_path = values
            .flash_path
            .map(|path| path.strip_prefix(dir.path()).map_or(path.clone(), Path::to_owned));
        (values, found)
    }

    #[test]
    fn file_sets_the_settings_it_names() {
        let text = "memory = \"1.5GiB\" # enough\nsync-interval = 2\nzstd-level = 0x10\n\n[flash]\n\
                    path = \"shop\"\n";
        let (values, read) = read_text(text);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        assert_eq!(values.memory, Some(3 << 29));
        assert_eq!(values.sync_interval.as_secs(), 2);
        assert_eq!(values.zstd_level, 16);
        assert_eq!(values.flash_path.as_deref(), Some(Path::new("shop")));
        let (values, _) = read_text("flash.path = '/data/shop'");
        assert_eq!(values.flash_path.as_deref(), Some(Path::new("/data/shop")));
        assert_eq!(read.set.len(), 4);
        assert!(read.set.contains(&(Setting::FlashPath, 6)));
    }

    #[test]
    fn databases_are_an_array() {
        let text = "[serve]\nlisten = '[::1]:7000'\nmaxclients = 5\n\
                    databases = ['0=keep', '1=window=64MiB,clock', '2=allkeys-fifo=64MiB']\n";
        let (values, read) = read_text(text);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        assert_eq!(values.serve.maxclients, Some(5));
        let shown = Setting::ServeDatabases.show(&values).unwrap();
        assert_eq!(shown.split(' ').count(), 3, "{shown}");
        let mut again = Values::default();
        assert!(Setting::ServeDatabases.set(&mut again, &shown));
        assert_eq!(again.serve.databases, values.serve.databases);
        let (_, read) = read_text("[serve]\ndatabases = ['0=keep 1=keep']\n");
        assert_eq!(read.problems.len(), 1);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        let text = "memroy = \"1GiB\"\ncodec = \"gzip\"\n[remote]\nurl = \"b\"\n[flash]\n\
                    paht = \"x\"\n[[memory]]\n[net]\nport = 1\n[flash.path]\nx = 1\n";
        let (values, read) = read_text(text);
        let problems: Vec<_> = read.problems.iter().map(ToString::to_string).collect();
        let expected = [
            (1, "unknown setting `memroy`", "`memory`"),
            (2, "setting `codec`", "`gzip`"),
            (4, "setting `remote.url`", "got `b`"),
            (6, "unknown setting `flash.paht`", "`flash.path`"),
            (7, "setting `memory`", "got `array`"),
            (8, "unknown setting `net`", "one of memory"),
            (10, "setting `flash.path`", "got `table`"),
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, (line, subject, rest)) in problems.iter().zip(expected) {
            assert!(problem.contains(&format!("t.toml:{line}")), "{line}: {problem}");
            assert!(problem.contains(subject) && problem.contains(rest), "{subject}: {problem}");
        }
        assert_eq!(values, Values::default());
    }

    #[test]
    fn invalid_toml_is_reported_with_its_line() {
        let (_, read) = read_text("[flash]\npath = 3\n");
        assert!(read.problems[0].to_string().contains("expected a directory, got `3`"));
        for (text, line) in [("memory = 1GiB\n", 1), ("a = 1\n\nb = \n", 3), ("x = 1\nx = 2", 2)] {
            let (_, read) = read_text(text);
            let problem = read.problems.last().unwrap().to_string();
            assert!(problem.contains(&format!("t.toml:{line}")), "{problem}");
            assert!(!problem.contains('\n'), "{problem}");
        }
    }
}

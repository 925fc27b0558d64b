//! Property files in YCSB's format: lines `name=value`, with `#` or `!` before a comment.

use std::collections::BTreeMap;
use std::str::FromStr;

use base::{Error, Result};

use super::input::Input;

/// The most properties per file. Workload files have a few dozen.
const PROPERTIES_MAX: usize = 4096;

/// The properties of one file. The last value of a name counts.
pub(super) struct Properties(BTreeMap<String, String>);

impl Properties {
    pub(super) fn read(input: &mut Input) -> Result<Self> {
        let mut properties = BTreeMap::new();
        while input.next_line()? {
            let Ok(line) = std::str::from_utf8(input.text()) else {
                return Err(input.bad_line("UTF-8"));
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((name, value)) = line.split_once(['=', ':']) else {
                return Err(input.bad_line("`name=value`"));
            };
            properties.insert(name.trim().to_owned(), value.trim().to_owned());
            if properties.len() > PROPERTIES_MAX {
                return Err(input.bad_line(format_args!("at most {PROPERTIES_MAX} properties")));
            }
        }
        Ok(Self(properties))
    }

    /// The value of `name`, or `default` if the file does not set it.
    pub(super) fn get<T: FromStr>(&self, name: &'static str, default: T) -> Result<T> {
        let Some(text) = self.0.get(name) else { return Ok(default) };
        text.parse().map_err(|_| {
            Error::invalid("workload property")
                .at(name)
                .expected(format_args!("a {}", std::any::type_name::<T>()))
                .got(format_args!("`{text}`"))
        })
    }

    /// The value of `name`, which must be one of `allowed`, or the first of them if the file does not set it.
    pub(super) fn choice(
        &self,
        name: &'static str,
        allowed: &[&'static str],
    ) -> Result<&'static str> {
        let Some(text) = self.0.get(name) else {
            return Ok(allowed.first().copied().unwrap_or_default());
        };
        allowed.iter().copied().find(|choice| choice == text).ok_or_else(|| {
            Error::invalid("workload property")
                .at(name)
                .expected(allowed.join(" or "))
                .got(format_args!("`{text}`"))
        })
    }
}

//! Prices from a TOML file, or built-in ones.
//!
//! Every figure must be present and must be a number from 0 to 1e15. A missing or unknown key is an error
//! with its line; there are no default figures.

use std::fs;
use std::path::Path;

use terracedb::{Error, Result};
use toml::de::{DeTable, DeValue};
use workload::plan::{ObjectStore, Prices, Processor, Server, Tier};

/// Built-in prices by year.
const BUILT_IN: [(&str, &str); 3] = [
    ("2017", include_str!("prices-2017.toml")),
    ("2019", include_str!("prices-2019.toml")),
    ("2026", include_str!("prices-2026.toml")),
];

/// The year of the default prices.
pub(super) const DEFAULT: &str = "2026";

/// The largest price file, in bytes. A longer one is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The largest number of servers in a file.
const SERVERS_MAX: usize = 64;

/// The TOML text of prices; `name` is a built-in year or a file's path.
///
/// # Errors
/// `Invalid` if there is no such file, or it is over 1 MiB.
pub(super) fn text(name: &str) -> Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(year, _)| *year == name) {
        return Ok((*text).to_owned());
    }
    let refused = |got: String| {
        let years = BUILT_IN.map(|(year, _)| year).join(", ");
        Error::invalid("--prices")
            .at(name)
            .expected(format_args!("a TOML file, or one of {years}"))
            .got(got)
    };
    let metadata = fs::metadata(Path::new(name)).map_err(|error| refused(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(refused(
            if metadata.is_file() { "over 1 MiB" } else { "no regular file" }.to_owned(),
        ));
    }
    fs::read_to_string(name).map_err(|error| refused(error.to_string()))
}

/// Parses prices; `name` names the file in errors.
///
/// # Errors
/// `Invalid`, with the line, if `text` is no TOML, a key is missing or unknown, or a value is out of range.
pub(super) fn parse(name: &str, text: &str) -> Result<Prices> {
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let place = |at: usize| format!("{name}:{}", line(at));
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        Error::invalid("prices").at(place(at)).expected("TOML").got(message)
    })?;
    let mut prices = Prices::default();
    let mut root = Section { name: "", table: root.get_ref(), at: place(0), known: Vec::new() };
    prices.name = root.text("name")?;
    let mut sources = Vec::new();
    for (key, tier) in
        [("dram", &mut prices.dram), ("scm", &mut prices.scm), ("flash", &mut prices.flash)]
    {
        let mut section = root.section(key, &place)?;
        *tier = section.tier()?;
        sources.push((key.to_owned(), section.text("source")?));
        section.refuse_unknown_keys(&place)?;
    }
    if root.table.contains_key("object_store") {
        let mut section = root.section("object_store", &place)?;
        prices.object_store = Some(ObjectStore {
            dollars_per_million_gets: section.number("dollars_per_million_gets")?,
            dollars_per_gib_month: section.number("dollars_per_gib_month")?,
        });
        sources.push(("object_store".to_owned(), section.text("source")?));
        section.refuse_unknown_keys(&place)?;
    }
    let mut section = root.section("processor", &place)?;
    prices.processor = Processor {
        row: section.number("row_us")?,
        page: section.number("page_us")?,
        in_flight: section.number("in_flight")?,
    };
    sources.push(("processor".to_owned(), section.text("source")?));
    section.refuse_unknown_keys(&place)?;
    for mut section in root.sections("server", &place)? {
        let server = section.server()?;
        sources.push((server.name.clone(), section.text("source")?));
        section.refuse_unknown_keys(&place)?;
        prices.servers.push(server);
    }
    root.refuse_unknown_keys(&place)?;
    prices.sources = sources;
    Ok(prices)
}

/// A table of the file, and the keys of it that have been read.
struct Section<'a> {
    name: &'static str,
    table: &'a DeTable<'a>,
    at: String,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The value of `key`, which becomes a known key.
    fn value(&mut self, key: &'static str) -> Option<&'a DeValue<'a>> {
        self.known.push(key);
        self.table.get(key).map(|value| value.get_ref())
    }

    fn refused(&self, key: &str, expected: &str, value: Option<&DeValue<'_>>) -> Error {
        let dot = if self.name.is_empty() { "" } else { "." };
        let got = match value {
            None => "nothing".to_owned(),
            Some(DeValue::Integer(it)) => it.as_str().to_owned(),
            Some(DeValue::Float(it)) => it.as_str().to_owned(),
            Some(other) => other.type_str().to_owned(),
        };
        Error::invalid(format!("`{}{dot}{key}`", self.name))
            .at(&self.at)
            .expected(expected)
            .got(got)
    }

    fn number(&mut self, key: &'static str) -> Result<f64> {
        let value = self.value(key);
        let number = match value {
            Some(DeValue::Integer(number)) => number.as_str().parse::<f64>().ok(),
            Some(DeValue::Float(number)) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        number
            .filter(|number| number.is_finite() && (0.0..=1e15).contains(number))
            .ok_or_else(|| self.refused(key, "a number from 0 to 1e15", value))
    }

    fn text(&mut self, key: &'static str) -> Result<String> {
        let value = self.value(key);
        let text = value.and_then(DeValue::as_str);
        text.map(str::to_owned).ok_or_else(|| self.refused(key, "a text", value))
    }

    fn tier(&mut self) -> Result<Tier> {
        let stalls = self.value("stalls");
        Ok(Tier {
            dollars: self.number("dollars_per_gib")?,
            watts: self.number("watts_per_gib")?,
            latency: self.number("latency_us")?,
            stalls: stalls
                .and_then(DeValue::as_bool)
                .ok_or_else(|| self.refused("stalls", "true or false", stalls))?,
            cpu: self.number("cpu_us")?,
            pages: self.number("pages_per_second")?,
        })
    }

    fn server(&mut self) -> Result<Server> {
        Ok(Server {
            name: self.text("name")?,
            cores: self.number("cores")?,
            dollars: self.number("dollars")?,
            watts: self.number("watts")?,
            dram_max: self.number("dram_max_gib")?,
        })
    }

    fn section(
        &mut self,
        name: &'static str,
        place: &dyn Fn(usize) -> String,
    ) -> Result<Section<'a>> {
        self.known.push(name);
        let spanned = self.table.get(name);
        let table = spanned.and_then(|value| Some((value.get_ref().as_table()?, value.span())));
        let (table, span) = table
            .ok_or_else(|| self.refused(name, "a table", spanned.map(|value| value.get_ref())))?;
        Ok(Section { name, table, at: place(span.start), known: Vec::new() })
    }

    fn sections(
        &mut self,
        name: &'static str,
        place: &dyn Fn(usize) -> String,
    ) -> Result<Vec<Section<'a>>> {
        let value = self.value(name);
        let refused = |this: &Self| this.refused(name, "1 to 64 tables", value);
        let array = value.and_then(DeValue::as_array).ok_or_else(|| refused(self))?;
        if array.is_empty() || array.len() > SERVERS_MAX {
            return Err(refused(self));
        }
        let sections = array.iter().map(|value| {
            let table = value.get_ref().as_table().ok_or_else(|| refused(self))?;
            Ok(Section { name, table, at: place(value.span().start), known: Vec::new() })
        });
        sections.collect()
    }

    /// Refuses a key that was not read.
    fn refuse_unknown_keys(&self, place: &dyn Fn(usize) -> String) -> Result<()> {
        let unknown = |key: &str| !self.known.contains(&key);
        match self.table.iter().find(|(key, _)| unknown(key.get_ref())) {
            None => Ok(()),
            Some((key, _)) => Err(Error::invalid(format!("unknown key `{}`", key.get_ref()))
                .at(place(key.span().start))
                .expected(format_args!("one of {}", self.known.join(", ")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_prices_parse_and_name_their_sources() {
        for (year, text) in BUILT_IN {
            let prices = parse(year, text).unwrap();
            assert!(prices.name.starts_with(year));
            assert_eq!(prices.servers.len(), 2);
            assert_eq!(prices.sources.len(), 7);
            assert!(prices.sources.iter().all(|(_, source)| source.len() > 10));
            assert!(prices.dram.dollars > prices.scm.dollars);
        }
    }

    #[test]
    fn mistake_is_reported_with_its_line() {
        let good = BUILT_IN[1].1;
        for (from, to, expected) in [
            ("cores = 16", "cores = -1", "`server.cores` at prices:41"),
            ("cores = 16", "kerne = 16", "`server.cores`"),
            ("row_us = 0.6", "row_us = \"fast\"", "`processor.row_us`"),
            ("row_us = 0.6", "row_us = nan", "0 to 1e15"),
            ("in_flight = 8", "in_flight = 8\nflights = 9", "unknown key `flights`"),
            ("[scm]", "[skm]", "`scm`"),
            ("[scm]", "[scm", "TOML"),
            ("stalls = true", "stalls = 1", "true or false"),
            ("[[server]]", "[server]", "prices:"),
        ] {
            let error = parse("prices", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        assert!(parse("prices", "").is_err());
    }

    #[test]
    fn truncated_file_does_not_panic() {
        for (_, text) in BUILT_IN {
            for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let _ = parse("cut", text.get(..end).unwrap());
            }
        }
    }
}

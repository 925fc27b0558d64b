//! The stored results of a case of the comparison, as `peers` writes them, and statistics over its runs.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Result;
use crate::workspace::Text;

/// The figures of one step of one run. `peers/src/measured.rs` has their meaning.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    pub(crate) ops_per_sec: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) cpu_seconds_per_million: f64,
    pub(crate) device_reads_per_op: f64,
    pub(crate) write_amplification: Option<f64>,
    pub(crate) peak_rss_bytes: f64,
    pub(crate) space_bytes: f64,
    pub(crate) found: Option<f64>,
    pub(crate) cached: Option<f64>,
    pub(crate) compacted_mb_per_cpu_second: Option<f64>,
    pub(crate) rates: Vec<f64>,
    pub(crate) index_bytes_per_key: Option<f64>,
    pub(crate) megabits_per_second: Option<f64>,
    pub(crate) kinds: BTreeMap<String, OfKind>,
}

/// The figures of one kind of operation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OfKind {
    pub(crate) ops_per_sec: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

/// The results of one store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoreResult {
    /// Every option with its value.
    pub(crate) options: Vec<String>,
    /// The figures of each step, by run.
    pub(crate) steps: BTreeMap<String, Vec<Measured>>,
    /// Failed runs, with the reasons.
    pub(crate) failures: Vec<String>,
}

/// One file of `results`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CaseResult {
    pub(crate) case: String,
    pub(crate) summary: String,
    pub(crate) scale: String,
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: String,
    pub(crate) bound: String,
    pub(crate) steps: Vec<String>,
    pub(crate) stores: Vec<(String, StoreResult)>,
}

/// The median, the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The results of every case in `texts`, by case: those of a full run, or else of a quick one.
pub(crate) fn all(texts: &[Text]) -> Result<Vec<CaseResult>> {
    let mut found = BTreeMap::new();
    for folder in ["results/quick/", "results/"] {
        for text in texts {
            let name = text.path.strip_prefix(folder).and_then(|name| name.strip_suffix(".json"));
            if let Some(name) = name.filter(|name| !name.contains('/')) {
                found.insert(name, text);
            }
        }
    }
    found.into_values().map(|text| parse(&text.path, &text.content)).collect()
}

/// The results in `content`, the file at `path`.
pub(crate) fn parse(path: &str, content: &str) -> Result<CaseResult> {
    serde_json::from_str(content).map_err(|error| format!("{path}: {error}").into())
}

impl CaseResult {
    /// Whether the run was a quick one.
    pub(crate) fn is_quick(&self) -> bool {
        self.scale == "quick"
    }

    /// The file of the results, from the root.
    pub(crate) fn path(&self) -> String {
        format!("results/{}{}.json", if self.is_quick() { "quick/" } else { "" }, self.case)
    }

    /// The most runs of a step.
    pub(crate) fn runs(&self) -> usize {
        let runs = self.stores.iter().flat_map(|(_, store)| store.steps.values().map(Vec::len));
        runs.max().unwrap_or(0)
    }

    /// The results of the store with this name.
    pub(crate) fn store(&self, name: &str) -> Option<&StoreResult> {
        self.stores.iter().find(|(found, _)| found == name).map(|(_, store)| store)
    }
}

/// Whether a store of this name is TerraceDB.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with("terrace")
}

impl StoreResult {
    /// The spread of a figure over the runs of a step, if any run has the figure.
    pub(crate) fn spread(
        &self,
        step: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.steps.get(step)?.iter().filter_map(figure).collect())
    }

    /// The rate of a step and its unit: MB per second of processor time of a compaction, which counts no
    /// operations; otherwise operations per second.
    pub(crate) fn rate(&self, step: &str) -> Option<(Spread, &'static str)> {
        let compacted = self.spread(step, |measured| measured.compacted_mb_per_cpu_second);
        compacted.map(|spread| (spread, " MB per CPU s")).or_else(|| {
            self.spread(step, |measured| Some(measured.ops_per_sec)).map(|spread| (spread, ""))
        })
    }
}

impl Spread {
    /// The spread of `values`, if there are any.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), least, most })
    }
}

/// At least three digits, with thousands separated.
pub(crate) fn digits(value: f64) -> String {
    if value < 100.0 {
        let places = if value < 1.0 {
            3
        } else if value < 10.0 {
            2
        } else {
            1
        };
        return format!("{value:.places$}");
    }
    let whole = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_least_and_the_greatest() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, least: 1.0, most: 9.0 }));
        assert_eq!(spread(&[4.0, 2.0]), Some(Spread { median: 3.0, least: 2.0, most: 4.0 }));
    }

    #[test]
    fn numbers_read_well() {
        let shown = [0.0123, 1.234, 45.67, 999.6, 1_234_567.0].map(digits);
        assert_eq!(shown, ["0.012", "1.23", "45.7", "1,000", "1,234,567"]);
    }
}

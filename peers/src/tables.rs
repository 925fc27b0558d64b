//! Results as tables: the part of `docs/benchmarks.md` between the markers.

use std::fmt::Write as _;
use std::path::Path;

use base::{Error, Result};
use workload::cases::{CASES, Scale};

use crate::chart;
use crate::compare::{result_path, write};
use crate::measured::{CaseResult, Measured, OfKind, Spread, StoreResult};

/// The markers around the tables.
const BEGIN: &str = "<!-- peers: written by `cargo xtask peers` -->";
const END: &str = "<!-- peers end -->";

const MIB: f64 = (1u64 << 20) as f64;

/// Writes the tables of all results into `document`, and a chart of each case beside it. If a case has no
/// full results, its quick results are shown and marked as such.
pub(crate) fn update(results: &Path, document: &Path) -> Result<()> {
    let mut tables = String::new();
    for case in CASES {
        let found = [Scale::Full, Scale::Quick]
            .into_iter()
            .find_map(|scale| std::fs::read_to_string(result_path(results, case.name, scale)).ok());
        let Some(text) = found else { continue };
        let result: CaseResult = serde_json::from_str(&text)
            .map_err(|error| Error::invalid("results").at(case.name).caused_by(error))?;
        let chart = Path::new("charts").join(format!("{}.svg", case.name));
        let folder = document.parent().unwrap_or(document);
        write(&folder.join(&chart), &chart::draw(&result))?;
        let rows: Vec<String> = case.rows.iter().map(u8::to_string).collect();
        let _never = writeln!(
            tables,
            "\n### Row{} {}: {}\n",
            if rows.len() > 1 { "s" } else { "" },
            rows.join(", "),
            case.summary
        );
        tables += &table(&result, &chart.display().to_string());
    }
    let io = |error| Error::io("read", document.display(), error);
    let text = std::fs::read_to_string(document).map_err(io)?;
    let text = between(&text, &tables).ok_or_else(|| {
        Error::invalid("document").at(document.display()).expected(format_args!("{BEGIN} .. {END}"))
    })?;
    write(document, &text)
}

/// `text` with `tables` between the markers.
fn between(text: &str, tables: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{tables}\n{END}{after}"))
}

/// The table of a case.
fn table(result: &CaseResult, chart: &str) -> String {
    let runs = result.stores.iter().flat_map(|(_, store)| store.steps.values().map(Vec::len));
    let runs = runs.max().unwrap_or(0);
    let mut text = String::new();
    let _never = write!(
        text,
        "`{}` - {}, {} run{} of each store, in turn; {}, commit {}, {}. Memory bound: {}.\n\n\
         ![{}]({chart})\n\n",
        result.command,
        match result.scale.as_str() {
            "full" => "full",
            _ => "a quick look (large data and its memory divided by 8, a fifth of the time)",
        },
        runs,
        if runs == 1 { "" } else { "s" },
        result.date,
        result.commit,
        result.machine,
        result.bound,
        result.case,
    );
    text += "| step | store | ops/s (least - most) | ours / theirs | P50 / P99 / P99.9 us | worst ms \
             | CPU s per M | device reads per op | bytes written per byte | peak RSS MiB | space MiB |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    let own = result.stores.iter().find(|(name, _)| name.starts_with("terrace"));
    for step in &result.steps {
        for (name, store) in &result.stores {
            let own = own.filter(|(own, _)| own != name).map(|(_, store)| store);
            if let Some(row) = row(step, name, store, own) {
                text += &row;
            }
        }
    }
    text += &kinds(result, own.map(|(name, _)| name.as_str()));
    let failures = result.stores.iter().flat_map(|(name, store)| {
        store.failures.iter().map(move |failure| format!("- {name}: {failure}\n"))
    });
    let failures: String = failures.collect();
    if !failures.is_empty() {
        let _never = write!(text, "\nRuns that did not end well:\n\n{failures}");
    }
    text += "\n<details><summary>Options</summary>\n\n";
    for (name, store) in &result.stores {
        let _never = writeln!(text, "- **{name}**: {}", store.options.join("; "));
    }
    text + "\n</details>\n"
}

fn row(step: &str, name: &str, store: &StoreResult, own: Option<&StoreResult>) -> Option<String> {
    // A compaction does not count operations.
    let rate = |store: &StoreResult| {
        store
            .spread(step, |m| m.compacted_mb_per_cpu_second)
            .map(|spread| (spread, " MB per CPU s"))
            .or_else(|| store.spread(step, |m| Some(m.ops_per_sec)).map(|spread| (spread, "")))
    };
    let (spread, unit) = rate(store)?;
    let ratio = own.and_then(rate).map(|(own, _)| own.median / spread.median);
    let of = |figure: fn(&Measured) -> Option<f64>, show: fn(f64) -> String| {
        store.spread(step, figure).map_or_else(|| "-".to_owned(), |spread| show(spread.median))
    };
    let Spread { median, least, most } = spread;
    let latency = [
        of(|m| Some(m.p50_us), digits),
        of(|m| Some(m.p99_us), digits),
        of(|m| Some(m.p999_us), digits),
    ];
    let hits = match name {
        "foyer" => store.spread(step, |m| m.found).filter(|found| found.median < 1.0),
        name if name.ends_with("-cache") || name.starts_with("terrace-") => {
            store.spread(step, |m| m.cached)
        }
        _ => None,
    };
    let note =
        hits.map_or_else(String::new, |hits| format!(" ({:.1} % hits)", hits.median * 100.0));
    Some(format!(
        "| {step} | {name}{note} | {}{unit} ({} - {}) | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        digits(median),
        digits(least),
        digits(most),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("**{ratio:.2}**")),
        latency.join(" / "),
        of(|m| Some(m.max_us / 1000.0), digits),
        of(|m| Some(m.cpu_seconds_per_million), digits),
        of(|m| Some(m.device_reads_per_op), |reads| format!("{reads:.3}")),
        of(|m| m.write_amplification, digits),
        of(|m| Some(m.peak_rss_bytes / MIB), digits),
        of(|m| Some(m.space_bytes / MIB), digits),
    ))
}

/// The table of figures by kind of operation; empty if no step has several kinds.
fn kinds(result: &CaseResult, own: Option<&str>) -> String {
    let mut text = String::new();
    for step in &result.steps {
        let mut kinds: Vec<&str> = result
            .stores
            .iter()
            .flat_map(|(_, store)| store.steps.get(step).into_iter().flatten())
            .flat_map(|measured| measured.kinds.keys().map(String::as_str))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let of = |store: &StoreResult, figure: fn(&OfKind) -> f64| {
                store.spread(step, |measured| measured.kinds.get(kind).map(figure))
            };
            let rate = |store: &StoreResult| of(store, |kind| kind.ops_per_sec);
            let ours = result.stores.iter().find(|(name, _)| Some(name.as_str()) == own);
            for (name, store) in &result.stores {
                let Some(Spread { median, least, most }) = rate(store) else { continue };
                let ours = ours.filter(|(own, _)| own != name).and_then(|(_, store)| rate(store));
                let ratio = ours.map(|ours| format!("**{:.2}**", ours.median / median));
                let latency = [
                    of(store, |kind| kind.p50_us),
                    of(store, |kind| kind.p99_us),
                    of(store, |kind| kind.p999_us),
                ];
                let latency = latency.map(|spread| spread.map_or(0.0, |spread| spread.median));
                let _never = writeln!(
                    text,
                    "| {step} | {kind} | {name} | {} ({} - {}) | {} | {} |",
                    digits(median),
                    digits(least),
                    digits(most),
                    ratio.as_deref().unwrap_or("-"),
                    latency.map(digits).join(" / "),
                );
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    let head = "\nOf these, by what they do:\n\n| step | operation | store | ops/s (least - most) \
                | ours / theirs | P50 / P99 / P99.9 us |\n|---|---|---|---|---|---|\n";
    head.to_owned() + &text
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
    fn numbers_read_well() {
        let shown = [0.0123, 1.234, 45.67, 999.6, 1_234_567.0].map(digits);
        assert_eq!(shown, ["0.012", "1.23", "45.7", "1,000", "1,234,567"]);
    }

    #[test]
    fn tables_stand_between_their_markers() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nz\n");
        assert_eq!(between(&text, "new").unwrap(), format!("a\n{BEGIN}\nnew\n{END}\nz\n"));
        assert_eq!(between("no markers", "new"), None);
    }

    #[test]
    fn a_ratio_is_ours_by_theirs() {
        let store = |ops_per_sec| {
            let read = OfKind { ops_per_sec: ops_per_sec / 2.0, ..OfKind::default() };
            let kinds = [("read".to_owned(), read)].into();
            let measured = Measured { ops_per_sec, kinds, ..Measured::default() };
            let steps = [("get".to_owned(), vec![measured; 3])].into();
            StoreResult { steps, options: vec!["cache = 1".to_owned()], failures: Vec::new() }
        };
        let result = CaseResult {
            steps: vec!["get".to_owned()],
            stores: vec![("terrace".to_owned(), store(3000.0)), ("lmdb".to_owned(), store(1500.0))],
            scale: "full".to_owned(),
            ..CaseResult::default()
        };
        let table = table(&result, "x.svg");
        assert!(table.contains("| get | terrace | 3,000 (3,000 - 3,000) | - |"), "{table}");
        assert!(table.contains("| get | lmdb | 1,500 (1,500 - 1,500) | **2.00** |"), "{table}");
        let reads = "| get | read | lmdb | 750 (750 - 750) | **2.00** | 0.000 / 0.000 / 0.000 |";
        assert!(table.contains(reads), "{table}");
        assert!(table.contains("3 runs of each store") && table.contains("- **lmdb**: cache = 1"));
    }
}

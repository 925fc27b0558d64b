//! A plan as one HTML file with two charts: misses by memory, and throughput by price.
//!
//! The file loads no other files. In the second chart, a tooltip describes the mix under the pointer.

use std::fmt::Write as _;

use base::format_bytes;
use workload::plan::{Demand, Plan, Planned, Prices};

use super::report::server;

/// Size and margins of a chart, in SVG units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;

/// Number of steps of the miss curve.
const POINTS: u32 = 96;

/// Colours of the servers, reused if there are more servers.
const COLOURS: [&str; 4] = ["#1f6fb4", "#c2571a", "#2d8a4e", "#7a4fa3"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#222}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#444}\
table{border-collapse:collapse;font-size:13px}td,th{padding:.2rem .6rem;text-align:right}\
th{border-bottom:1px solid #999}tr.chosen{font-weight:bold}.axis{stroke:#999}.grid{stroke:#e4e4e4}\
.note{color:#555;font-size:13px}";

/// The HTML file.
pub(super) fn html(plan: &Plan, prices: &Prices, demand: &Demand) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Memory plan</title>\
         <style>{STYLE}</style></head><body>\n<h1>Memory plan</h1>\n\
         <p>Prices: {}. Size of the data: {}.</p>\n<h2>Lookups that reach flash by memory</h2>\n",
        escaped(&prices.name),
        format_bytes(demand.footprint as u64),
    );
    page.push_str(&miss_chart(demand));
    page.push_str("<h2>Throughput by server price</h2>\n");
    page.push_str(&throughput_chart(plan, prices));
    page.push_str(&table(plan, prices));
    page.push_str("<h2>Sources of the prices</h2>\n<ul class=\"note\">\n");
    for (of, source) in &prices.sources {
        let _ = writeln!(page, "<li>{}: {}</li>", escaped(of), escaped(source));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A scale from values to coordinates.
#[derive(Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    fn x(least: f64, most: f64, is_log: bool) -> Self {
        Self { least, most: most.max(least * 1.001), from: LEFT, to: WIDTH - RIGHT, is_log }
    }

    fn y(most: f64) -> Self {
        let (from, to) = (HEIGHT - BOTTOM, TOP);
        Self { least: 0.0, most: most.max(1e-9), from, to, is_log: false }
    }

    /// The coordinate of `value`.
    fn at(self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.max(1e-9).ln() } else { value };
        let part = (scaled(value) - scaled(self.least)) / (scaled(self.most) - scaled(self.least));
        let coordinate = self.from + (self.to - self.from) * part;
        if coordinate.is_finite() { coordinate } else { self.from }
    }

    /// The labelled values: powers of four on a logarithmic axis, else fifths of the range.
    fn ticks(self) -> Vec<f64> {
        if self.is_log {
            let first = self.least.max(1e-9).log(4.0).ceil() as i32;
            let last = self.most.max(1e-9).log(4.0).floor() as i32;
            return (first..=last.min(first.saturating_add(40)))
                .map(|power| 4f64.powi(power))
                .collect();
        }
        let fifth = |part: u32| self.least + (self.most - self.least) * f64::from(part) / 5.0;
        (0..=5).map(fifth).collect()
    }
}

/// An axis with its title and the labels of its values.
struct LabelledAxis<'a> {
    axis: Axis,
    title: &'a str,
    label: &'a dyn Fn(f64) -> String,
}

/// The start of a chart: grid lines, labels and titles of both axes.
fn frame(x: &LabelledAxis<'_>, y: &LabelledAxis<'_>) -> String {
    let (x_title, y_title) = (x.title, y.title);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{y_title} by {x_title}\">\n"
    );
    for value in y.axis.ticks() {
        let at = y.axis.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            (y.label)(value)
        );
    }
    for value in x.axis.ticks() {
        let at = x.axis.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 5.0,
            bottom + 19.0,
            (x.label)(value)
        );
    }
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_title}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\">{y_title}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0,
        LEFT + 8.0,
        TOP + 12.0,
    );
    svg
}

/// The share of lookups that reach flash, if all memory is DRAM and its best split between rows and pages is
/// used.
fn miss_chart(demand: &Demand) -> String {
    let (least, most) = (demand.footprint.max(1.0) / 512.0, demand.footprint.max(1.0) * 1.2);
    let (x, y) = (Axis::x(least, most, true), Axis::y(1.0));
    let percent = |value: f64| format!("{:.0} %", value * 100.0);
    let mut svg = frame(
        &LabelledAxis {
            axis: x,
            title: "memory of caches",
            label: &|bytes| format_bytes(bytes as u64),
        },
        &LabelledAxis { axis: y, title: "lookups that reach flash", label: &percent },
    );
    let mut line = String::new();
    for point in 0..=POINTS {
        let bytes = least * (most / least).powf(f64::from(point) / f64::from(POINTS));
        let miss_ratios = demand.splits(bytes, 0.0, false).map(|reads| 1.0 - reads.hit_ratio());
        let miss_ratio = miss_ratios.fold(1.0, f64::min);
        let _ = write!(line, "{:.1},{:.1} ", x.at(bytes), y.at(miss_ratio));
    }
    let colour = COLOURS[0];
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n</svg>",
        line.trim_end()
    );
    svg
}

/// A number with the suffix k or M.
fn thousands(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e3 => format!("{:.0} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A dot for every mix, a line through the cost-efficient ones, and a ring around the chosen one.
fn throughput_chart(plan: &Plan, prices: &Prices) -> String {
    let dollars = || plan.mixes.iter().map(|mix| mix.outcome.dollars);
    let least = dollars().fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least * 0.95 } else { 0.0 };
    let x = Axis::x(least, dollars().fold(1.0, f64::max), false);
    let y = Axis::y(plan.mixes.iter().map(|mix| mix.outcome.throughput).fold(1.0, f64::max));
    let mut svg = frame(
        &LabelledAxis {
            axis: x,
            title: "dollars per server",
            label: &|dollars| format!("${dollars:.0}"),
        },
        &LabelledAxis { axis: y, title: "lookups per second", label: &thousands },
    );
    let at = |mix: &Planned| (x.at(mix.outcome.dollars), y.at(mix.outcome.throughput));
    let mut line = String::new();
    for mix in plan.mixes.iter().filter(|mix| mix.is_efficient) {
        let (x, y) = at(mix);
        let _ = write!(line, "{x:.1},{y:.1} ");
    }
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"#999\" stroke-dasharray=\"4 3\" points=\"{}\"/>",
        line.trim_end()
    );
    for (index, mix) in plan.mixes.iter().enumerate() {
        svg.push_str(&dot(mix, at(mix), plan.chosen == Some(index), prices));
    }
    svg.push_str("</svg>\n<p class=\"note\">");
    for (number, server) in prices.servers.iter().enumerate() {
        let colour = COLOURS.get(number % COLOURS.len()).unwrap_or(&"#444");
        let _ =
            write!(svg, "<span style=\"color:{colour}\">&#9679; {}</span> ", escaped(&server.name));
    }
    svg.push_str(
        "Dashed: cost-efficient mixes; \
         every mix with more throughput costs more. Ringed: the chosen mix.</p>\n",
    );
    svg
}

/// The dot of a mix, with a tooltip, and its ring if it is the chosen one.
fn dot(mix: &Planned, (x, y): (f64, f64), is_chosen: bool, prices: &Prices) -> String {
    let mut svg = String::new();
    let colour = COLOURS.get(mix.server % COLOURS.len()).unwrap_or(&"#444");
    let opacity = if mix.is_efficient { 1.0 } else { 0.35 };
    let outcome = &mix.outcome;
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" fill-opacity=\"{opacity}\">\
         <title>{}: {} of DRAM, {} of SCM; {:.1} % without flash, {:.1} us, ${:.0}, {:.0} W</title>\
         </circle>",
        escaped(server(prices, mix)),
        format_bytes(mix.mix.dram as u64),
        format_bytes(mix.mix.scm as u64),
        outcome.reads.hit_ratio() * 100.0,
        outcome.latency,
        outcome.dollars,
        outcome.watts,
    );
    if is_chosen {
        let _ = writeln!(
            svg,
            "<circle class=\"chosen\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"none\" \
             stroke=\"#222\" stroke-width=\"2\"/>"
        );
    }
    svg
}

/// The cost-efficient mixes and the chosen one.
fn table(plan: &Plan, prices: &Prices) -> String {
    let mut table = String::from(
        "<table><thead><tr><th>server</th><th>DRAM</th><th>SCM</th><th>rows</th><th>DRAM</th><th>SCM</th>\
         <th>flash</th><th>mean</th><th>lookups/s</th><th>cache</th><th>server</th><th>power</th></tr>\
         </thead><tbody>\n",
    );
    for (index, mix) in plan.mixes.iter().enumerate() {
        let is_chosen = plan.chosen == Some(index);
        if !mix.is_efficient && !is_chosen {
            continue;
        }
        let outcome = &mix.outcome;
        let [row, dram, scm, flash] = outcome.reads.ends.map(|part| 100.0 * part);
        let _ = writeln!(
            table,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{row:.1} %</td><td>{dram:.1} %</td>\
             <td>{scm:.1} %</td><td>{flash:.1} %</td><td>{:.1} us</td><td>{}</td><td>${:.0}</td>\
             <td>${:.0}</td><td>{:.0} W</td></tr>",
            if is_chosen { " class=\"chosen\"" } else { "" },
            escaped(server(prices, mix)),
            format_bytes(mix.mix.dram as u64),
            format_bytes(mix.mix.scm as u64),
            outcome.latency,
            thousands(outcome.throughput),
            outcome.cache_dollars,
            outcome.dollars,
            outcome.watts,
        );
    }
    table.push_str("</tbody></table>\n");
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_maps_its_ends_to_the_margins_and_empty_plan_has_no_nan() {
        let log = Axis::x(1024.0, 1_048_576.0, true);
        assert_eq!(log.ticks().len(), 6);
        assert_eq!((log.at(1024.0), log.at(1_048_576.0)), (LEFT, WIDTH - RIGHT));
        let empty = html(&Plan::default(), &Prices::default(), &Demand::default());
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
        assert_eq!(escaped("<a> & \"b\""), "&lt;a&gt; &amp; &quot;b&quot;");
    }
}

//! A plan as one HTML file with two drawings: misses over memory, and throughput over price. It needs
//! nothing beside itself, and both drawings say in words what a pointer rests on.

use std::fmt::Write as _;

use terracedb::format_bytes;
use workload::plan::{Demand, Plan, Planned, Prices};

use super::report::server;

/// A drawing, and the margins in it, in units of its own.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;

/// Points of the curve.
const POINTS: u32 = 96;

/// A colour for each server in turn.
const COLOURS: [&str; 4] = ["#1f6fb4", "#c2571a", "#2d8a4e", "#7a4fa3"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#222}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#444}\
table{border-collapse:collapse;font-size:13px}td,th{padding:.2rem .6rem;text-align:right}\
th{border-bottom:1px solid #999}tr.chosen{font-weight:bold}.axis{stroke:#999}.grid{stroke:#e4e4e4}\
.note{color:#555;font-size:13px}";

/// The whole file.
pub(super) fn html(plan: &Plan, prices: &Prices, demand: &Demand) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Memory plan</title>\
         <style>{STYLE}</style></head><body>\n<h1>What memory would buy</h1>\n\
         <p>Prices: {}. Data asked for: {}.</p>\n<h2>Lookups that reach flash, by memory</h2>\n",
        escaped(&prices.name),
        format_bytes(demand.footprint as u64),
    );
    page.push_str(&curve(demand));
    page.push_str("<h2>Throughput by price of the whole server</h2>\n");
    page.push_str(&prices_and_throughput(plan, prices));
    page.push_str(&table(plan, prices));
    page.push_str("<h2>Where the prices are from</h2>\n<ul class=\"note\">\n");
    for (of, source) in &prices.sources {
        let _ = writeln!(page, "<li>{}: {}</li>", escaped(of), escaped(source));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A scale from values to places.
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

    fn at(self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.max(1e-9).ln() } else { value };
        let part = (of(value) - of(self.least)) / (of(self.most) - of(self.least));
        let place = self.from + (self.to - self.from) * part;
        if place.is_finite() { place } else { self.from }
    }

    /// Values to name: powers of four, or fifths.
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

/// The frame of a drawing: lines, numbers and what they are.
fn frame(
    (x, x_name, x_text): (Axis, &str, &dyn Fn(f64) -> String),
    (y, y_name, y_text): (Axis, &str, &dyn Fn(f64) -> String),
) -> String {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{y_name} by {x_name}\">\n"
    );
    for value in y.ticks() {
        let at = y.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            y_text(value)
        );
    }
    for value in x.ticks() {
        let at = x.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 5.0,
            bottom + 19.0,
            x_text(value)
        );
    }
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\">{y_name}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0,
        LEFT + 8.0,
        TOP + 12.0,
    );
    svg
}

/// The part of lookups that reach flash, with all memory in DRAM and split as is best.
fn curve(demand: &Demand) -> String {
    let (least, most) = (demand.footprint.max(1.0) / 512.0, demand.footprint.max(1.0) * 1.2);
    let (x, y) = (Axis::x(least, most, true), Axis::y(1.0));
    let percent = |value: f64| format!("{:.0} %", value * 100.0);
    let mut svg = frame(
        (x, "memory of caches", &|bytes| format_bytes(bytes as u64)),
        (y, "lookups that reach flash", &percent),
    );
    let mut line = String::new();
    for point in 0..=POINTS {
        let bytes = least * (most / least).powf(f64::from(point) / f64::from(POINTS));
        let reaches = demand.splits(bytes, 0.0, false).map(|reads| 1.0 - reads.hit_ratio());
        let reaches = reaches.fold(1.0, f64::min);
        let _ = write!(line, "{:.1},{:.1} ", x.at(bytes), y.at(reaches));
    }
    let colour = COLOURS[0];
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n</svg>",
        line.trim_end()
    );
    svg
}

fn thousands(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e3 => format!("{:.0} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A dot for every mix, a line through those that are worth their price, a ring around the chosen.
fn prices_and_throughput(plan: &Plan, prices: &Prices) -> String {
    let dollars = || plan.mixes.iter().map(|mix| mix.outcome.dollars);
    let least = dollars().fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least * 0.95 } else { 0.0 };
    let x = Axis::x(least, dollars().fold(1.0, f64::max), false);
    let y = Axis::y(plan.mixes.iter().map(|mix| mix.outcome.throughput).fold(1.0, f64::max));
    let mut svg = frame(
        (x, "dollars of the whole server", &|dollars| format!("${dollars:.0}")),
        (y, "lookups a second", &thousands),
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
    for (place, mix) in plan.mixes.iter().enumerate() {
        let (x, y) = at(mix);
        let colour = COLOURS.get(mix.server % COLOURS.len()).unwrap_or(&"#444");
        let opacity = if mix.is_efficient { 1.0 } else { 0.35 };
        let it = &mix.outcome;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" fill-opacity=\"{opacity}\">\
             <title>{}: {} of DRAM, {} of SCM; {:.1} % without flash, {:.1} us, ${:.0}, {:.0} W</title>\
             </circle>",
            escaped(server(prices, mix)),
            format_bytes(mix.mix.dram as u64),
            format_bytes(mix.mix.scm as u64),
            it.reads.hit_ratio() * 100.0,
            it.latency,
            it.dollars,
            it.watts,
        );
        if plan.chosen == Some(place) {
            let _ = writeln!(
                svg,
                "<circle class=\"chosen\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"none\" \
                 stroke=\"#222\" stroke-width=\"2\"/>"
            );
        }
    }
    svg.push_str("</svg>\n<p class=\"note\">");
    for (number, server) in prices.servers.iter().enumerate() {
        let colour = COLOURS.get(number % COLOURS.len()).unwrap_or(&"#444");
        let _ =
            write!(svg, "<span style=\"color:{colour}\">&#9679; {}</span> ", escaped(&server.name));
    }
    svg.push_str("Dashed: nothing does more for less. Ringed: chosen.</p>\n");
    svg
}

fn table(plan: &Plan, prices: &Prices) -> String {
    let mut table = String::from(
        "<table><thead><tr><th>server</th><th>DRAM</th><th>SCM</th><th>rows</th><th>DRAM</th><th>SCM</th>\
         <th>flash</th><th>mean</th><th>lookups/s</th><th>cache</th><th>server</th><th>power</th></tr>\
         </thead><tbody>\n",
    );
    for (place, mix) in plan.mixes.iter().enumerate() {
        let is_chosen = plan.chosen == Some(place);
        if !mix.is_efficient && !is_chosen {
            continue;
        }
        let it = &mix.outcome;
        let [row, dram, scm, flash] = it.reads.ends.map(|part| 100.0 * part);
        let _ = writeln!(
            table,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{row:.1} %</td><td>{dram:.1} %</td>\
             <td>{scm:.1} %</td><td>{flash:.1} %</td><td>{:.1} us</td><td>{}</td><td>${:.0}</td>\
             <td>${:.0}</td><td>{:.0} W</td></tr>",
            if is_chosen { " class=\"chosen\"" } else { "" },
            escaped(server(prices, mix)),
            format_bytes(mix.mix.dram as u64),
            format_bytes(mix.mix.scm as u64),
            it.latency,
            thousands(it.throughput),
            it.cache_dollars,
            it.dollars,
            it.watts,
        );
    }
    table.push_str("</tbody></table>\n");
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_names_values_where_they_are() {
        let log = Axis::x(1024.0, 1_048_576.0, true);
        assert_eq!(log.ticks().len(), 6);
        assert_eq!((log.at(1024.0), log.at(1_048_576.0)), (LEFT, WIDTH - RIGHT));
        let empty = html(&Plan::default(), &Prices::default(), &Demand::default());
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
        assert_eq!(escaped("<a> & \"b\""), "&lt;a&gt; &amp; &quot;b&quot;");
    }
}

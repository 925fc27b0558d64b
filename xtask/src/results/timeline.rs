//! Line charts as SVG: for each step of a timeline, the rate of every store over the seconds of the step.

use std::fmt::Write as _;

use super::case::{CaseResult, Measured, Spread, StoreResult, digits, is_own};
use super::chart::{OWN_COLOUR, WIDTH, escape, page};

/// Sizes, pixels.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const HEIGHT: f64 = 180.0;
const TITLE: f64 = 26.0;
const FOOT: f64 = 34.0;
const LABEL: f64 = 14.0;

/// Colours of the other stores, in their order.
const COLOURS: [&str; 6] = ["#d1242f", "#bf8700", "#1a7f37", "#8250df", "#57606a", "#bc4c00"];

/// One line: the rate of each second.
struct Line {
    label: String,
    colour: &'static str,
    rates: Vec<f64>,
}

/// Whether a step of the case has the rate of each second.
pub(crate) fn is_timeline(result: &CaseResult) -> bool {
    let mut runs = result.stores.iter().flat_map(|(_, store)| store.steps.values().flatten());
    runs.any(|run| !run.rates.is_empty())
}

/// The rates of a case over time: a chart for each step, a line for each store.
pub(crate) fn of_case(result: &CaseResult) -> String {
    let (mut body, mut y) = (String::new(), 0.0);
    for step in &result.steps {
        let mut colours = COLOURS.iter().cycle();
        let lines = result.stores.iter().filter_map(|(name, store)| {
            let colour =
                if is_own(name) { OWN_COLOUR } else { colours.next().copied().unwrap_or_default() };
            let rates = medians(store, step);
            (!rates.is_empty()).then(|| Line { label: name.clone(), colour, rates })
        });
        let lines: Vec<Line> = lines.collect();
        if !lines.is_empty() {
            draw(&mut body, y, step, &lines);
            y += TITLE + HEIGHT + FOOT;
        }
    }
    page(&body, y)
}

/// The median of the runs in each second that any run has.
fn medians(store: &StoreResult, step: &str) -> Vec<f64> {
    let runs: &[Measured] = store.steps.get(step).map_or(&[], Vec::as_slice);
    let seconds = runs.iter().map(|run| run.rates.len()).max().unwrap_or(0);
    let at = |second| runs.iter().filter_map(|run| run.rates.get(second).copied()).collect();
    (0..seconds).filter_map(|second| Spread::of(at(second))).map(|it| it.median).collect()
}

fn draw(body: &mut String, top: f64, step: &str, lines: &[Line]) {
    let most = lines.iter().flat_map(|line| &line.rates).fold(1.0, |most: f64, it| most.max(*it));
    let seconds = lines.iter().map(|line| line.rates.len()).max().unwrap_or(1);
    let (top, bottom) = (top + TITLE, top + TITLE + HEIGHT);
    let x = |second: usize| LEFT + second as f64 * (WIDTH - LEFT - RIGHT) / seconds as f64;
    let y = |rate: f64| bottom - rate / most * HEIGHT;
    let _never = writeln!(
        body,
        concat!(
            r#"<text x="0" y="{:.0}" font-weight="bold">{}: ops/s</text>"#,
            r##"<path d="M{:.1} {:.1}V{:.1}H{:.1}" fill="none" stroke="#24292f"/>"##
        ),
        top - 9.0,
        escape(step),
        LEFT,
        top,
        bottom,
        x(seconds),
    );
    for rate in [0.0, most / 2.0, most] {
        let (right, at) = (LEFT - 6.0, y(rate) + 4.0);
        let shown = if rate == 0.0 { "0".to_owned() } else { digits(rate.round()) };
        let _never =
            writeln!(body, r#"<text x="{right:.0}" y="{at:.0}" text-anchor="end">{shown}</text>"#);
    }
    for second in [0, seconds / 2, seconds] {
        let (at, below) = (x(second), bottom + 16.0);
        let _never = writeln!(
            body,
            r#"<text x="{at:.0}" y="{below:.0}" text-anchor="middle">{second} s</text>"#
        );
    }
    // Labels stand at the ends of their lines, moved apart where they would overlap.
    let mut ends: Vec<_> =
        lines.iter().map(|line| (y(line.rates.last().copied().unwrap_or(0.0)), line)).collect();
    ends.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut lowest = top - LABEL;
    for (end, line) in ends {
        let Line { label, colour, rates } = line;
        let mut points = String::new();
        for (second, rate) in rates.iter().enumerate() {
            let _never = write!(points, "{:.1},{:.1} ", x(second + 1), y(*rate));
        }
        lowest = end.max(lowest + LABEL);
        let _never = writeln!(
            body,
            concat!(
                r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>"#,
                r#"<text x="{:.0}" y="{:.0}" fill="{}">{}</text>"#
            ),
            points.trim_end(),
            colour,
            x(rates.len()) + 6.0,
            lowest + 4.0,
            colour,
            escape(label),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(runs: &[&[f64]]) -> StoreResult {
        let run = |rates: &&[f64]| Measured { rates: rates.to_vec(), ..Measured::default() };
        let steps = [("get".to_owned(), runs.iter().map(run).collect())].into();
        StoreResult { steps, ..StoreResult::default() }
    }

    #[test]
    fn a_line_goes_through_the_median_of_each_second() {
        let runs = store(&[&[100.0, 400.0], &[300.0, 400.0, 50.0]]);
        assert_eq!(medians(&runs, "get"), [200.0, 400.0, 50.0]);
        let result = CaseResult {
            steps: vec!["get".to_owned(), "nobody ran it".to_owned()],
            stores: vec![("terrace".to_owned(), runs), ("lmdb".to_owned(), store(&[&[0.0]]))],
            ..CaseResult::default()
        };
        assert!(is_timeline(&result) && !is_timeline(&CaseResult::default()));
        let svg = of_case(&result);
        // Three seconds over 560 pixels; 400 operations per second over 180 pixels.
        assert!(svg.contains(r#"<polyline points="256.7,116.0 443.3,26.0 630.0,183.5""#), "{svg}");
        assert!(svg.contains(r#"points="256.7,206.0""#) && !svg.contains("nobody"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
    }
}

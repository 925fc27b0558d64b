//! Bar charts as SVG: groups of bars, each as long as its median, with a line from the lowest to the highest
//! of its runs.

use std::fmt::Write as _;

use super::case::{CaseResult, Spread, digits, is_own};

/// Sizes, pixels.
pub(super) const WIDTH: f64 = 760.0;
const LABEL: f64 = 130.0;
const VALUE: f64 = 110.0;
const BAR: f64 = 16.0;
const GAP: f64 = 5.0;
const TITLE: f64 = 26.0;

/// Colours of this engine and of the others.
pub(super) const OWN_COLOUR: &str = "#1f6feb";
const PEER_COLOUR: &str = "#9aa4b2";

/// Bars under one title, drawn to one scale.
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// One bar.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) spread: Spread,
    pub(crate) is_own: bool,
}

/// The rates of a case: a group for each step, a bar for each store.
pub(crate) fn of_case(result: &CaseResult) -> String {
    let groups = result.steps.iter().map(|step| {
        let bars = result.stores.iter().filter_map(|(name, store)| {
            let (spread, _) = store.rate(step)?;
            Some(Bar { label: name.clone(), spread, is_own: is_own(name) })
        });
        Group { title: step.clone(), bars: bars.collect() }
    });
    draw(&groups.collect::<Vec<_>>())
}

/// The chart of `groups`; a group without a positive bar is left out.
pub(crate) fn draw(groups: &[Group]) -> String {
    let mut body = String::new();
    let mut y = GAP;
    for group in groups {
        let most = group.bars.iter().map(|bar| bar.spread.most).fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        let scale = (WIDTH - LABEL - VALUE) / most;
        let _never = writeln!(
            body,
            r#"<text x="0" y="{:.0}" font-weight="bold">{}</text>"#,
            y + TITLE - 9.0,
            escape(&group.title)
        );
        y += TITLE;
        for bar in &group.bars {
            draw_bar(&mut body, y, bar, scale);
            y += BAR + GAP;
        }
        y += GAP;
    }
    page(&body, y)
}

/// A chart of this content and height.
pub(super) fn page(body: &str, height: f64) -> String {
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0}" "#,
            r#"viewBox="0 0 {0} {1:.0}" "#,
            r##"font-family="sans-serif" font-size="12" fill="#24292f">"##,
            "\n",
            r##"<rect width="100%" height="100%" fill="#ffffff"/>"##,
            "\n{2}</svg>\n"
        ),
        WIDTH, height, body
    )
}

fn draw_bar(body: &mut String, y: f64, bar: &Bar, scale: f64) {
    let Spread { median, least, most } = bar.spread;
    let colour = if bar.is_own { OWN_COLOUR } else { PEER_COLOUR };
    let middle = y + BAR / 2.0;
    let _never = writeln!(
        body,
        concat!(
            r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{}</text>"#,
            r#"<rect x="{}" y="{:.0}" width="{:.1}" height="{}" fill="{}"/>"#,
            r##"<line x1="{:.1}" x2="{:.1}" y1="{:.0}" y2="{:.0}" stroke="#24292f"/>"##,
            r#"<text x="{:.1}" y="{:.0}">{}</text>"#
        ),
        LABEL - 6.0,
        y + BAR - 4.0,
        escape(&bar.label),
        LABEL,
        y,
        (median * scale).max(1.0),
        BAR,
        colour,
        LABEL + least * scale,
        LABEL + most * scale,
        middle,
        middle,
        LABEL + most * scale + 6.0,
        y + BAR - 4.0,
        digits(median),
    );
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::case::{Measured, StoreResult};
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_rates() {
        let store = |rates: &[f64]| {
            let runs = rates
                .iter()
                .map(|ops_per_sec| Measured { ops_per_sec: *ops_per_sec, ..Measured::default() });
            StoreResult {
                steps: [("a <b>".to_owned(), runs.collect())].into(),
                ..Default::default()
            }
        };
        let result = CaseResult {
            steps: vec!["a <b>".to_owned(), "nobody ran it".to_owned()],
            stores: vec![
                ("terrace".to_owned(), store(&[900.0, 1000.0, 1040.0])),
                ("lmdb".to_owned(), store(&[520.0])),
            ],
            ..CaseResult::default()
        };
        let svg = of_case(&result);
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("nobody"));
        // 520 pixels for 1040 operations per second.
        assert!(svg.contains(r##"width="500.0" height="16" fill="#1f6feb""##), "{svg}");
        assert!(svg.contains(r##"width="260.0" height="16" fill="#9aa4b2""##), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}

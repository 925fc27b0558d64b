//! A calibration as a picture: three panels of curves, in SVG.

use std::fmt::Write as _;

use media::{Calibration, Points};

/// Sizes, pixels.
const PANEL_WIDTH: f64 = 380.0;
const PANEL_HEIGHT: f64 = 280.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;

const READ_COLOUR: &str = "#1f6feb";
const WRITE_COLOUR: &str = "#d1570b";
const BOTH_COLOUR: &str = "#57606a";

/// A panel of curves over one axis.
struct Panel<'a> {
    title: &'a str,
    /// Steps of a factor, not of an amount.
    is_logarithmic: bool,
    curves: Vec<(&'a str, &'a str, &'a Points)>,
    label: fn(f64) -> String,
}

/// The chart, as SVG.
pub(super) fn draw(calibration: &Calibration) -> String {
    let two = |reads, writes| vec![("read", READ_COLOUR, reads), ("write", WRITE_COLOUR, writes)];
    let panels = [
        Panel {
            title: "GB/s by threads",
            is_logarithmic: true,
            curves: two(&calibration.read_threads, &calibration.write_threads),
            label: |threads| format!("{threads}"),
        },
        Panel {
            title: "GB/s by bytes an access",
            is_logarithmic: true,
            curves: two(&calibration.read_sizes, &calibration.write_sizes),
            label: bytes,
        },
        Panel {
            title: "GB/s by share of writes",
            is_logarithmic: false,
            curves: vec![("both", BOTH_COLOUR, &calibration.mixed)],
            label: |share| format!("{:.0}%", share * 100.0),
        },
    ];
    let mut body = String::new();
    for (number, panel) in panels.iter().enumerate() {
        panel.draw(&mut body, PANEL_WIDTH * number as f64);
    }
    let width = PANEL_WIDTH * panels.len() as f64;
    let emulated = match calibration.emulated.as_str() {
        "" => String::new(),
        profile => format!(" (emulated {profile}, virtual time)"),
    };
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" "#,
            r#"viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="11" fill="{4}">"#,
            "\n",
            r##"<rect width="100%" height="100%" fill="#ffffff"/>"##,
            "\n",
            r#"<text x="8" y="18" font-size="14" font-weight="bold">{2}</text>"#,
            "\n{3}</svg>\n"
        ),
        width,
        PANEL_HEIGHT + 24.0,
        escape(&format!("{}{emulated}", calibration.place)),
        body,
        "#24292f",
    )
}

impl Panel<'_> {
    fn draw(&self, body: &mut String, left: f64) {
        let points = || self.curves.iter().flat_map(|(_, _, points)| points.iter());
        let most = points().map(|(_, gb)| *gb).fold(0.0, f64::max);
        let scaled = |x: f64| if self.is_logarithmic { x.max(1e-9).log2() } else { x };
        let first = points().map(|(x, _)| scaled(*x)).fold(f64::INFINITY, f64::min);
        let last = points().map(|(x, _)| scaled(*x)).fold(f64::NEG_INFINITY, f64::max);
        let (wide, high) = (PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
        let (x0, y0) = (left + LEFT, 24.0 + TOP);
        let mut line = |text: String| {
            // Writing to a string cannot fail.
            let _never = writeln!(body, "{text}");
        };
        line(format!(
            r#"<text x="{x0:.0}" y="{:.0}" font-weight="bold">{}</text>"#,
            y0 - 12.0,
            self.title
        ));
        if most <= 0.0 || last <= first {
            return line(format!(r#"<text x="{x0:.0}" y="{:.0}">no curve</text>"#, y0 + 20.0));
        }
        let x_at = |x: f64| x0 + (scaled(x) - first) / (last - first) * wide;
        let y_at = |gb: f64| y0 + (1.0 - gb / most) * high;
        for step in 0..=4 {
            let gb = most * f64::from(step) / 4.0;
            line(format!(
                concat!(
                    r##"<path d="M{x0:.1} {y:.1}h{wide:.1}" stroke="#d8dee4"/>"##,
                    r#"<text x="{tx:.1}" y="{ty:.1}" text-anchor="end">{gb:.2}</text>"#,
                ),
                x0 = x0,
                wide = wide,
                gb = gb,
                y = y_at(gb),
                tx = x0 - 5.0,
                ty = y_at(gb) + 4.0,
            ));
        }
        let mut labelled = f64::NEG_INFINITY;
        for (x, _) in self.curves.first().map_or(&[][..], |(_, _, points)| points.as_slice()) {
            // Labels that would meet are left out.
            if x_at(*x) - labelled < 30.0 {
                continue;
            }
            labelled = x_at(*x);
            line(format!(
                r#"<text x="{labelled:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                y0 + high + 16.0,
                (self.label)(*x),
            ));
        }
        for (number, (name, colour, points)) in self.curves.iter().enumerate() {
            let place = |(x, gb): &(f64, f64)| format!("{:.1},{:.1}", x_at(*x), y_at(*gb));
            let places: Vec<String> = points.iter().map(place).collect();
            line(format!(
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
                places.join(" "),
            ));
            for (x, gb) in points.iter() {
                line(format!(
                    r#"<circle cx="{:.1}" cy="{:.1}" r="2.5" fill="{colour}"/>"#,
                    x_at(*x),
                    y_at(*gb),
                ));
            }
            line(format!(
                r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{name}</text>"#,
                x0 + 60.0 * number as f64,
                y0 + high + 32.0,
            ));
        }
    }
}

fn bytes(bytes: f64) -> String {
    if bytes < 1024.0 { format!("{bytes}") } else { format!("{}K", bytes / 1024.0) }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_there_with_its_points_in_their_places() {
        let calibration = Calibration {
            place: "/mnt/<a&b>".to_owned(),
            emulated: "nvme".to_owned(),
            read_threads: vec![(1.0, 1.0), (4.0, 2.0)],
            write_threads: vec![(1.0, 0.5), (4.0, 1.0)],
            mixed: vec![(0.0, 1.0), (1.0, 1.0)],
            ..Calibration::default()
        };
        let chart = draw(&calibration);
        assert!(chart.contains("/mnt/&lt;a&amp;b&gt; (emulated nvme, virtual time)"));
        assert_eq!((chart.matches("<polyline").count(), chart.matches("<circle").count()), (3, 6));
        // The most bandwidth is the top of the panel, the first and last thread its sides.
        assert!(chart.contains(r#"points="48.0,161.0 368.0,58.0""#), "{chart}");
        assert!(chart.contains("no curve"), "of sizes");
        assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"));
    }
}

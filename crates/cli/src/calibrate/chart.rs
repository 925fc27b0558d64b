//! A calibration as an SVG chart with three panels: bandwidth by threads, by access size, and by share of
//! writes.

use std::fmt::{self, Write as _};

use media::{Calibration, Points};

/// Sizes of a panel and its margins, pixels.
const PANEL_WIDTH: f64 = 380.0;
const PANEL_HEIGHT: f64 = 280.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;

/// Height of the title above the panels, pixels.
const TITLE_HEIGHT: f64 = 24.0;

const READ_COLOUR: &str = "#1f6feb";
const WRITE_COLOUR: &str = "#d1570b";
const BOTH_COLOUR: &str = "#57606a";

/// A chart of curves with one x axis.
struct Panel<'a> {
    title: &'a str,
    /// Whether the x axis is logarithmic.
    is_logarithmic: bool,
    curves: Vec<Curve<'a>>,
    /// The label of an x value.
    label: fn(f64) -> String,
}

/// A curve of bandwidths, GB/s.
struct Curve<'a> {
    name: &'a str,
    colour: &'a str,
    points: &'a Points,
}

/// The chart, as SVG.
pub(super) fn draw(calibration: &Calibration) -> String {
    let two = |reads, writes| {
        vec![
            Curve { name: "read", colour: READ_COLOUR, points: reads },
            Curve { name: "write", colour: WRITE_COLOUR, points: writes },
        ]
    };
    let panels = [
        Panel {
            title: "GB/s by threads",
            is_logarithmic: true,
            curves: two(&calibration.read_threads, &calibration.write_threads),
            label: |threads| format!("{threads}"),
        },
        Panel {
            title: "GB/s by bytes per access",
            is_logarithmic: true,
            curves: two(&calibration.read_sizes, &calibration.write_sizes),
            label: bytes,
        },
        Panel {
            title: "GB/s by share of writes",
            is_logarithmic: false,
            curves: vec![Curve { name: "both", colour: BOTH_COLOUR, points: &calibration.mixed }],
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
        PANEL_HEIGHT + TITLE_HEIGHT,
        escape(&format!("{}{emulated}", calibration.place)),
        body,
        "#24292f",
    )
}

impl Panel<'_> {
    /// Draws the panel with its left side at `left`.
    fn draw(&self, body: &mut String, left: f64) {
        let (x0, y0) = (left + LEFT, TITLE_HEIGHT + TOP);
        line(
            body,
            format_args!(
                r#"<text x="{x0:.0}" y="{:.0}" font-weight="bold">{}</text>"#,
                y0 - 12.0,
                self.title
            ),
        );
        let Some(scale) = Scale::of(self, x0, y0) else {
            let y = y0 + 20.0;
            return line(body, format_args!(r#"<text x="{x0:.0}" y="{y:.0}">no curve</text>"#));
        };
        scale.draw_y_axis(body);
        if let Some(curve) = self.curves.first() {
            scale.draw_x_labels(body, curve.points, self.label);
        }
        for (number, curve) in self.curves.iter().enumerate() {
            scale.draw_curve(body, curve, number);
        }
    }
}

/// Maps values to the coordinates of a panel.
struct Scale {
    is_logarithmic: bool,
    /// The scaled x values at the left and right side.
    first: f64,
    last: f64,
    /// The highest bandwidth, GB/s.
    most: f64,
    /// The top left corner, width and height of the area of the curves, pixels.
    x0: f64,
    y0: f64,
    width: f64,
    height: f64,
}

impl Scale {
    /// The scale of a panel; `None` if its curves have no two points to draw.
    fn of(panel: &Panel<'_>, x0: f64, y0: f64) -> Option<Self> {
        let points = || panel.curves.iter().flat_map(|curve| curve.points.iter());
        let is_logarithmic = panel.is_logarithmic;
        let scaled = |(x, _): &(f64, f64)| scaled(*x, is_logarithmic);
        let first = points().map(scaled).fold(f64::INFINITY, f64::min);
        let last = points().map(scaled).fold(f64::NEG_INFINITY, f64::max);
        let most = points().map(|(_, gb)| *gb).fold(0.0, f64::max);
        let (width, height) = (PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
        let scale = Self { is_logarithmic, first, last, most, x0, y0, width, height };
        (most > 0.0 && last > first).then_some(scale)
    }

    fn x_at(&self, x: f64) -> f64 {
        let x = scaled(x, self.is_logarithmic);
        self.x0 + (x - self.first) / (self.last - self.first) * self.width
    }

    fn y_at(&self, gb: f64) -> f64 {
        self.y0 + (1.0 - gb / self.most) * self.height
    }

    /// Five grid lines with their bandwidths.
    fn draw_y_axis(&self, body: &mut String) {
        let Self { x0, width, .. } = self;
        for step in 0..=4 {
            let gb = self.most * f64::from(step) / 4.0;
            let (y, text_x, text_y) = (self.y_at(gb), x0 - 5.0, self.y_at(gb) + 4.0);
            line(
                body,
                format_args!(
                    concat!(
                        r##"<path d="M{x0:.1} {y:.1}h{width:.1}" stroke="#d8dee4"/>"##,
                        r#"<text x="{text_x:.1}" y="{text_y:.1}" text-anchor="end">{gb:.2}</text>"#,
                    ),
                    x0 = x0,
                    y = y,
                    width = width,
                    text_x = text_x,
                    text_y = text_y,
                    gb = gb,
                ),
            );
        }
    }

    /// The labels of `points` on the x axis, without those that would overlap the label before.
    fn draw_x_labels(&self, body: &mut String, points: &Points, label: fn(f64) -> String) {
        let y = self.y0 + self.height + 16.0;
        let mut previous = f64::NEG_INFINITY;
        for (value, _) in points {
            let x = self.x_at(*value);
            if x - previous < 30.0 {
                continue;
            }
            previous = x;
            let text = label(*value);
            line(
                body,
                format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{text}</text>"#),
            );
        }
    }

    /// A curve, its points, and its name in the legend at position `number`.
    fn draw_curve(&self, body: &mut String, curve: &Curve<'_>, number: usize) {
        let Curve { name, colour, points } = curve;
        let pair = |(x, gb): &(f64, f64)| format!("{:.1},{:.1}", self.x_at(*x), self.y_at(*gb));
        let pairs: Vec<String> = points.iter().map(pair).collect();
        let pairs = pairs.join(" ");
        line(
            body,
            format_args!(
                r#"<polyline points="{pairs}" fill="none" stroke="{colour}" stroke-width="2"/>"#
            ),
        );
        for (x, gb) in points.iter() {
            let (x, y) = (self.x_at(*x), self.y_at(*gb));
            line(
                body,
                format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.5" fill="{colour}"/>"#),
            );
        }
        let (x, y) = (self.x0 + 60.0 * number as f64, self.y0 + self.height + 32.0);
        line(body, format_args!(r#"<text x="{x:.1}" y="{y:.1}" fill="{colour}">{name}</text>"#));
    }
}

fn scaled(x: f64, is_logarithmic: bool) -> f64 {
    if is_logarithmic { x.max(1e-9).log2() } else { x }
}

fn line(body: &mut String, text: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _never = writeln!(body, "{text}");
}

/// The label of an access size.
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
    fn chart_has_every_curve_and_scales_its_points_to_the_panel() {
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
        // The highest bandwidth is at the top of the panel, the first and last thread count at its sides.
        assert!(chart.contains(r#"points="48.0,161.0 368.0,58.0""#), "{chart}");
        assert!(chart.contains("no curve"), "the panel of sizes is empty");
        assert!(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"));
    }
}

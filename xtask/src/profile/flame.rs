//! Flame graphs: the width of a frame is its number of samples, and a frame stands on its caller.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the graph, pixels.
const WIDTH: f64 = 1400.0;
/// Height of a frame, pixels.
const HEIGHT: f64 = 17.0;
/// Narrower frames are not drawn, pixels.
const WIDTH_MIN: f64 = 0.5;
/// Width of a letter, pixels.
const LETTER: f64 = 6.4;

#[derive(Default)]
struct Frame {
    samples: u64,
    callees: BTreeMap<String, Frame>,
}

/// Draws folded stacks as SVG. A browser shows the name and the share of the frame under the pointer.
pub(crate) fn draw(title: &str, stacks: &BTreeMap<Vec<String>, u64>) -> String {
    let mut root = Frame::default();
    for (stack, samples) in stacks {
        root.samples += samples;
        let mut frame = &mut root;
        for name in stack {
            frame = frame.callees.entry(name.clone()).or_default();
            frame.samples += samples;
        }
    }
    let depth = stacks.keys().map(Vec::len).max().unwrap_or(0) + 2;
    let height = depth as f64 * HEIGHT;
    let mut svg = format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" "#,
            r#"font-family="monospace" font-size="11">"#,
            "\n<text x=\"4\" y=\"13\">{}: {} samples</text>\n"
        ),
        WIDTH,
        height,
        escape(title),
        root.samples
    );
    let scale = if root.samples == 0 { 0.0 } else { WIDTH / root.samples as f64 };
    let mut x = 0.0;
    for (name, frame) in &root.callees {
        draw_frame(&mut svg, name, frame, x, height - HEIGHT, scale, root.samples);
        x += frame.samples as f64 * scale;
    }
    svg + "</svg>\n"
}

fn draw_frame(svg: &mut String, name: &str, frame: &Frame, x: f64, y: f64, scale: f64, all: u64) {
    let width = frame.samples as f64 * scale;
    if width < WIDTH_MIN {
        return;
    }
    let part = frame.samples as f64 * 100.0 / all as f64;
    let name_shown: String = name.chars().take((width / LETTER) as usize).collect();
    let _never = writeln!(
        svg,
        concat!(
            r##"<g><title>{} {:.2} %</title><rect x="{:.1}" y="{:.0}" width="{:.1}" height="{}" "##,
            r##"fill="{}" stroke="#fff"/><text x="{:.1}" y="{:.0}">{}</text></g>"##
        ),
        escape(name),
        part,
        x,
        y,
        width,
        HEIGHT,
        colour(name),
        x + 2.0,
        y + HEIGHT - 5.0,
        escape(&name_shown),
    );
    let mut x = x;
    for (name, callee) in &frame.callees {
        draw_frame(svg, name, callee, x, y - HEIGHT, scale, all);
        x += callee.samples as f64 * scale;
    }
}

/// A warm colour, always the same for one name.
fn colour(name: &str) -> String {
    let hash =
        name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("rgb({},{},{})", 205 + hash % 50, 110 + hash / 50 % 110, 60 + hash / 5500 % 50)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_wide_as_their_samples() {
        let stack =
            |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
        let stacks = BTreeMap::from([
            (stack(&["case", "main", "get"]), 3),
            (stack(&["case", "main", "put<u8>"]), 1),
        ]);
        let svg = draw("x", &stacks);
        assert!(svg.contains("<title>main 100.00 %</title><rect x=\"0.0\""), "{svg}");
        assert!(svg.contains("<title>get 75.00 %</title>") && svg.contains("width=\"1050.0\""));
        assert!(svg.contains("put&lt;u8&gt; 25.00 %") && svg.contains("x=\"1050.0\""));
        assert!(draw("nothing", &BTreeMap::new()).ends_with("</svg>\n"));
    }
}

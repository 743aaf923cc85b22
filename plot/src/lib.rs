// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plots as SVG: lines over two logarithmic axes, and bars from zero. Nothing is smoothed or left out; every point is
//! drawn.

use std::fmt::Write as _;

/// One line of a chart.
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Points; x and y above 0.
    pub points: Vec<(f64, f64)>,
}

/// A bar, in a group with others.
pub struct Bar {
    /// The group's name: bars of one group stand together.
    pub group: String,
    /// The bar's own name.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// Whether it stands out among the others.
    pub marked: bool,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Told apart also by those who see no red and green, and in grey.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
        WIDTH / 2.0,
        escape(title)
    )
}

/// A number as one reads it on an axis.
fn short(value: f64) -> String {
    if value >= 1000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// The powers of ten that hold all values.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if !low.is_finite() || low <= 0.0 {
        return (0, 1);
    }
    let low = low.log10().floor() as i32;
    (low, (high.log10().ceil() as i32).max(low + 1))
}

/// Lines over two logarithmic axes.
pub fn lines(title: &str, x_name: &str, y_name: &str, series: &[Series]) -> String {
    let mut svg = open(title, HEIGHT);
    let points = || series.iter().flat_map(|series| &series.points).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let (x_low, x_high) = decades(points().map(|point| point.0));
    let (y_low, y_high) = decades(points().map(|point| point.1));
    let scale = |value: f64, low: i32, high: i32| (value.log10() - f64::from(low)) / f64::from(high - low);
    let x_at = |x: f64| LEFT + scale(x, x_low, x_high) * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - scale(y, y_low, y_high) * (HEIGHT - TOP - BOTTOM);
    for power in x_low..=x_high {
        let (value, x) = (10f64.powi(power), x_at(10f64.powi(power)));
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let _ = writeln!(svg, "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>");
        let _ =
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", bottom + 16.0, short(value));
    }
    for power in y_low..=y_high {
        let (value, y) = (10f64.powi(power), y_at(10f64.powi(power)));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(value)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 12.0, escape(x_name));
    let _ = writeln!(
        svg,
        "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(y_name)
    );
    for (nth, series) in series.iter().enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let mut path = String::new();
        for (x, y) in series.points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0) {
            let (x, y) = (x_at(*x), y_at(*y));
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        let y = TOP + 16.0 + 18.0 * nth as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
            LEFT + 12.0,
            y - 10.0
        );
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 30.0, escape(&series.name));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Bars from zero, in groups, each with its value.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    const ROW: f64 = 18.0;
    const NAMES: f64 = 250.0;
    /// So many characters of a name fit.
    const NAME: usize = 32;
    let mut groups: Vec<&str> = Vec::new();
    for bar in bars {
        if groups.last() != Some(&bar.group.as_str()) {
            groups.push(&bar.group);
        }
    }
    let height = TOP + ROW * (bars.len() + groups.len()) as f64 + 30.0;
    let mut svg = open(title, height);
    let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut y = TOP;
    let mut group = None;
    for bar in bars {
        if group != Some(&bar.group) {
            group = Some(&bar.group);
            y += ROW;
            let _ =
                writeln!(svg, "<text x=\"10\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", y - 4.0, escape(&bar.group));
        }
        let length = bar.value.max(0.0) / longest * (WIDTH - NAMES - 90.0);
        let name: String = match bar.name.char_indices().nth(NAME) {
            Some((end, _)) => format!("{}...", &bar.name[..end]),
            None => bar.name.clone(),
        };
        let colour = if bar.marked { COLOURS[0] } else { COLOURS[1] };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 6.0,
            y + 13.0,
            escape(&name)
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>",
            y + 3.0,
            ROW - 5.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES + length + 5.0,
            y + 13.0,
            format!("{} {}", short((bar.value * 100.0).round() / 100.0), escape(unit)).trim_end()
        );
        y += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_where_it_belongs() {
        let series = [Series { name: "a<b".to_owned(), points: vec![(1.0, 0.1), (10.0, 1.0), (100.0, 10.0)] }];
        let svg = lines("t", "x", "y", &series);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a&lt;b"));
        // The middle of both axes.
        assert!(
            svg.contains(&format!(
                "cx=\"{:.1}\" cy=\"{:.1}\"",
                (LEFT + WIDTH - RIGHT) / 2.0,
                (TOP + HEIGHT - BOTTOM) / 2.0
            )),
            "{svg}"
        );
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |name: &str, value| Bar { group: "g".to_owned(), name: name.to_owned(), value, marked: false };
        let svg = bars("t", "ns", &[bar("siteseer", 50.0), bar("other", 100.0)]);
        assert!(svg.contains("width=\"190.0\"") && svg.contains("width=\"380.0\""), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_no_panic() {
        assert!(lines("t", "x", "y", &[]).ends_with("</svg>\n"));
        assert!(bars("t", "u", &[]).ends_with("</svg>\n"));
    }
}

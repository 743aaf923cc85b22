// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/conformance.svg: cases by kernels, a coloured square each, with a sign in it for those who do not see the
//! colours.

use super::judge::Status;
use super::results::{Results, Row};
use std::fmt::Write as _;

const ROW: usize = 20;
const COLUMN: usize = 44;
const NAMES: usize = 330;
const HEAD: usize = 190;
const MARGIN: usize = 12;

/// The colour and the sign of a status. The colours are told apart also by those who see no red and green, on white and
/// on black.
fn look(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pass => ("#009e73", "✓"),
        Status::NotExercised => ("#8c8c8c", "–"),
        Status::Unsupported => ("#e69f00", "○"),
        Status::Known => ("#cc79a7", "✗"),
        Status::Fail => ("#d55e00", "✗"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture.
pub fn chart(results: &Results) -> String {
    let groups: Vec<(&str, Vec<&Row>)> = [("suite", "Cases"), ("truth", "Functions of the kernel itself")]
        .into_iter()
        .map(|(group, heading)| (heading, results.rows.iter().filter(|row| row.group == group).collect::<Vec<_>>()))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let lines: usize = groups.iter().map(|(_, rows)| rows.len() + 2).sum();
    let width = (NAMES + COLUMN * results.kernels.len() + 2 * MARGIN).max(640);
    let height = HEAD + lines * ROW + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text {{ fill: #1f2328; }} .ground {{ fill: #ffffff; }} .sign {{ fill: #ffffff; font-weight: bold; }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3; }} .ground {{ fill: #0d1117; }} .sign {{ fill: #ffffff; }} }}\
         </style>\n<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    legend(&mut svg, results);
    for (nth, kernel) in results.kernels.iter().enumerate() {
        let (x, y) = (NAMES + COLUMN * nth + COLUMN / 2 + MARGIN, HEAD - 8);
        let _ = writeln!(svg, "<text transform=\"translate({x} {y}) rotate(-55)\">{}</text>", escape(&kernel.name));
    }
    let mut y = HEAD;
    for (heading, rows) in groups {
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"bold\">{heading}</text>", y + ROW - 6);
        y += ROW;
        for row in rows {
            let title = if row.title.is_empty() { &row.name } else { &row.title };
            let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{}\">{}</text>", y + ROW - 6, escape(title));
            for (nth, kernel) in results.kernels.iter().enumerate() {
                let Some(verdict) = results.cell(row, kernel) else { continue };
                let (colour, sign) = look(verdict.status);
                let x = NAMES + COLUMN * nth + MARGIN;
                let first = verdict.detail.lines().next().unwrap_or_default();
                let _ = writeln!(
                    svg,
                    "<g><title>{}: {}: {}{}{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"3\" \
                     fill=\"{colour}\"/><text class=\"sign\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{sign}</text></g>",
                    escape(&row.name),
                    escape(&kernel.name),
                    verdict.status,
                    if first.is_empty() { "" } else { ": " },
                    escape(first),
                    COLUMN - 4,
                    ROW - 3,
                    x + (COLUMN - 4) / 2,
                    y + ROW - 6
                );
            }
            y += ROW;
        }
        y += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, results: &Results) {
    let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"26\" font-size=\"15\">Conformance: cases by kernels</text>");
    for (nth, status) in Status::ALL.into_iter().enumerate() {
        let count: usize =
            results.kernels.iter().filter_map(|kernel| results.counts(&kernel.name).get(&status).copied()).sum();
        let (colour, sign) = look(status);
        let y = 40 + nth * ROW;
        let _ = writeln!(
            svg,
            "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{colour}\"/>\
             <text class=\"sign\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{sign}</text>\
             <text x=\"{}\" y=\"{}\">{status} ({count})</text>",
            COLUMN - 4,
            ROW - 3,
            MARGIN + (COLUMN - 4) / 2,
            y + ROW - 6,
            MARGIN + COLUMN + 4,
            y + ROW - 6
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn each_cell_is_drawn_and_named() {
        let svg = chart(&example());
        // Four cells, and five squares in the legend.
        assert_eq!(svg.matches("rx=\"3\"").count(), 4 + 5);
        for text in ["fail (1)", "pass (1)", "good: two: fail: wrong", "The &lt;gone&gt;", "prefers-color-scheme: dark"]
        {
            assert!(svg.contains(text), "{text}\n{svg}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_panic() {
        assert!(chart(&Results::default()).ends_with("</svg>\n"));
    }
}

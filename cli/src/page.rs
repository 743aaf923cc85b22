// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Pages: HTML that stands by itself, without scripts and without anything from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all pages; colours are told apart by people who do not see all of them.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 1180px; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.8rem; }
code, .code { font-family: ui-monospace, monospace; font-size: 0.92em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem; border-bottom: 1px solid #d8dee6; }
th { background: #f2f5f8; } td.number, th.number { text-align: right; }
.yes { color: #00583f; } .no { color: #8a3b00; } .quiet { color: #5b6875; }
svg { max-width: 100%; height: auto; } svg text { font: 12px ui-monospace, monospace; fill: #1c2733; }
.body { fill: #cfe8dd; stroke: #00583f; } .clone { fill: #dbe4f7; stroke: #24509a; } .inline { fill: #fbe6cf; stroke: #8a3b00; }
.center { fill: #1c2733; } svg text.center-text { fill: #fff; } .edge { stroke: #8793a0; fill: none; } .skipped { stroke-dasharray: 5 3; }
.wholly { fill: #d9733a; } .partly { fill: #f0c27a; } .never { fill: #dbe5ec; } .frame { fill: none; stroke: #fff; stroke-width: 2; }
.listing { margin-bottom: 1.2rem; } .listing td { border: 0; padding: 0.05rem 0.6rem; } h3 { font-size: 1rem; margin: 0.8rem 0 0.2rem; }
.here td { background: #fff3c4; font-weight: 600; padding-top: 0.25rem; padding-bottom: 0.25rem; } mark { background: #cfe8dd; color: inherit; }
.badge { display: inline-block; border: 1px solid #00583f; border-radius: 4px; padding: 0 0.35em; background: #cfe8dd; font-weight: 400; }
.badge.no { border-color: #8a3b00; background: #fff; }
.swatch { display: inline-block; width: 0.9em; height: 0.9em; margin: 0 0.3em 0 1em; vertical-align: -0.1em; }
";

/// A whole page.
pub(crate) fn page(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (content) }
        }
    };
    page.into_string()
}

/// `1 body`, `3 bodies`.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

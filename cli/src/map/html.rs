// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer map --html`: a treemap of the folders, and the table.

use super::treemap::{Area, layout};
use super::{path, sum};
use crate::page::{page, plural};
use maud::{Markup, html};
use siteseer::internals::target::Folder;

const WHOLE: Area = Area { x: 0.0, y: 0.0, width: 1100.0, height: 640.0 };

/// The page; folders come with the largest first.
pub(super) fn text(folders: &[Folder], origin: &str) -> String {
    let all = sum(folders);
    let share = |count: usize| format!("{:.1} %", 100.0 * count as f64 / all.functions().max(1) as f64);
    let content = html! {
        h1 { "Which functions are inlined" }
        p { (plural(all.functions(), "function", "functions")) " of the image, by " (origin) "." }
        p {
            span { svg.swatch viewBox="0 0 10 10" { rect.wholly width="10" height="10" {} } }
            (all.wholly) " wholly inlined (" (share(all.wholly)) "): a probe on the name finds none of their calls."
        }
        p {
            span { svg.swatch viewBox="0 0 10 10" { rect.partly width="10" height="10" {} } }
            (all.partly) " partly inlined (" (share(all.partly)) "): a probe on the symbol misses the calls of the copies."
        }
        p {
            span { svg.swatch viewBox="0 0 10 10" { rect.never width="10" height="10" {} } }
            (all.never) " not inlined (" (share(all.never)) ")."
        }
        (treemap(folders))
        p.quiet { "Each rectangle is a folder; its area is the number of functions." }
        h2 { "All folders" }
        table {
            thead { tr {
                th { "Folder" } th.number { "Functions" } th.number { "Wholly" } th.number { "Partly" } th.number { "Not" }
            } }
            tbody { @for folder in folders { tr {
                td.code { (path(folder)) }
                td.number { (folder.functions()) } td.number { (folder.wholly) }
                td.number { (folder.partly) } td.number { (folder.never) }
            } } }
        }
        p.quiet { "Made by siteseer map. Functions of one name count as one. The folder is known only for functions \
            that have inlined copies or contain some." }
    };
    page("Which functions are inlined", &content)
}

fn treemap(folders: &[Folder]) -> Markup {
    let weights: Vec<usize> = folders.iter().map(Folder::functions).collect();
    html! {
        svg viewBox=(format!("0 0 {} {}", WHOLE.width, WHOLE.height)) width=(WHOLE.width) height=(WHOLE.height)
            role="img" aria-label="A treemap of the folders" {
            @for (folder, area) in folders.iter().zip(layout(&weights, WHOLE)) {
                @if area.width > 0.0 { (rectangle(folder, area)) }
            }
        }
    }
}

/// A folder's rectangle: parts for what is wholly, partly and not inlined, from the left.
fn rectangle(folder: &Folder, area: Area) -> Markup {
    let all = folder.functions().max(1) as f64;
    let parts = [("wholly", folder.wholly), ("partly", folder.partly), ("never", folder.never)];
    let mut at = area.x;
    let parts = parts.map(|(class, count)| {
        let (x, width) = (at, area.width * count as f64 / all);
        at += width;
        (class, x, width)
    });
    // A letter is about 7 wide.
    let room = (area.width / 7.4) as usize;
    let name = path(folder);
    let fits = name.chars().count() < room && area.height > 16.0;
    let round = |value: f64| format!("{value:.1}");
    html! {
        g {
            title { (name) ": " (plural(folder.functions(), "function", "functions")) ", " (folder.wholly) " wholly, "
                    (folder.partly) " partly, " (folder.never) " not inlined" }
            @for (class, x, width) in parts {
                @if width > 0.0 {
                    rect class=(class) x=(round(x)) y=(round(area.y)) width=(round(width)) height=(round(area.height)) {}
                }
            }
            rect.frame x=(round(area.x)) y=(round(area.y)) width=(round(area.width)) height=(round(area.height)) {}
            @if fits { text x=(round(area.x + 5.0)) y=(round(area.y + 15.0)) { (name) } }
        }
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--plot`: what was counted as a picture, an SVG that needs nothing else.

use super::histogram::Bucket;
use super::{Arguments, histogram};
use crate::Failure;
use crate::output;
use siteseer_plot::{Bar, bars};

/// How many bars a function's numbers have at most; those of the rest are one.
const MOST: usize = 40;

/// The bars of one function's numbers, which come with the greatest first.
pub(super) fn numbers(function: &str, numbers: &[(String, u64)]) -> Vec<Bar> {
    let (shown, rest) = numbers.split_at(numbers.len().min(MOST));
    let mut all: Vec<Bar> = shown.iter().map(|(name, number)| bar(function, name, *number)).collect();
    if !rest.is_empty() {
        let sum = rest.iter().map(|(_, number)| number).sum();
        all.push(bar(function, &format!("{} others", rest.len()), sum));
    }
    all
}

/// The bars of a histogram, with those between that are empty.
pub(super) fn histogram(heading: &str, numbers: &[(Bucket, u64)]) -> Vec<Bar> {
    histogram::rows(numbers).into_iter().map(|(bucket, number)| bar(heading, &bucket.label(), number)).collect()
}

pub(super) fn bar(group: &str, name: &str, number: u64) -> Bar {
    Bar { group: group.to_owned(), name: name.to_owned(), value: number as f64, marked: true }
}

/// Writes the picture, if one is wanted.
pub(super) fn write(arguments: &Arguments, title: &str, all: &[Bar]) -> Result<(), Failure> {
    let Some(path) = &arguments.plot else { return Ok(()) };
    output::write_whole(path, |out| Ok(out.write_all(bars(title, "", all).as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_numbers() {
        let many: Vec<(String, u64)> = (0..50u64).map(|nth| (format!("task{nth}"), 100 - nth)).collect();
        let all = numbers("vfs_read", &many);
        assert_eq!(all.len(), MOST + 1);
        assert_eq!((all[0].name.as_str(), all[0].value), ("task0", 100.0));
        assert_eq!((all[MOST].name.as_str(), all[MOST].value), ("10 others", (51..=60).sum::<u64>() as f64));
        let all = histogram("vfs_read: count", &[(Bucket::new(1, false), 1), (Bucket::new(3, false), 2)]);
        let names: Vec<(&str, f64)> = all.iter().map(|bar| (bar.name.as_str(), bar.value)).collect();
        assert_eq!(names, [("[1]", 1.0), ("[2, 4)", 0.0), ("[4, 8)", 2.0)]);
        let svg = bars("a < b", "", &all);
        let picture = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = picture.descendants().filter_map(|node| node.text()).collect();
        for text in ["a < b", "vfs_read: count", "[1]", "[2, 4)", "[4, 8)"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        // The ground, and a bar each.
        assert_eq!(picture.descendants().filter(|node| node.has_tag_name("rect")).count(), 1 + all.len());
        let foreign = ["script", "image", "href"];
        assert!(foreign.iter().all(|word| !svg.contains(word)));
    }
}

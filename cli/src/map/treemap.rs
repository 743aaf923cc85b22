// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A treemap: rectangles that fill one, each as large as its weight. The layout is the squarified one (Bruls, Huizing,
//! van Wijk, 2000): rows are filled along the shorter side as long as that makes the rectangles more like squares.

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The rectangles of weights, which are sorted, the greatest first. One of no weight has no area.
pub(super) fn layout(weights: &[usize], whole: Area) -> Vec<Area> {
    let sum: usize = weights.iter().sum();
    let scale = whole.width * whole.height / sum.max(1) as f64;
    let areas: Vec<f64> = weights.iter().map(|&weight| weight as f64 * scale).collect();
    let (mut placed, mut left, mut from) = (Vec::new(), whole, 0);
    while from < areas.len() {
        let side = left.width.min(left.height);
        let mut to = from + 1;
        while to < areas.len() && worst(&areas[from..=to], side) <= worst(&areas[from..to], side) {
            to += 1;
        }
        left = row(&areas[from..to], left, &mut placed);
        from = to;
    }
    placed
}

/// The worst ratio of sides in a row along a side.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let thick = sum / side;
    let ratio = |area: &f64| {
        let long = area / thick;
        (long / thick).max(thick / long)
    };
    row.iter().map(ratio).fold(0.0, f64::max)
}

/// Places a row at the shorter side; what is left.
fn row(areas: &[f64], left: Area, placed: &mut Vec<Area>) -> Area {
    let Area { x, y, width, height } = left;
    let sum: f64 = areas.iter().sum();
    let is_wide = width >= height;
    let side = if is_wide { height } else { width };
    let thick = if side > 0.0 { sum / side } else { 0.0 };
    let mut at = 0.0;
    for area in areas {
        let long = if thick > 0.0 { area / thick } else { 0.0 };
        placed.push(match is_wide {
            true => Area { x, y: y + at, width: thick, height: long },
            false => Area { x: x + at, y, width: long, height: thick },
        });
        at += long;
    }
    match is_wide {
        true => Area { x: x + thick, width: (width - thick).max(0.0), ..left },
        false => Area { y: y + thick, height: (height - thick).max(0.0), ..left },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_as_the_weights_and_do_not_overlap() {
        let whole = Area { x: 0.0, y: 0.0, width: 600.0, height: 400.0 };
        let weights = [600, 600, 400, 300, 200, 200, 100, 0];
        let areas = layout(&weights, whole);
        assert_eq!(areas.len(), weights.len());
        for (area, weight) in areas.iter().zip(weights) {
            assert!((area.width * area.height - weight as f64 * 100.0).abs() < 1e-6, "{area:?}");
            assert!(area.x >= -1e-9 && area.x + area.width <= 600.0 + 1e-6 && area.y + area.height <= 400.0 + 1e-6);
        }
        for (nth, a) in areas.iter().enumerate() {
            for b in &areas[nth + 1..] {
                let apart = |a0: f64, al: f64, b0: f64, bl: f64| a0 + al <= b0 + 1e-6 || b0 + bl <= a0 + 1e-6;
                assert!(apart(a.x, a.width, b.x, b.width) || apart(a.y, a.height, b.y, b.height), "{a:?} {b:?}");
            }
        }
        // The first row of the example in the paper has two rectangles.
        assert_eq!((areas[0].x, areas[1].x, areas[2].x), (0.0, 0.0, 300.0));
        assert_eq!(layout(&[], whole), []);
        assert!(layout(&[0, 0], whole).iter().all(|area| area.width * area.height == 0.0));
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The table as text.

use super::plain::Stage;
use super::{ANOTHER_NAME, Fate, Fates, NO_CODE, Reach, Why};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Prints what was measured.
pub fn print(reach: &Reach) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(reach, &mut text);
    text
}

fn write(reach: &Reach, text: &mut String) -> std::fmt::Result {
    let all = reach.nothing.0.len();
    writeln!(text, "BTF functions that plain fentry cannot reach, Linux {}", reach.release)?;
    writeln!(text)?;
    writeln!(text, "1. Functions without a symbol of their own: {all} of {}", reach.functions)?;
    writeln!(text)?;
    writeln!(text, "   {:<46} {:>12} {:>12}", "", "best_effort", "complete")?;
    let reached = reach.plain.get(&(Stage::Attached, 0)).copied().unwrap_or(0);
    writeln!(text, "   {:<46} {reached:>12} {reached:>12}", "before: attached by plain fentry")?;
    for (nth, (words, fates)) in columns(&reach.nothing, &reach.everything).into_iter().enumerate() {
        let done = if nth == 1 && reach.planned { "planned" } else { "attached" };
        let words = format!("after: {done}, {words}");
        writeln!(text, "   {words:<46} {:>12} {:>12}", fates.attached(), fates.complete())?;
    }
    let code = all - reach.nothing.0.values().filter(|fate| matches!(fate, Fate::Not(why) if is_name(why))).count();
    writeln!(text, "   ({code} of the {all} have code; the others are names in BTF alone)")?;
    writeln!(text)?;
    writeln!(text, "   Why not, before:")?;
    for ((stage, errno), count) in &reach.plain {
        let what = match stage {
            Stage::Load => "the program is not loaded",
            Stage::Attach => "the program is not attached",
            Stage::Attached => continue,
        };
        writeln!(text, "   {count:>6}  {what}: {}", std::io::Error::from_raw_os_error(*errno))?;
    }
    for (words, fates) in columns(&reach.nothing, &reach.everything) {
        reasons(text, &format!("Why not, after, {words}:"), fates)?;
    }
    let parts = reach.part_nothing.0.len();
    writeln!(text)?;
    writeln!(text, "2. Functions that plain fentry traces in part, silently: {parts}")?;
    writeln!(text, "   (a body that it attaches to, and inlined copies that it does not see)")?;
    let (all, seen) = reach.inlined;
    if seen < all {
        writeln!(text, "   in a sample of {seen} of the {all} functions with a symbol and inlined copies")?;
    }
    writeln!(text)?;
    writeln!(text, "   {:<46} {:>12} {:>12} {:>12}", "", "all copies", "some", "none")?;
    writeln!(text, "   {:<46} {:>12} {parts:>12} {:>12}", "before: plain fentry sees", 0, 0)?;
    for (words, fates) in columns(&reach.part_nothing, &reach.part_everything) {
        let (complete, attached) = (fates.complete(), fates.attached());
        let words = format!("after: siteseer's plan, {words}");
        writeln!(text, "   {words:<46} {complete:>12} {:>12} {:>12}", attached - complete, parts - attached)?;
    }
    for (words, fates) in columns(&reach.part_nothing, &reach.part_everything) {
        reasons(text, &format!("Why not all copies, {words}:"), fates)?;
    }
    writeln!(text)?;
    let times: Vec<String> =
        reach.times.iter().map(|(what, time)| format!("{what} {:.1} s", time.as_secs_f64())).collect();
    writeln!(text, "Times: {}", times.join(", "))
}

/// Whether nothing but a name is there.
fn is_name(why: &Why) -> bool {
    [NO_CODE, ANOTHER_NAME].contains(&why.key)
}

fn columns<'f>(nothing: &'f Fates, everything: &'f Fates) -> [(&'static str, &'f Fates); 2] {
    [("no argument read", nothing), ("all arguments read", everything)]
}

/// The functions that are not attached everywhere, by reason.
fn reasons(text: &mut String, heading: &str, fates: &Fates) -> std::fmt::Result {
    let mut groups: BTreeMap<&str, (usize, usize, &Why)> = BTreeMap::new();
    for fate in fates.0.values() {
        let (why, not) = match fate {
            Fate::Complete => continue,
            Fate::Partly(why) => (why, 0),
            Fate::Not(why) => (why, 1),
        };
        let group = groups.entry(why.key).or_insert((0, 0, why));
        group.0 += 1;
        group.1 += not;
    }
    writeln!(text)?;
    writeln!(text, "   {heading}")?;
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (count, ..))| std::cmp::Reverse(*count));
    for (key, (count, not, why)) in groups {
        writeln!(text, "   {count:>6}  {key} (at no copy: {not}); for example: {}", why.sentence)?;
    }
    Ok(())
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer trace --tree`: calls are under the calls that made them, whatever else runs, and however much is lost.

use super::{Printed, SLEEP, as_workload, nested_epolls, run, run_seeing, sleep, workload};
use crate::entry;
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use serde_json::Value;
use siteseer::Target;
use std::ffi::CString;
use std::io;
use std::thread;
use std::time::Duration;

/// A call of a tree: function, kind of site, the number of its caller.
type Shape<'v> = Vec<(&'v str, &'v str, Option<u64>)>;

fn arguments(functions: &[&str], condition: &str) -> Vec<String> {
    let words = ["trace", "--tree", "--json", "--where", condition].into_iter().chain(functions.iter().copied());
    words.map(str::to_owned).collect()
}

fn parse(printed: &Printed) -> Result<Vec<Value>, serde_json::Error> {
    printed.output.lines().map(serde_json::from_str).collect()
}

fn shape(tree: &Value) -> Shape<'_> {
    let calls = tree["calls"].as_array().into_iter().flatten();
    calls
        .map(|call| {
            let (function, kind) = (call["function"].as_str(), call["site"]["kind"].as_str());
            (function.unwrap_or("?"), kind.unwrap_or("?"), call["parent"].as_u64())
        })
        .collect()
}

fn wrong(what: &str, printed: &Printed) -> Failure {
    format!("{what}: {}{}", printed.output, printed.messages).into()
}

const IS_WORKLOAD: &str = "comm = workload";

pub(super) fn nested(_: &Target) -> Result<String, Failure> {
    // The times say which one was in the other.
    let functions = ["hrtimer_nanosleep", "do_nanosleep"];
    let printed = run_seeing(&arguments(&functions, IS_WORKLOAD), sleep)?;
    let trees = parse(&printed)?;
    let [tree] = &trees[..] else { return Err(wrong("a sleep", &printed)) };
    let times: Vec<u64> =
        tree["calls"].as_array().into_iter().flatten().filter_map(|c| c["latency"].as_u64()).collect();
    let is_nested = matches!(shape(tree)[..], [("hrtimer_nanosleep", _, None), ("do_nanosleep", _, Some(0))]);
    if !is_nested || !matches!(times[..], [outer, inner] if outer > inner && inner >= SLEEP.as_nanos() as u64) {
        return Err(wrong("a sleep", &printed));
    }

    // First of one alone; then of one in itself.
    let printed = run_seeing(&arguments(&["ep_loop_check_proc"], IS_WORKLOAD), nested_epolls)?;
    let trees = parse(&printed)?;
    let parents: Vec<Vec<Option<u64>>> =
        trees.iter().map(|tree| shape(tree).into_iter().map(|(_, _, parent)| parent).collect()).collect();
    if parents != [vec![None], vec![None, Some(0)]] {
        return Err(wrong("calls of a function in itself", &printed));
    }

    let inlined = with_inlined()?;

    // Only trees with an outermost call that failed; the condition is not about the calls in it.
    let functions = [entry!("openat"), "do_fil[pe]_open"];
    let condition = format!("{IS_WORKLOAD} and retval < 0");
    let printed = run_seeing(&arguments(&functions, &condition), workload)?;
    let trees = parse(&printed)?;
    let is_failed = |tree: &Value| {
        let calls = tree["calls"].as_array().map_or(&[][..], Vec::as_slice);
        calls.first().is_some_and(|first| first["returned"]["error"] == "ENOENT")
            && matches!(shape(tree)[1..], [("do_filp_open" | "do_file_open", _, Some(0))])
    };
    if trees.len() != 2 || !trees.iter().all(is_failed) {
        return Err(wrong("opens that fail", &printed));
    }
    Ok(format!("a sleep in another call, a function in itself, {inlined}, 2 of 3 opens that failed"))
}

/// An inlined copy is under its caller, and nothing is under it.
fn with_inlined() -> Result<String, Failure> {
    let chroot = entry!("chroot");
    let functions = [chroot, "ns_capable", "ns_capable_common", "security_capable"];
    let printed = run_seeing(&arguments(&functions, IS_WORKLOAD), workload)?;
    let trees = parse(&printed)?;
    let of_chroot: Vec<&Value> = trees.iter().filter(|tree| tree["calls"][0]["function"] == chroot).collect();
    let mut copies = 0;
    for tree in &of_chroot {
        let shape = shape(tree);
        let position = |name: &str| shape.iter().position(|(function, ..)| *function == name).map(|nth| nth as u64);
        let (Some(capable), Some(security)) = (position("ns_capable"), position("security_capable")) else {
            return Err(wrong("calls are missing", &printed));
        };
        let is_around = |(function, kind, _): &(&str, &str, _)| *function == "ns_capable_common" && *kind != "inline";
        let common = shape.iter().position(is_around).map(|nth| nth as u64);
        for (nth, (function, kind, parent)) in shape.iter().enumerate() {
            let caller = match *function {
                function if function == chroot => None,
                "ns_capable" => Some(0),
                "ns_capable_common" => Some(capable),
                // What is inlined between the two is not around it.
                _ => common.or(Some(capable)),
            };
            copies += usize::from(*kind == "inline");
            let is_leaf = *kind != "inline" || shape.iter().all(|(.., parent)| *parent != Some(nth as u64));
            if *parent != caller || !is_leaf || capable >= security {
                return Err(wrong("under a wrong caller", &printed));
            }
        }
    }
    // In swapoff() the copies of both are in no call that is traced.
    let alone = trees.iter().filter(|tree| matches!(shape(tree)[..], [("ns_capable", "inline", None)])).count();
    if of_chroot.len() != 3 || alone != 2 {
        return Err(wrong("trees with inlined copies", &printed));
    }
    Ok(format!("{copies} inlined copies under their callers, {alone} without one"))
}

/// How many times each of two threads changes its root.
const CHANGES: usize = 4_000;
/// How many times a thread does it alone, with so long between that the tool looks for what the kernel skipped.
const APART: usize = 30;
const BETWEEN: Duration = Duration::from_millis(60);

/// Two threads make more calls than can be printed while they do it: what is printed as a tree is one.
///
/// None of their trees has to be certain: while a thread is preempted in a program, the kernel skips it for the other.
/// Some trees of calls that are far apart are certain, however busy the machine is.
pub(super) fn many(_: &Target) -> Result<String, Failure> {
    let chroot = entry!("chroot");
    let functions = [chroot, "ns_capable", "security_capable"];
    let printed = run(&arguments(&functions, IS_WORKLOAD), &[], || {
        let change = |count: usize, between: Duration| {
            let root = CString::new("/")?;
            as_workload(move || {
                (0..count).try_for_each(|_| {
                    thread::sleep(between);
                    syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0]).map(drop)
                })
            })
        };
        change(APART, BETWEEN)?;
        let other = thread::spawn(move || change(CHANGES, Duration::ZERO));
        change(CHANGES, Duration::ZERO)?;
        other.join().map_err(|_| io::Error::other("the other caller panicked"))??;
        // What is in the buffer is printed, too.
        thread::sleep(Duration::from_secs(5));
        Ok(())
    })?;
    let trees = parse(&printed)?;
    // A call may be in several doubtful trees: what the kernel skipped the program for is around nothing.
    let (mut certain, mut doubtful, mut shown) = (0, 0, 0);
    for tree in &trees {
        let shape = shape(tree);
        shown += shape.iter().filter(|(function, ..)| *function == chroot).count();
        let tids = tree["calls"].as_array().into_iter().flatten().map(|call| &call["tid"]);
        if tids.into_iter().any(|tid| *tid != tree["tid"]) {
            return Err(format!("two threads in one tree: {tree}\n{}", printed.messages).into());
        }
        if !tree["doubt"].is_null() {
            doubtful += 1;
            if shape.iter().any(|(.., parent)| parent.is_some()) {
                return Err(format!("a doubtful caller: {tree}\n{}", printed.messages).into());
            }
            continue;
        }
        certain += 1;
        // An interrupt's calls may be there as well.
        let first: Vec<_> = shape.iter().take(3).map(|&(function, _, parent)| (function, parent)).collect();
        if first != [(chroot, None), ("ns_capable", Some(0)), ("security_capable", Some(1))] {
            return Err(format!("not a tree of a call: {tree}\n{}", printed.messages).into());
        }
    }
    let all = APART + 2 * CHANGES;
    let messages = &printed.messages;
    let missing = all.checked_sub(shown).map(|missing| missing as u64);
    // The tool does not count all that is in the buffer when it is ended.
    let is_counted = !messages.contains(NOT_ALL_COUNTED);
    if certain == 0 || missing.is_none_or(|missing| is_counted && missing > said_to_be_missing(messages)) {
        return Err(
            format!("{certain} trees and {doubtful} doubtful ones, with {shown} of {all} calls\n{messages}").into()
        );
    }
    Ok(format!("{all} calls on two threads: {certain} trees, {doubtful} doubtful ones"))
}

/// What the tool says when records were left in the buffer.
const NOT_ALL_COUNTED: &str = "at least";

/// The sum of the numbers that the tool says it lost or left out: more calls cannot be missing.
fn said_to_be_missing(messages: &str) -> u64 {
    const WHAT: [&str; 7] = [
        " records lost",
        " trees left out",
        " doubtful trees left out",
        " calls left out",
        " returns left out",
        " calls not printed",
        " calls not seen",
    ];
    let count = |line: &str, what: &str| line.split_once(what)?.0.rsplit(' ').next()?.parse::<u64>().ok();
    messages.lines().filter_map(|line| WHAT.iter().find_map(|what| count(line, what))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_be_missing() {
        let messages = "Tracing 3 functions. Ctrl-C ends it.\n\
                        61 trees printed, 40 records lost because the buffer was full\n\
                        7 trees left out because there was no room for them\n\
                        2 doubtful trees left out because the condition could not be decided\n\
                        at least 1 calls not printed because the time was over\n";
        assert_eq!(said_to_be_missing(messages), 50);
        assert_eq!(said_to_be_missing("8030 trees printed, 0 records lost because the buffer was full\n"), 0);
    }
}

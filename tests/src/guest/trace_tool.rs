// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer trace` on the running kernel: the examples of docs/examples.md, run as they stand there, and counts that
//! are exact.
//!
//! What varies from run to run (times, processors, numbers of processes, pointers) is masked in the page and in what is
//! printed; the rest must be the same, letter by letter.

mod busy;
mod live;
mod thousands;
mod trees;
mod unwritten;

use crate::entry;
use crate::guest::calls::{open, syscall};
use crate::guest::case::{Capability, Case, Failure, case, need};
use crate::guest::demo::TOOL;
use crate::guest::modules::{self, Hidden, Loaded};
use siteseer::Target;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Where the page lies in the guest.
pub const PAGE: &str = "/examples.md";
/// What the tool says when everything is attached.
const READY: &str = "; ctrl-C ends it";

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![
        case("trace", "examples_print_what_the_page_says", examples),
        case("trace", "counts_are_exact", exact),
        case("trace", "a_condition_is_the_same_in_the_kernel_and_outside", conditions),
        case("trace", "what_is_returned_is_compared_in_the_kernel", returned),
        case("trace", "the_longest_condition_is_loaded_in_each_program", longest),
        case("trace", "members_have_their_values", members),
        case("trace", "calls_are_timed", timed),
        case("trace", "stacks_have_callers", stacks),
        case("trace", "calls_are_in_their_callers", trees::nested),
        case("trace", "trees_of_many_calls_are_right_or_left_out", trees::many),
        case("trace", "numbers_are_printed_meanwhile", live::numbers),
        case("trace", "it_ends_while_calls_go_on", busy::ends),
        case("trace", "thousands_of_sites_are_asked_for", thousands::asked_for_and_left),
        case("trace", "output_that_cannot_be_written", unwritten::refused_output),
        case("trace", "bodies_alone_without_site_data", without_site_data),
        case("trace", "text_of_users_is_read", strings),
        case("trace", "a_note_on_modules_is_printed_once", note_on_modules),
    ]
}

/// What a run printed.
pub(crate) struct Printed {
    pub(crate) output: String,
    pub(crate) messages: String,
}

/// Runs the tool, does something when it is ready, and ends it.
pub(crate) fn run(
    arguments: &[String],
    environment: &[(&str, &str)],
    work: impl FnOnce() -> io::Result<()>,
) -> Result<Printed, Failure> {
    let mut command = Command::new(TOOL);
    command.args(arguments).envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = command.spawn().map_err(|error| format!("{TOOL}: {error}"))?;
    let (output, messages) = (tool.stdout.take().ok_or("no output")?, tool.stderr.take().ok_or("no messages")?);
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let reader = thread::spawn(move || -> io::Result<String> {
        let (mut lines, mut text) = (BufReader::new(output), String::new());
        while lines.read_line(&mut text)? > 0 {
            count.store(text.len(), Ordering::Relaxed);
        }
        Ok(text)
    });
    let (ready, is_ready) = mpsc::channel();
    let listener = thread::spawn(move || {
        let mut text = String::new();
        for line in BufReader::new(messages).lines().map_while(Result::ok) {
            if line.ends_with(READY) {
                let _ = ready.send(());
            } else {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    });
    // If it ends before, there is nothing to be ready.
    let worked = if is_ready.recv_timeout(Duration::from_secs(120)).is_ok() {
        let worked = work();
        until_quiet(&read);
        syscall(libc::SYS_kill, [u64::from(tool.id()), libc::SIGINT as u64, 0, 0, 0, 0])?;
        worked
    } else {
        Ok(())
    };
    tool.wait()?;
    worked?;
    let output = reader.join().map_err(|_| "the reader panicked")??;
    let messages = listener.join().map_err(|_| "the listener panicked")?;
    Ok(Printed { output, messages })
}

/// Waits until the tool has printed nothing for half a second: records travel through a buffer, into which it looks
/// every twentieth of a second.
fn until_quiet(read: &AtomicUsize) {
    let begin = Instant::now();
    loop {
        let before = read.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(500));
        if read.load(Ordering::Relaxed) == before || begin.elapsed() > Duration::from_secs(60) {
            return;
        }
    }
}

/// What the page says that is done.
pub(crate) fn workload() -> io::Result<()> {
    let (zeros, root, nowhere) = (CString::new("/dev/zero")?, CString::new("/")?, CString::new("/nowhere")?);
    as_workload(move || {
        let file = open(&zeros)?;
        let mut buffer = [0u8; 5000];
        for size in [1u64, 100, 100, 5000] {
            syscall(libc::SYS_read, [file, buffer.as_mut_ptr() as u64, size, 0, 0, 0])?;
        }
        syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
        for _ in 0..2 {
            let _ = open(&nowhere);
            let _ = syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]);
        }
        for _ in 0..3 {
            syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
        }
        Ok(())
    })
}

/// How long the workload of the page sleeps, besides.
const SLEEP: Duration = Duration::from_millis(300);

pub(crate) fn sleep() -> io::Result<()> {
    as_workload(|| {
        thread::sleep(SLEEP);
        Ok(())
    })
}

/// Does something in a thread with that name.
pub(crate) fn as_workload(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let thread = thread::spawn(move || {
        let name = CString::new("workload")?;
        syscall(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name.as_ptr() as u64, 0, 0, 0, 0])?;
        let worked = work();
        // What the thread does to end is nobody's call.
        let other = CString::new("done")?;
        syscall(libc::SYS_prctl, [libc::PR_SET_NAME as u64, other.as_ptr() as u64, 0, 0, 0, 0])?;
        worked
    });
    thread.join().map_err(|_| io::Error::other("the workload panicked"))?
}

/// Words of a command, with single quotation marks as in a shell.
pub(crate) fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(nth, part)| match nth % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// `300.2ms`, `5.0us,`
fn is_time(word: &str) -> bool {
    let number = ["ns", "us", "ms", "s"].iter().find_map(|unit| word.trim_end_matches(',').strip_suffix(unit));
    number.is_some_and(|number| number.parse::<f64>().is_ok())
}

/// Text without what differs from run to run: pointers, times, and the numbers of a line before the call's name.
fn masked(text: &str) -> String {
    let word = |word: &str| {
        if is_time(word) {
            return "#".to_owned();
        }
        let (open, rest) = word.split_at(word.find("0x").unwrap_or(word.len()));
        let digits = rest.get(2..).unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        // An offset in a symbol is the same on the same kernel; a pointer is long.
        if end >= 6 { format!("{open}0x#{}", &digits[end..]) } else { word.to_owned() }
    };
    let line = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(word).collect();
        let is_call = words.first().is_some_and(|time| time.contains('.') && time.parse::<f64>().is_ok());
        if is_call && words.len() > 3 {
            let task = words[2].split('/').next().unwrap_or_default().to_owned();
            words.splice(..3, ["#".to_owned(), "#".to_owned(), format!("{task}/#")]);
        }
        words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The commands of the page for root, with what they print.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("```console\n# siteseer ").skip(1);
    blocks.filter_map(|block| block.split_once("```")?.0.split_once('\n')).collect()
}

/// What of the messages the page shows: not what is attached, which the mechanism decides, nor numbers of what was
/// lost.
fn shown(printed: &Printed) -> String {
    let messages = printed.messages.lines().filter(|line| line.starts_with("siteseer: ") || line.starts_with("note: "));
    let messages: String = messages.map(|line| format!("{line}\n")).collect();
    format!("{messages}{}", printed.output)
}

fn examples(_: &Target) -> Result<String, Failure> {
    let page = std::fs::read_to_string(PAGE).map_err(|error| format!("{PAGE}: {error}"))?;
    let (mut wrong, mut count) = (String::new(), 0);
    for (command, wanted) in blocks(&page) {
        let work = || workload().and_then(|()| sleep());
        let printed = shown(&run_seeing(&words(command), work)?);
        if masked(&printed) != masked(wanted) {
            wrong.push_str(&format!("# siteseer {command}\n{printed}"));
        }
        count += 1;
    }
    match (count, wrong.is_empty()) {
        (0, _) => Err("the page has no commands".into()),
        (_, true) => Ok(format!("{count} commands print what the page says")),
        (_, false) => Err(format!("docs/examples.md is not what is printed:\n{wrong}").into()),
    }
}

/// How often the function is called.
const CALLS: u64 = 300_000;

/// Every call is counted, also those that find another CPU counting the same.
fn exact(_: &Target) -> Result<String, Failure> {
    let call = || {
        as_workload(|| {
            for _ in 0..CALLS / 2 {
                syscall(libc::SYS_getppid, [0; 6])?;
            }
            Ok(())
        })
    };
    let function = entry!("getppid");
    let mut results = Vec::new();
    for more in [&["--count"][..], &["--count", "comm"], &["--where", "comm = workload", "--count", "cpu"]] {
        let arguments: Vec<String> =
            ["trace", function, "--json"].iter().chain(more).map(|&word| word.to_owned()).collect();
        let printed = run(&arguments, &[], || {
            let other = thread::spawn(call);
            call()?;
            other.join().map_err(|_| io::Error::other("the other caller panicked"))?
        })?;
        let rows = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
        // Who else calls it has another name.
        let own = rows.iter().filter(|row| row["comm"].is_null() || row["comm"] == "workload");
        let sum: u64 = own.filter_map(|row| row["count"].as_u64()).sum();
        let others = more == ["--count"];
        if sum < CALLS || (sum > CALLS && !others) {
            return Err(format!(
                "{more:?}: {sum} of {CALLS} calls were counted\n{}{}",
                printed.output, printed.messages
            )
            .into());
        }
        results.push(format!("{sum}"));
    }
    Ok(format!("{CALLS} calls on two threads: counted {}", results.join(", ")))
}

/// Each condition leaves the same calls whether the kernel decides it (they are counted) or the tool does (they are
/// printed).
fn conditions(_: &Target) -> Result<String, Failure> {
    let table = [
        ("comm = workload and count = 100", 2),
        ("comm = workload and count != 100", 2),
        ("comm = workload and count > 100", 1),
        ("comm = workload and count >= 100", 3),
        ("comm = workload and not (count < 100 or count > 0x1000)", 2),
        ("comm ~ workl* and count <= 1", 1),
        ("comm !~ other* and comm = workload and pos != NULL", 4),
        ("comm = workload and (count = 1 or count = 5000)", 2),
        ("comm = workload and count = 0144", 2),
        ("comm = workload and pid != 0 and tid != 0 and cpu < 4096", 4),
        ("comm = workload and count < 0", 0),
        ("comm = workload and count > -1", 4),
        ("comm = workload and file->f_path.dentry->d_name.name = zero", 4),
        ("comm = workload and file->f_path.dentry->d_name.name ~ ze*", 4),
        ("comm = workload and file->f_path.dentry->d_name.name != zero", 0),
        ("comm = workload and file->f_path.dentry->d_name.name = zer", 0),
        ("comm = workload and file->f_path.dentry->d_name.len = 4 and count = 100", 2),
        ("task->comm = workload and file->f_inode->i_rdev = 0x100005", 4),
        ("task->comm ~ work* and task->in_execve = 0", 4),
        // What cannot be read makes a comparison neither true nor false.
        ("comm = workload and buf[0] = 0", 0),
        ("comm = workload and buf[0] != 0", 0),
        ("comm = workload and not (buf[0] = 0)", 0),
        ("comm = workload and (buf[0] = 0 or count = 1)", 1),
    ];
    let mut wrong = Vec::new();
    for (condition, wanted) in table {
        let base = ["trace", "vfs_read", "--json", "--where", condition];
        let own = |more: &[&str]| base.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<String>>();
        let counted = run_seeing_all(&own(&["--count"]))?;
        let count = serde_json::from_str::<serde_json::Value>(counted.output.trim());
        let count = count.ok().and_then(|row| row["count"].as_u64()).unwrap_or(0);
        // A field that the kernel's program does not know leaves all of it to the tool.
        let outside = format!("({condition}) or kind = nothing");
        let printed = run_seeing_all(&["trace", "vfs_read", "--json", "--where", &outside].map(str::to_owned))?;
        let printed = (printed.output.lines().count() as u64, printed.messages);
        if count != wanted || printed.0 != wanted {
            wrong.push(format!(
                "{condition}: {wanted} calls, {count} counted, {} printed\n{}{}",
                printed.0, counted.messages, printed.1
            ));
        }
    }
    if wrong.is_empty() { Ok(format!("{} conditions", table.len())) } else { Err(wrong.join("\n").into()) }
}

/// Conditions on what is returned, in each program that runs at returns. Nothing is left to the tool: then it would
/// print a note, and a flood of calls would not fit into the buffer.
fn returned(_: &Target) -> Result<String, Failure> {
    let table: [(&str, &[&str], &str, usize); 12] = [
        ("vfs_read", &[], "retval = 100", 2),
        ("vfs_read", &[], "retval != 100 and retval >= 1", 2),
        ("vfs_read", &[], "retval > -1 and not (retval > 100 or count = 1)", 2),
        ("vfs_read", &["--latency"], "retval > 0x1000", 1),
        ("vfs_read", &["--field", "file->f_inode->i_rdev"], "retval <= 100", 3),
        ("do_sys_openat2", &[], "retval < 0", 2),
        ("do_sys_openat2", &[], "retval = -2", 2),
        ("do_sys_openat2", &[], "retval >= 0", 1),
        // Its two calls of an inlined copy have no return: a comparison with it is neither true nor false.
        ("ns_capable", &[], "retval = true", 3),
        ("ns_capable", &[], "retval != true", 0),
        ("ns_capable", &[], "not (retval = true)", 0),
        ("ns_capable", &[], "retval = true or cap = 21", 5),
    ];
    let run = |function: &str, more: &[&str], condition: &str, work: fn() -> io::Result<()>| {
        let condition = format!("comm = workload and ({condition})");
        let base = ["trace", function, "--returns", "--json", "--where", &condition];
        run_seeing(&base.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<String>>(), work)
    };
    let mut wrong = Vec::new();
    for (function, more, condition, wanted) in table {
        let printed = run(function, more, condition, workload)?;
        let count = printed.output.lines().count();
        if count != wanted || printed.messages.contains("note: ") {
            wrong.push(format!("{function} {condition}: {wanted} calls, {count} printed\n{}", printed.messages));
        }
    }
    let function = "vfs_read";
    let flood = || {
        as_workload(|| {
            let (file, mut byte) = (open(&CString::new("/dev/zero")?)?, 0u8);
            for _ in 0..CALLS / 2 {
                syscall(libc::SYS_read, [file, (&raw mut byte) as u64, 1, 0, 0, 0])?;
            }
            syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
            Ok(())
        })
    };
    let printed = run(function, &[], "retval < 0", flood)?;
    if !printed.messages.contains("0 calls printed, 0 lost because the buffer was full") {
        wrong.push(format!("{function}: {}", printed.messages));
    }
    if wrong.is_empty() { Ok(format!("{} conditions, and a flood", table.len())) } else { Err(wrong.join("\n").into()) }
}

/// The longest condition that the kernel's program decides: eight comparisons, with members and texts. The verifier of
/// each kernel takes it in each program that decides conditions, except that Linux 6.1 gives up the one with stacks:
/// then the tool says what to do.
fn longest(target: &Target) -> Result<String, Failure> {
    const REFUSAL: &str = "--where: the kernel's verifier gives up";
    let gives_up = target.kernel().release.starts_with("6.1.");
    let condition = "comm = workload and (count = 0xdead or buf = 1 or pos = 1 or file->f_path.dentry->d_name.len = 99 \
                     or file->f_path.dentry->d_name.name = another or task->comm = a_text_that_is_not \
                     or file->f_path.dentry->d_name.name ~ ze*)";
    // Each with what must be there once for each of the four calls, or what adds up to four.
    let programs: [(&[&str], Seen); 9] = [
        (&[], Seen::Lines),
        (&["--returns"], Seen::Lines),
        (&["--returns", "--latency"], Seen::Lines),
        (&["--stack"], Seen::Lines),
        (&["--tree"], Seen::Lines),
        (&["--latency"], Seen::Sum("calls")),
        (&["--count", "comm"], Seen::Sum("count")),
        (&["--count", "stack"], Seen::Sum("count")),
        (&["--count", "site"], Seen::Sum("count")),
    ];
    let mut wrong = Vec::new();
    for (more, seen) in &programs {
        let base = ["trace", "vfs_read", "--json", "--where", condition];
        let printed = run_seeing_all(&base.iter().chain(*more).map(|&word| word.to_owned()).collect::<Vec<String>>())?;
        let calls = match seen {
            Seen::Lines => printed.output.lines().count() as u64,
            Seen::Sum(name) => {
                let rows = printed.output.lines().filter_map(|row| serde_json::from_str::<serde_json::Value>(row).ok());
                rows.filter_map(|row| row[name].as_u64()).sum()
            }
        };
        if gives_up && *more == ["--stack"] && printed.messages.contains(REFUSAL) && printed.output.is_empty() {
            continue;
        }
        // The tool would say that it decides itself.
        if calls != 4 || printed.messages.contains("note: ") {
            wrong.push(format!("{more:?}: {calls} of 4 calls\n{}{}", printed.output, printed.messages));
        }
    }
    if wrong.is_empty() { Ok(format!("{} programs", programs.len())) } else { Err(wrong.join("\n").into()) }
}

/// How the calls that a command saw are counted in what it printed.
enum Seen {
    Lines,
    Sum(&'static str),
}

/// The same, where all of the workload's calls were seen. A program does not run for a call that is made while it runs
/// on that CPU for another task, which was interrupted: the command counts such calls, and on a loaded machine they may
/// be the workload's.
fn run_seeing_all(arguments: &[String]) -> Result<Printed, Failure> {
    run_seeing(arguments, workload)
}

/// The same with other work.
fn run_seeing(arguments: &[String], work: fn() -> io::Result<()>) -> Result<Printed, Failure> {
    const TRIES: usize = 5;
    let mut printed = run(arguments, &[], work)?;
    for _ in 1..TRIES {
        if !["calls not seen", "calls not timed"].iter().any(|lost| printed.messages.contains(lost)) {
            break;
        }
        printed = run(arguments, &[], work)?;
    }
    Ok(printed)
}

/// Calls in calls each have their own time, also those of a function in itself. A histogram has all calls that return.
fn timed(_: &Target) -> Result<String, Failure> {
    let own = |functions: &[&str], more: &[&str]| -> Vec<String> {
        let base = ["--json", "--latency", "--where", "comm = workload"];
        ["trace"].iter().chain(functions).chain(&base).chain(more).map(|&word| word.to_owned()).collect()
    };
    let parse = |printed: &Printed| {
        printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()
    };
    let wrong = |what: &str, printed: &Printed| Err(format!("{what}: {}{}", printed.output, printed.messages).into());

    let printed = run_seeing(&own(&["hrtimer_nanosleep", "do_nanosleep"], &["--returns"]), sleep)?;
    let calls = parse(&printed)?;
    let names: Vec<&str> = calls.iter().filter_map(|call| call["function"].as_str()).collect();
    let times: Vec<u64> = calls.iter().filter_map(|call| call["latency"].as_u64()).collect();
    // Somebody waits for the thread, so that it does not take much longer.
    let around = SLEEP.as_nanos() as u64..SLEEP.as_nanos() as u64 * 100;
    if names != ["do_nanosleep", "hrtimer_nanosleep"]
        || times.len() != 2
        || !times.iter().all(|time| around.contains(time))
        || times[1] <= times[0]
    {
        return wrong("a sleep in another call", &printed);
    }

    let printed = run_seeing(&own(&["ep_loop_check_proc"], &["--returns"]), nested_epolls)?;
    let times: Vec<Option<u64>> = parse(&printed)?.iter().map(|call| call["latency"].as_u64()).collect();
    // First of one alone; then of one in the other, and the inner one returns first.
    if !matches!(times[..], [Some(alone), Some(inner), Some(outer)] if alone > 0 && inner > 0 && outer > inner) {
        return wrong("calls of a function in itself", &printed);
    }

    // Three calls of the body, and two in a copy that has no return.
    let printed = run_seeing(&own(&["ns_capable", "hrtimer_nanosleep"], &[]), || workload().and_then(|()| sleep()))?;
    let rows = parse(&printed)?;
    let calls: Vec<u64> = rows.iter().filter_map(|row| row["calls"].as_u64()).collect();
    if calls != [3, 1] || !rows.iter().all(adds_up) || !printed.messages.contains("ns_capable: calls are timed at 1 of")
    {
        return wrong("histograms", &printed);
    }
    if !rows[1]["total"].as_str().and_then(|total| total.parse().ok()).is_some_and(|total| around.contains(&total)) {
        return wrong("the time of a sleep", &printed);
    }

    let function = entry!("getppid");
    let printed = run_seeing(&own(&[function], &[]), || {
        let call = || as_workload(|| (0..CALLS / 2).try_for_each(|_| syscall(libc::SYS_getppid, [0; 6]).map(drop)));
        let other = thread::spawn(call);
        call()?;
        other.join().map_err(|_| io::Error::other("the other caller panicked"))?
    })?;
    let rows = parse(&printed)?;
    if !matches!(&rows[..], [row] if row["calls"] == CALLS && adds_up(row)) {
        return wrong("calls on two threads", &printed);
    }
    Ok(format!("a sleep in another call, calls of a function in itself, 3 of 5 calls, {CALLS} calls on two threads"))
}

/// Stacks of calls in inlined copies, and of calls of a body: from the function outwards, with what is inlined. A stack
/// whose callers are not certain says so, and has no wrong ones.
fn stacks(_: &Target) -> Result<String, Failure> {
    let (mut whole, mut lines) = (0, 0);
    for (function, count) in [("ns_capable", 5), ("file_ppos", 4)] {
        let arguments = ["trace", function, "--stack", "--json", "--where", "comm = workload"].map(str::to_owned);
        let printed = run_seeing_all(&arguments)?;
        let calls = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
        let wrong = |why: String| Err(format!("{why}\n{}{}", printed.output, printed.messages).into());
        if calls.len() != count {
            return wrong(format!("{} calls", calls.len()));
        }
        for call in &calls {
            match stack_is_right(call) {
                Some(is_whole) => whole += usize::from(is_whole),
                None => return wrong(format!("the stack of {call}")),
            }
            let mut frames = call["stack"].as_array().into_iter().flatten();
            lines += usize::from(frames.any(|frame| frame["inlined"] == true && !frame["line"].is_null()));
        }
    }
    // The calls of the body at least, and on x86 those in the copy in ksys_read(), where there is no push.
    let least = if cfg!(target_arch = "x86_64") { 7 } else { 3 };
    if whole < least || lines == 0 {
        return Err(format!("{whole} whole stacks, {lines} with lines of inlined functions").into());
    }
    count_by_stack()?;
    Ok(format!("{whole} of 9 stacks are whole, the callers of the others are left out"))
}

/// Calls counted by stack: three of the body, and two in an inlined copy, each where it is called from.
fn count_by_stack() -> Result<(), Failure> {
    let arguments =
        ["trace", "ns_capable", "--json", "--where", "comm = workload", "--count", "stack"].map(str::to_owned);
    let printed = run_seeing_all(&arguments)?;
    let rows = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
    let (mut bodies, mut copies) = (0, 0);
    for row in &rows {
        let symbol = |nth: usize| row["stack"][nth]["function"].as_str().and_then(|name| name.split('+').next());
        let count = row["count"].as_u64().unwrap_or(0);
        match row["stack"][0]["inlined"].as_bool() {
            Some(false) if symbol(0) == Some("ns_capable") && symbol(1).is_some() => bodies += count,
            Some(true) if symbol(0) == Some("ns_capable") && symbol(1) == Some("capable") => copies += count,
            _ => return Err(format!("the stack of {row}\n{}", printed.messages).into()),
        }
    }
    if (bodies, copies) != (3, 2) {
        return Err(
            format!("{bodies} calls of the body, {copies} in a copy\n{}{}", printed.output, printed.messages).into()
        );
    }
    Ok(())
}

/// Whether the whole stack of one of the workload's calls is there; `None` if what is there is wrong.
fn stack_is_right(call: &serde_json::Value) -> Option<bool> {
    let function = call["function"].as_str()?;
    let frames: Vec<&serde_json::Value> = call["stack"].as_array()?.iter().collect();
    let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
    let symbol = |nth: usize| names.get(nth).and_then(|name: &&str| name.split('+').next());
    let is_inlined = call["site"]["kind"] == "inline";
    // The function, and the one that the copy is in.
    let is_begun = symbol(0) == Some(function)
        && frames.first()?["inlined"] == is_inlined
        && (!is_inlined || symbol(1) == call["site"]["symbol"].as_str());
    let has = |part: &str| names.iter().any(|name| name.contains(part));
    let is_sure = !names.contains(&"?");
    // All of them are called for a system call, by the kernel's entry.
    let number = match function {
        "file_ppos" => "sys_read",
        _ if is_inlined => "swapoff",
        _ => "chroot",
    };
    let entry = has("do_syscall_64") || has("el0_svc");
    let is_right = match cfg!(target_arch = "x86_64") {
        // All callers, or none.
        true if is_sure => has(number) && entry,
        true => is_inlined && names.len() == 3,
        // The caller of what the site is in may be missing, but no other.
        false if is_sure => !is_inlined && has(number) && entry,
        false => is_inlined && entry,
    };
    (is_begun && is_right && !has("bpf_") && !has("kprobe")).then_some(is_sure)
}

/// Whether the rows of a histogram have as many calls as there were, with times whose sum is the total.
fn adds_up(json: &serde_json::Value) -> bool {
    let number = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse::<u128>().ok()).unwrap_or(0);
    let (mut calls, mut least, mut most) = (0, 0, 0);
    for row in json["histogram"].as_array().into_iter().flatten() {
        let count = row["count"].as_u64().unwrap_or(0);
        calls += count;
        least += number(&row["low"]) * u128::from(count);
        most += number(&row["high"]) * u128::from(count);
    }
    json["calls"] == calls && least > 0 && (least..=most).contains(&number(&json["total"]))
}

/// An epoll in an epoll in an epoll: the function that looks for loops calls itself for each.
fn nested_epolls() -> io::Result<()> {
    as_workload(|| {
        let epoll = || syscall(libc::SYS_epoll_create1, [0; 6]).map(|file| file as u64);
        let add = |to: u64, what: u64| {
            let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let event = (&raw const event) as u64;
            syscall(libc::SYS_epoll_ctl, [to, libc::EPOLL_CTL_ADD as u64, what, event, 0, 0])
        };
        let [a, b, c] = [epoll()?, epoll()?, epoll()?];
        add(b, a)?;
        add(c, b)?;
        [a, b, c].into_iter().try_for_each(|file| syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]).map(drop))
    })
}

/// Members of structures have the values that the workload made.
fn members(_: &Target) -> Result<String, Failure> {
    let fields = [
        "file->f_path.dentry->d_name.name",
        "file->f_inode->i_rdev",
        "task->comm",
        "task->tgid",
        "task->in_execve",
        "buf[0]",
        "file->f_pos",
    ];
    let mut arguments = ["trace", "vfs_read", "--json", "--where", "comm = workload"].map(str::to_owned).to_vec();
    arguments.extend(fields.iter().flat_map(|&field| ["-f".to_owned(), field.to_owned()]));
    let own = std::process::id().to_string();
    for returns in [false, true] {
        if returns {
            arguments.push("--returns".to_owned());
        }
        let printed = run_seeing_all(&arguments)?;
        let calls = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
        if calls.len() != 4 {
            return Err(format!("{} calls\n{}{}", calls.len(), printed.output, printed.messages).into());
        }
        for call in &calls {
            let values: Vec<&serde_json::Value> = call["fields"].as_array().into_iter().flatten().collect();
            let text = |nth: usize| values.get(nth).and_then(|value| value["value"].as_str());
            let wanted = [Some("zero"), Some("1048581"), Some("workload"), Some(&*own), Some("0"), None, Some("0")];
            let found: Vec<Option<&str>> = (0..wanted.len()).map(text).collect();
            // User memory is not read as the kernel's.
            if found != wanted || values[5]["unreadable"] != true || values[0]["unreadable"] != false {
                return Err(format!("{found:?} instead of {wanted:?}: {call}").into());
            }
        }
    }
    of_what_is_returned()?;
    port()?;
    Ok("7 members of 4 calls at their beginning and return, one of a returned pointer, a port in network order"
        .to_owned())
}

/// A member of the structure that a function returns a pointer to.
fn of_what_is_returned() -> Result<(), Failure> {
    let member = "retval->f_inode->i_rdev";
    let arguments = ["trace", "do_fil[pe]_open", "-r", "--json", "-f", member, "--where", "comm = workload"];
    let printed = run_seeing_all(&arguments.map(str::to_owned))?;
    let calls = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
    let fields: Vec<(Option<&str>, bool)> = calls
        .iter()
        .map(|call| (call["fields"][0]["value"].as_str(), call["fields"][0]["unreadable"] == true))
        .collect();
    // /dev/zero, then files that do not exist; swapoff() opens some of them. The pointer stands for an error.
    if let [(Some("1048581"), false), rest @ ..] = &fields[..]
        && rest.len() >= 2
        && rest.iter().all(|field| *field == (None, true))
    {
        return Ok(());
    }
    Err(format!("{fields:?}: {}{}", printed.output, printed.messages).into())
}

/// A port is printed and compared as people write it. It is the one that the connection before left in the socket.
fn port() -> Result<(), Failure> {
    let connect = || {
        as_workload(|| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect("127.0.0.1:4660")?;
            socket.connect("127.0.0.1:22136")
        })
    };
    let member = "sock->sk->__sk_common.skc_dport";
    let condition = format!("comm = workload and {member} = 4660");
    let arguments = ["trace", "inet_dgram_connect", "-f", member, "--where", &condition];
    let printed = run(&arguments.map(str::to_owned), &[], connect)?;
    match printed.output.lines().filter(|line| line.contains("skc_dport=4660 ")).count() {
        1 => Ok(()),
        count => Err(format!("{count} of 1 calls with the port\n{}{}", printed.output, printed.messages).into()),
    }
}

/// Traces where no site data is found: the tool looks for it in a root of its own.
fn without_site_data(target: &Target) -> Result<String, Failure> {
    need(target, Capability::OthersSiteData)?;
    let hidden = "/var/cache/siteseer-hidden";
    std::fs::rename("/var/cache/siteseer", hidden)?;
    let printed =
        run(&["trace", "ns_capable", "--where", "comm = workload", "--count"].map(str::to_owned), &[], workload);
    let pattern = run(&["trace", "ns_cap*"].map(str::to_owned), &[], workload);
    std::fs::rename(hidden, "/var/cache/siteseer")?;
    let (printed, pattern) = (printed?, pattern?);
    // Three calls are of the body; those in the inlined copy of capable() are missed.
    let counted = printed.output.lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    if counted != ["3", "ns_capable"] || !printed.messages.contains("calls of inlined copies are missed") {
        return Err(format!("{}{}", printed.messages, printed.output).into());
    }
    if !pattern.messages.contains("ns_cap* is looked up in site data, and there is no site data") {
        return Err(pattern.messages.into());
    }
    Ok("the body's calls, and a line that says what is missed".to_owned())
}

/// Text that arguments point to in the caller's own memory, and in the kernel's.
fn strings(_: &Target) -> Result<String, Failure> {
    let text_of = |function: &str, argument: &str| -> Result<Vec<String>, Failure> {
        let arguments = ["trace", function, "--strings", "--json", "--where", "comm = workload"].map(str::to_owned);
        let printed = run_seeing_all(&arguments)?;
        let calls = printed.output.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
        let of = |call: &serde_json::Value| {
            let mut arguments = call["arguments"].as_array().into_iter().flatten();
            let named = arguments.find(|one| one["name"] == argument);
            named.and_then(|one| one["string"].as_str()).unwrap_or("no text").to_owned()
        };
        if calls.is_empty() {
            return Err(format!("no calls of {function}\n{}", printed.messages).into());
        }
        Ok(calls.iter().map(of).collect())
    };
    let by_user = text_of("do_sys_openat2", "filename")?;
    if by_user != ["/dev/zero", "/nowhere", "/nowhere"] {
        return Err(format!("the files that were opened: {by_user:?}").into());
    }
    // The kernel's own copy of the name of the task.
    let by_kernel = text_of("__set_task_comm", "buf")?;
    if by_kernel.last().map(String::as_str) != Some("done") {
        return Err(format!("the names that were set: {by_kernel:?}").into());
    }
    Ok(format!("{} by users, {} by the kernel", by_user.join(", "), by_kernel.join(", ")))
}

/// Both functions are looked for in all modules, and one of the modules has no site data.
fn note_on_modules(_: &Target) -> Result<String, Failure> {
    let module = Loaded::load()?;
    let hidden = Hidden::of_module()?;
    let printed = run(&["trace", "vfs_read", "ns_capable", "--count"].map(str::to_owned), &[], workload);
    drop((hidden, module));
    let printed = printed?;
    let is_note = |line: &&str| line.starts_with("note: ") && line.contains("there is no site data of");
    let notes: Vec<&str> = printed.messages.lines().filter(is_note).collect();
    match notes[..] {
        [note] if note.contains(modules::NAME) => Ok(note.to_owned()),
        _ => Err(format!("{} notes\n{}", notes.len(), printed.messages).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_masked() {
        let one = "    0.003114   1 workload/217   foo(p=0xffff888003c1e000, n=3) = -2 (ENOENT)  inlined in bar+0x12 (a.c:34)";
        let other = "   12.5 0 workload/9 foo(p=0xffff888003c1f0a8, n=3) = -2 (ENOENT) inlined in bar+0x12 (a.c:34)";
        assert_eq!(masked(one), masked(other));
        assert_ne!(masked(one), masked(&other.replace("n=3", "n=4")));
        assert_ne!(masked(one), masked(&other.replace("bar+0x12", "bar+0x13")));
        assert_eq!(masked(" 12 foo  3"), "12 foo 3");
        assert_eq!(masked("foo: 1 call, average 3.0ms, total 12ns"), masked("foo: 1 call, average 1.5s, total 2.0us"));
        assert_ne!(masked("foo() took 3.0ms  body"), masked("foo() took ?  body"));
    }

    #[test]
    fn words_of_a_command() {
        assert_eq!(words("trace 'a b' -s c*"), ["trace", "a b", "-s", "c*"]);
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples.md")).unwrap();
        assert!(blocks(&page).len() >= 15 && blocks(&page).iter().all(|(command, _)| command.starts_with("trace ")));
    }
}

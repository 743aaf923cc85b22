// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `.BTF.inline.ranges` costs, how fast it is, and whether its chains are those of other tools: `chains VMLINUX`,
//! or `ci/where`.
//!
//! Random addresses of the image's text are looked up here, by llvm-symbolizer and by addr2line, all from the same
//! debug information. A chain is equal if all of its functions and all of its lines are. Every difference is put into a
//! class, and the first ones of each class are printed. The exit status is 1 if fewer than [`LEAST`] of a thousand
//! chains are equal.

use siteseer_encoder::{Detail, Options, encode_all};
use siteseer_sites::file::{self, Chains, SiteFile};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How many addresses are compared, and how many are timed.
const COMPARED: usize = 10_000;
const TIMED: usize = 1_000_000;
/// How many of a thousand chains must be equal to those of each tool.
const LEAST: usize = 999;
/// How many differences of each class are printed.
const SHOWN: usize = 3;
/// How often the image is encoded in each way; the fastest one counts.
const ROUNDS: usize = 3;

/// A function of a chain: its name, and where in it the address is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    function: String,
    /// Empty if it is not known.
    file: String,
    line: u32,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: chains VMLINUX")?;
    let image = std::fs::File::open(&path)?;
    // SAFETY: the mapping is read-only and private; an image that another process truncates meanwhile ends this
    // example with SIGBUS, which is acceptable in an example.
    let image = unsafe { memmap2::Mmap::map(&image)? };
    let plain = encoded(&image, Detail::Nothing)?;
    let copies = encoded(&image, Detail::Copies)?;
    let lines = encoded(&image, Detail::Lines)?;
    for (what, (bytes, taken)) in [("without", &plain), ("--ranges", &copies), ("--lines", &lines)] {
        let file = SiteFile::parse(bytes)?;
        let (all, own) = (bytes.len(), file.sizes().ranges);
        print!("encode {what:<9} {:.2} s  file {all} bytes, .BTF.inline.ranges {own} bytes", taken.as_secs_f64());
        println!(" (+{:.1}%)", own as f64 * 100.0 / (all - own) as f64);
        if let Some(chains) = file.chains()? {
            let index = chains.index()?;
            let per_copy = own as f64 / index.copies() as f64;
            println!(
                "  {} copies, {} runs, {} pieces: {per_copy:.1} bytes a copy",
                index.copies(),
                index.runs(),
                chains.pieces()
            );
            let tables = chains.table_sizes();
            println!("  {}", tables.map(|(name, bytes)| format!("{name} {bytes}")).join(", "));
        }
    }
    for (what, (bytes, _)) in [("--ranges", &copies), ("--lines", &lines)] {
        time(what, bytes)?;
    }
    let file = SiteFile::parse(&lines.0)?;
    let addresses = addresses(&file, COMPARED);
    let chains = file.chains()?.ok_or("there are no chains")?;
    let ours: Vec<Vec<Frame>> =
        addresses.iter().map(|&address| chain(&chains, address)).collect::<Result<_, Box<dyn Error>>>()?;
    let symbols = Symbols::of(&file);
    // Short names are those of the debug information; for linkage names, llvm-symbolizer prefers the symbol table.
    let by_llvm = ["--inlines", "--functions=short", "--no-demangle", "--output-style=LLVM"];
    let by_llvm = ask("llvm-symbolizer", &[&by_llvm[..], &["--obj", &path]].concat(), &addresses, "")?;
    let as_llvm = compare("llvm-symbolizer", &addresses, &ours, &by_llvm, &by_llvm, &symbols);
    let by_addr2line = ask("addr2line", &["-a", "-i", "-f", "-e", &path], &addresses, "0x")?;
    let as_addr2line = compare("addr2line", &addresses, &ours, &by_addr2line, &by_llvm, &symbols);
    // Outside of functions, addr2line prints the nearest symbol, and there is no chain.
    let is_enough = as_llvm.all.is_enough() && as_addr2line.within.is_enough();
    if !is_enough {
        eprintln!("fewer than {LEAST} of a thousand chains are equal");
    }
    Ok(if is_enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many of so many are equal.
struct Share {
    equal: usize,
    of: usize,
}

impl Share {
    fn is_enough(&self) -> bool {
        self.of > 0 && self.equal * 1000 >= self.of * LEAST
    }
}

/// The chains that a tool finds too: of all, and of those in functions.
struct Agreement {
    all: Share,
    within: Share,
}

/// The image's site file, and the least time that it took.
fn encoded(image: &[u8], ranges: Detail) -> Result<(Vec<u8>, Duration), Box<dyn Error>> {
    let mut least = Duration::MAX;
    let mut bytes = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let encoded = encode_all(image, &Options { ranges, ..Options::default() })?;
        bytes.clear();
        file::write_with(&encoded.set, &encoded.optional(), &mut bytes)?;
        least = least.min(start.elapsed());
    }
    Ok((bytes, least))
}

/// Random addresses of the image's text, the same each time.
fn addresses(file: &SiteFile<'_>, count: usize) -> Vec<u64> {
    let sections: Vec<(u64, u64)> = file.sections().iter().map(|section| (section.address, section.size)).collect();
    let total: u64 = sections.iter().map(|(_, size)| size).sum();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut offset = random % total.max(1);
        for &(address, size) in &sections {
            match offset.checked_sub(size) {
                Some(rest) => offset = rest,
                None => return address + offset,
            }
        }
        0
    };
    (0..count).map(|_| next()).collect()
}

fn time(what: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let file = SiteFile::parse(bytes)?;
    let chains = file.chains()?.ok_or("there are no chains")?;
    let addresses = addresses(&file, TIMED);
    let opened = start.elapsed();
    let start = Instant::now();
    let index = chains.index()?;
    let decoded = start.elapsed();
    let start = Instant::now();
    let mut frames = 0;
    for &address in &addresses {
        frames += index.at(address).map_or(0, |chain| chain.map(|frame| frame.function.len().min(1)).sum());
    }
    let looked_up = start.elapsed();
    let start = Instant::now();
    let mut same = 0;
    for &address in &addresses {
        same += chains.at(address)?.map_or(0, |chain| chain.frames.len());
    }
    let searched = start.elapsed();
    println!(
        "{TIMED} addresses {what}: open {:.3} s, index {:.3} s, look up {:.3} s; without the index {:.2} s ({frames}, {same} \
         functions)",
        opened.as_secs_f64(),
        decoded.as_secs_f64(),
        looked_up.as_secs_f64(),
        searched.as_secs_f64()
    );
    Ok(())
}

fn chain(chains: &Chains<'_, '_>, address: u64) -> Result<Vec<Frame>, Box<dyn Error>> {
    let Some(chain) = chains.at(address)? else { return Ok(Vec::new()) };
    let frame = |frame: &file::Frame<'_>| Frame {
        function: frame.function.to_owned(),
        file: frame.line.map_or(String::new(), |line| line.file.to_owned()),
        line: frame.line.map_or(0, |line| line.line),
    };
    Ok(chain.frames.iter().map(frame).collect())
}

/// Asks a tool, which prints a function and a place in turn. `before` is what the line begins with that it prints
/// before each chain; if that is nothing, an empty line comes after each.
fn ask(tool: &str, arguments: &[&str], addresses: &[u64], before: &str) -> Result<Vec<Vec<Frame>>, Box<dyn Error>> {
    let mut child = Command::new(tool).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let feeding = thread::spawn(move || input.write_all(text.as_bytes()));
    let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
    let (mut all, mut chain, mut function): (Vec<Vec<Frame>>, Vec<Frame>, Option<String>) = Default::default();
    for line in output.lines() {
        let line = line?;
        let begins = !before.is_empty() && function.is_none() && line.starts_with(before);
        if begins || before.is_empty() && line.is_empty() {
            if !(begins && all.is_empty() && chain.is_empty()) {
                all.push(std::mem::take(&mut chain));
            }
            continue;
        }
        match function.take() {
            None => function = Some(line),
            Some(function) => {
                let (file, number) = place(&line);
                chain.push(Frame {
                    function: if function == "??" { String::new() } else { function },
                    file,
                    line: number,
                });
            }
        }
    }
    if !before.is_empty() {
        all.push(chain);
    }
    feeding.join().map_err(|_| "the input could not be written")??;
    if !child.wait()?.success() || all.len() != addresses.len() {
        return Err(format!("{tool} answered {} of {} addresses", all.len(), addresses.len()).into());
    }
    Ok(all)
}

/// `FILE:LINE`, `FILE:LINE:COLUMN`, `FILE:LINE (discriminator N)`, `??:0`.
fn place(text: &str) -> (String, u32) {
    let text = text.split(" (").next().unwrap_or(text);
    let mut parts = text.split(':');
    let file = parts.next().unwrap_or_default();
    let line = parts.next().and_then(|line| line.parse().ok()).unwrap_or(0);
    if file == "??" { (String::new(), 0) } else { (file.to_owned(), line) }
}

/// The image's symbols, by address.
struct Symbols(Vec<(u64, String)>);

impl Symbols {
    fn of(file: &SiteFile<'_>) -> Symbols {
        Symbols(file.containers().map(|container| (container.address, container.name.to_owned())).collect())
    }

    /// The names at the last address that is not above.
    fn at(&self, address: u64) -> impl Iterator<Item = &str> {
        let above = self.0.partition_point(|(its, _)| *its <= address);
        let last = self.0[..above].last().map(|(its, _)| *its);
        self.0[..above].iter().rev().take_while(move |(its, _)| Some(*its) == last).map(|(_, name)| name.as_str())
    }
}

/// Whether two names of a file are the same: one may have the folder that the compiler ran in before it, and
/// llvm-symbolizer writes one slash for two.
fn same_file(ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (&*ours.replace("//", "/"), &*theirs.replace("//", "/"));
    ours == theirs || (!ours.is_empty() && theirs.strip_suffix(ours).is_some_and(|rest| rest.ends_with('/')))
}

/// Whether two names belong to the same function: for Rust's functions, one has the mangled name and the other the last
/// part of it.
fn same_function(ours: &str, theirs: &str) -> bool {
    let short = theirs.split('<').next().unwrap_or(theirs);
    ours == theirs || ours.starts_with("_R") && (ours.contains(short) || short.starts_with('{'))
}

/// What differs of the functions and the places of calls, as a class; `None` if nothing does.
fn difference(address: u64, ours: &[Frame], theirs: &[Frame], symbols: &Symbols) -> Option<&'static str> {
    let is_nothing = |frames: &[Frame]| frames.iter().all(|frame| frame.function.is_empty());
    match (is_nothing(ours), is_nothing(theirs)) {
        (true, true) => return None,
        (true, false) => {
            let is_symbol = theirs.len() == 1;
            return Some(if is_symbol { "no function here, and a symbol there" } else { "no function here" });
        }
        (false, true) => return Some("no function there"),
        (false, false) => {}
    }
    if ours.len() != theirs.len() {
        return Some("another depth");
    }
    let last = ours.len() - 1;
    for (nth, (our, their)) in ours.iter().zip(theirs).enumerate() {
        // The function that has the text may be named by its symbol.
        let by_symbol = || nth == last && symbols.at(address).any(|name| name == their.function);
        if !same_function(&our.function, &their.function) && !by_symbol() {
            return Some(if nth == last { "the name of the function that has the text" } else { "another function" });
        }
    }
    ours.iter().zip(theirs).skip(1).any(|(our, their)| !same_place(our, their)).then_some("the place of a call")
}

fn same_place(ours: &Frame, theirs: &Frame) -> bool {
    ours.line == theirs.line && same_file(&ours.file, &theirs.file)
}

/// What differs of the innermost function's line; `judges` is what the other tool says.
fn line_difference(ours: &[Frame], theirs: &[Frame], judges: &[Frame]) -> Option<&'static str> {
    let (our, their) = ours.first().zip(theirs.first())?;
    if same_place(our, their) {
        return None;
    }
    let agrees = judges.first().is_some_and(|judge| same_place(our, judge));
    Some(match (our.line == their.line, agrees) {
        (true, true) => "another file for the same line; llvm-symbolizer has the file that is here",
        (true, false) => "another file for the same line",
        (false, true) => "another line; llvm-symbolizer has the line that is here",
        (false, false) => "another line",
    })
}

fn compare(
    tool: &str,
    addresses: &[u64],
    ours: &[Vec<Frame>],
    theirs: &[Vec<Frame>],
    judges: &[Vec<Frame>],
    symbols: &Symbols,
) -> Agreement {
    let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut line_classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let (mut without, mut equal, mut equal_within, mut same_lines) = (0, 0, 0, 0);
    for nth in 0..addresses.len() {
        let (ours, theirs) = (&ours[nth], &theirs[nth]);
        let class = difference(addresses[nth], ours, theirs, symbols);
        let is_without = ours.iter().all(|frame| frame.function.is_empty());
        without += usize::from(is_without);
        match class {
            Some(class) => classes.entry(class).or_default().push(nth),
            None => {
                equal += 1;
                if !is_without {
                    equal_within += 1;
                    match line_difference(ours, theirs, &judges[nth]) {
                        Some(class) => line_classes.entry(class).or_default().push(nth),
                        None => same_lines += 1,
                    }
                }
            }
        }
    }
    let inlined = ours.iter().filter(|chain| chain.len() > 1).count();
    let deepest = ours.iter().map(Vec::len).max().unwrap_or(0);
    let all = addresses.len();
    println!("{tool}: {equal} of {all} chains are equal ({:.2}%)", 100.0 * equal as f64 / all as f64);
    println!(
        "  of those in functions {equal_within} of {} are; {inlined} are in inlined copies, up to {deepest} functions deep",
        all - without
    );
    let show = |classes: BTreeMap<&str, Vec<usize>>| {
        for (class, which) in classes {
            println!("  {:>5}  {class}", which.len());
            for &nth in which.iter().take(SHOWN) {
                println!("         {:#x}: {} | {tool}: {}", addresses[nth], text(&ours[nth]), text(&theirs[nth]));
            }
        }
    };
    show(classes);
    let compared = same_lines + line_classes.values().map(Vec::len).sum::<usize>();
    println!("  innermost lines: {same_lines} of {compared} are equal");
    show(line_classes);
    Agreement { all: Share { equal, of: all }, within: Share { equal: equal_within, of: all - without } }
}

fn text(frames: &[Frame]) -> String {
    let frames = frames.iter().map(|frame| format!("{} {}:{}", frame.function, frame.file, frame.line));
    frames.collect::<Vec<String>>().join(" < ")
}

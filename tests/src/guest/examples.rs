// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The guest's half of the examples' test: each program is started as a user would, its calls are made in known ways,
//! and what it printed must be those calls.
//!
//! The host's half (`tests/examples.rs`) builds the programs, puts them into [`FOLDER`] and shows each [`Verdict`] as a
//! test. C programs come twice, linked with the system's libbpf and with the one that siteseer brings along
//! ([`LIBBPFS`]). The programs of other loaders ([`LOADERS`]) load what the host's half compiled.

use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use crate::guest::compiled::Attached;
use serde::{Deserialize, Serialize};
use siteseer_sites::with_causes;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

/// Where the programs lie in the guest: `PROGRAM` of Rust, `PROGRAM-LIBBPF` of C.
pub const FOLDER: &str = "/examples";
/// Which libbpf a C program is linked with.
pub const LIBBPFS: [&str; 2] = ["system", "vendored"];

/// Programs that load what `siteseer compile` wrote: `OBJECT` and `OBJECT.json` in [`FOLDER`].
pub const LOADERS: [&str; 2] = ["opensnoop-aya", "opensnoop-cilium"];
/// The guest itself, as a loader by libbpf alone: of that object, and of one with all that an object can have
/// (`WHOLE`).
pub const BY_LIBBPF: [&str; 2] = ["opensnoop-libbpf", "whole-libbpf"];
/// cli/tests/programs/whole.bpf.c, compiled.
const WHOLE: &str = "/examples/whole.bpf.o";
/// The object that they load.
const OBJECT: &str = "/examples/compiled.bpf.o";

/// The outcome of an example.
#[derive(Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Its name, as [`names`] has it.
    pub name: String,
    /// What it printed, by the heading of the run.
    pub printed: Vec<(String, String)>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// One example.
struct Example {
    program: &'static str,
    is_c: bool,
    run: fn(&str) -> Result<Figures, Failure>,
}

/// What is printed of a run: names and values.
type Figures = Vec<(String, String)>;

const EXAMPLES: [Example; 4] = [
    Example { program: "opensnoop", is_c: true, run: opensnoop },
    Example { program: "fsynclat", is_c: true, run: fsynclat },
    Example { program: "fchmods", is_c: true, run: fchmods },
    Example { program: "capsnoop", is_c: false, run: capsnoop },
];

/// The names of all examples, which are those of their programs' files.
pub fn names() -> Vec<String> {
    EXAMPLES.iter().flat_map(Example::names).collect()
}

impl Example {
    fn names(&self) -> Vec<String> {
        match self.is_c {
            true => LIBBPFS.iter().map(|libbpf| format!("{}-{libbpf}", self.program)).collect(),
            false => vec![self.program.to_owned()],
        }
    }
}

/// Runs the examples that are named, a line of results each.
///
/// # Errors
/// If the results cannot be written.
pub fn run(wanted: &[String], results: &mut impl Write) -> Result<(), Failure> {
    for example in &EXAMPLES {
        for name in example.names().into_iter().filter(|name| wanted.contains(name)) {
            let (printed, failure) = match (example.run)(&format!("{FOLDER}/{name}")) {
                Ok(printed) => (printed, None),
                Err(failure) => (Vec::new(), Some(with_causes(&*failure))),
            };
            let verdict = Verdict { name, printed, failure };
            writeln!(results, "{}", serde_json::to_string(&verdict)?)?;
        }
    }
    for name in LOADERS.into_iter().filter(|name| wanted.iter().any(|wanted| wanted == name)) {
        let program = format!("{FOLDER}/{name}");
        for (check, run) in [("", compiled as fn(&str) -> Result<Figures, Failure>), ("-refuses", refuses)] {
            let (printed, failure) = match run(&program) {
                Ok(printed) => (printed, None),
                Err(failure) => (Vec::new(), Some(with_causes(&*failure))),
            };
            let verdict = Verdict { name: format!("{name}{check}"), printed, failure };
            writeln!(results, "{}", serde_json::to_string(&verdict)?)?;
        }
    }
    for (name, run) in BY_LIBBPF.into_iter().zip([by_libbpf as fn() -> Result<(), Failure>, whole]) {
        if !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let failure = run().err().map(|failure| with_causes(&*failure));
        let verdict = Verdict { name: name.to_owned(), printed: Vec::new(), failure };
        writeln!(results, "{}", serde_json::to_string(&verdict)?)?;
    }
    Ok(())
}

/// A program that runs.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    messages: ChildStderr,
    /// What it has printed so far.
    text: String,
}

impl Running {
    /// Starts a program and waits until it prints a line that begins so: it is attached then.
    fn start(program: &str, arguments: &[&str], ready: &str) -> Result<Running, Failure> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let messages = child.stderr.take().ok_or("no messages")?;
        let mut running = Running { child, output, messages, text: String::new() };
        running.wait_for(ready)?;
        Ok(running)
    }

    /// Reads until a line begins so.
    fn wait_for(&mut self, ready: &str) -> Result<(), Failure> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                let mut said = String::new();
                self.messages.read_to_string(&mut said)?;
                let status = self.child.wait()?;
                return Err(format!("it ended with {status} before {ready:?}:\n{}{said}", self.text).into());
            }
            self.text.push_str(&line);
            if line.starts_with(ready) {
                return Ok(());
            }
        }
    }

    /// Has it end, as ctrl-C does, and returns all that it printed.
    fn interrupt(mut self) -> Result<String, Failure> {
        syscall(libc::SYS_kill, [u64::from(self.child.id()), libc::SIGINT as u64, 0, 0, 0, 0])?;
        self.output.read_to_string(&mut self.text)?;
        let mut said = String::new();
        self.messages.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        let text = std::mem::take(&mut self.text);
        // What is lost is said there.
        if status.success() && said.is_empty() { Ok(text) } else { Err(format!("{status}\n{text}{said}").into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid() -> String {
    std::process::id().to_string()
}

/// This thread's name; not from /proc, as opening that would be a call too many.
fn comm() -> io::Result<String> {
    let mut name = [0u8; 16];
    syscall(libc::SYS_prctl, [libc::PR_GET_NAME as u64, name.as_mut_ptr() as u64, 0, 0, 0, 0])?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

fn same(wanted: &[String], printed: &str, heading: &str) -> Result<(), Failure> {
    let printed_lines: Vec<&str> = printed.lines().skip_while(|line| !line.starts_with(heading)).skip(1).collect();
    if printed_lines == wanted {
        return Ok(());
    }
    Err(format!("called:\n{}\nprinted:\n{printed}", wanted.join("\n")).into())
}

/// Opens files by each of the three system calls; what opensnoop has to print of it.
fn opens() -> Result<Vec<String>, Failure> {
    /// `do_sys_open()` is told of large files on 64-bit machines.
    const LARGEFILE: i32 = if cfg!(target_arch = "aarch64") { 0o400_000 } else { 0o100_000 };
    let (file, nowhere) = (CString::new("/tmp/opened")?, CString::new("/tmp/nowhere/at/all")?);
    let (file, nowhere) = (&file, &nowhere);
    let here = libc::AT_FDCWD as u64;
    let mut calls: Vec<(libc::c_long, [u64; 6], i32, &CString)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        calls.push((libc::SYS_creat, [file.as_ptr() as u64, 0o600, 0, 0, 0, 0], flags, file));
        for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_APPEND] {
            calls.push((libc::SYS_open, [file.as_ptr() as u64, flags as u64, 0, 0, 0, 0], flags, file));
        }
    }
    for (flags, path) in [(libc::O_CREAT | libc::O_WRONLY, file), (libc::O_RDONLY, file), (libc::O_RDONLY, nowhere)] {
        calls.push((libc::SYS_openat, [here, path.as_ptr() as u64, flags as u64, 0o600, 0, 0], flags, path));
    }
    let (pid, comm) = (pid(), comm()?);
    let mut lines = Vec::new();
    for (number, arguments, flags, path) in calls {
        match syscall(number, arguments) {
            Ok(fd) => syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]).map(drop)?,
            Err(error) if path == nowhere && error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        lines.push(format!("{pid:<8} {comm:<16} {:08o} {}", flags | LARGEFILE, path.to_string_lossy()));
    }
    Ok(lines)
}

/// Prints every call; with libbpf alone, on the same calls, fewer.
fn opensnoop(program: &str) -> Result<Vec<(String, String)>, Failure> {
    let heading = "PID";
    let pid = pid();
    let plain = Running::start(program, &["-l", "-p", &pid], heading)?;
    let called = opens()?;
    let plain = plain.interrupt()?;
    let seen: Vec<&str> = plain.lines().skip(1).collect();
    if seen.len() >= called.len() || !seen.iter().all(|line| called.iter().any(|call| call == line)) {
        return Err(format!("libbpf alone misses nothing:\n{plain}").into());
    }
    let complete = Running::start(program, &["-p", &pid], heading)?;
    let called = opens()?;
    let complete = complete.interrupt()?;
    same(&called, &complete, heading)?;
    Ok(vec![("opensnoop -l".to_owned(), plain), ("opensnoop".to_owned(), complete)])
}

/// Synchronises a file: three times all of it, twice its data, and four times through a mapping, which is the one way
/// here to the function's own symbol.
fn fsynclat(program: &str) -> Result<Vec<(String, String)>, Failure> {
    let running = Running::start(program, &["-p", &pid()], "Tracing")?;
    let path = CString::new("/tmp/synced")?;
    let here = libc::AT_FDCWD as u64;
    let flags = (libc::O_RDWR | libc::O_CREAT) as u64;
    let file = syscall(libc::SYS_openat, [here, path.as_ptr() as u64, flags, 0o600, 0, 0])? as u64;
    syscall(libc::SYS_ftruncate, [file, 4096, 0, 0, 0, 0])?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let page = syscall(libc::SYS_mmap, [0, 4096, access, libc::MAP_SHARED as u64, file, 0])? as u64;
    for (number, times) in [(libc::SYS_fsync, 3), (libc::SYS_fdatasync, 2)] {
        for _ in 0..times {
            syscall(number, [file, 0, 0, 0, 0, 0])?;
        }
    }
    for _ in 0..4 {
        syscall(libc::SYS_msync, [page, 4096, libc::MS_SYNC as u64, 0, 0, 0])?;
    }
    syscall(libc::SYS_munmap, [page, 4096, 0, 0, 0, 0])?;
    syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
    let printed = running.interrupt()?;
    let counts = |line: &str| -> Option<u64> { line.split_once(" : ")?.1.split_whitespace().next()?.parse().ok() };
    let in_histogram: u64 = printed.lines().filter(|line| line.contains("->")).filter_map(counts).sum();
    let last = printed.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = last.split([' ', ':', ',']).filter_map(|word| word.parse().ok()).collect();
    // msync() asks for the data alone, and comes to the symbol. Whether the others do is the compiler's choice; the
    // host knows what it was on the reference kernel.
    let right = matches!(numbers[..], [9, 6, measured, inlined]
        if measured >= 4 && measured + inlined == 9 && measured == in_histogram);
    if !right {
        return Err(format!("expected 9 calls, 6 of them for the data alone, 4 or more measured:\n{printed}").into());
    }
    Ok(vec![("fsynclat".to_owned(), printed)])
}

/// The program of README.md.
fn fchmods(program: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut running = Running::start(program, &[], "0 calls")?;
    let name = CString::new("chmod")?;
    let file = syscall(libc::SYS_memfd_create, [name.as_ptr() as u64, 0, 0, 0, 0, 0])? as u64;
    for mode in [0o600u64, 0o644, 0o640] {
        syscall(libc::SYS_fchmod, [file, mode, 0, 0, 0, 0])?;
    }
    syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
    running.wait_for("3 calls, the last with mode 640")?;
    let text = running.text.clone();
    Ok(vec![("fchmods".to_owned(), text)])
}

/// Asks for one capability through the function's own symbol, and for one through a copy that does not have the
/// namespace.
fn capsnoop(program: &str) -> Result<Vec<(String, String)>, Failure> {
    const CAP_SYS_CHROOT: u32 = 18;
    const CAP_SYS_ADMIN: u32 = 21;
    let heading = "PID";
    let running = Running::start(program, &["-p", &pid()], heading)?;
    let (root, nowhere) = (CString::new("/")?, CString::new("/nowhere")?);
    syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
    match syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        other => return Err(format!("swapoff: {other:?}").into()),
    }
    let printed = running.interrupt()?;
    let (pid, comm) = (pid(), comm()?);
    let lines: Vec<&str> = printed.lines().skip_while(|line| !line.starts_with(heading)).skip(1).collect();
    let wanted = [
        format!("{pid:<8} {comm:<16} {CAP_SYS_CHROOT:>3}     0 body ns_capable+0x0"),
        format!("{pid:<8} {comm:<16} {CAP_SYS_ADMIN:>3}     ? inline capable+0x"),
    ];
    if lines.len() != wanted.len() || !lines.iter().zip(&wanted).all(|(line, wanted)| line.starts_with(wanted.as_str()))
    {
        return Err(format!("expected:\n{}\nprinted:\n{printed}", wanted.join("\n")).into());
    }
    Ok(vec![("capsnoop".to_owned(), printed)])
}

/// The compiled opensnoop prints every call, as the one of libbpf does.
fn compiled(program: &str) -> Result<Figures, Failure> {
    let heading = "PID";
    let running = Running::start(program, &["-p", &pid(), OBJECT, &format!("{OBJECT}.json")], heading)?;
    let called = opens()?;
    let printed = running.interrupt()?;
    same(&called, &printed, heading)?;
    Ok(vec![("compiled".to_owned(), printed)])
}

/// libbpf without siteseer sees every call.
fn by_libbpf() -> Result<(), Failure> {
    let attached = Attached::new(OBJECT, &format!("{OBJECT}.json"), std::process::id())?;
    // libbpf opens files to attach the rest.
    attached.events()?;
    let called = opens()?;
    let mut printed = "PID\n".to_owned();
    for event in attached.events()? {
        let word = |at: usize| event.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let text = |range: std::ops::Range<usize>| {
            let bytes = event.get(range)?;
            Some(String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next()?).into_owned())
        };
        let (pid, flags) = word(0).zip(word(4)).ok_or("an event is cut off")?;
        let (comm, path) = text(8..24).zip(text(24..280)).ok_or("an event is cut off")?;
        printed.push_str(&format!("{pid:<8} {comm:<16} {flags:08o} {path}\n"));
    }
    same(&called, &printed, "PID")
}

/// Static functions, a callback, CO-RE and variables work: three calls by chroot(2) are counted, through the body; one
/// by swapoff(2), through a copy without the namespace, is seen and not counted.
fn whole() -> Result<(), Failure> {
    let attached = Attached::new(WHOLE, &format!("{WHOLE}.json"), std::process::id())?;
    let (root, nowhere) = (CString::new("/")?, CString::new("/nowhere")?);
    // bpf(2) asks for capabilities too, as often for each reading.
    let seen = || attached.number(".bss");
    let (first, before) = (seen()?, seen()?);
    for _ in 0..3 {
        syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
    }
    if syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]).is_ok() {
        return Err("swapoff of nothing succeeded".into());
    }
    let calls = (seen()? - before) - (before - first);
    match (attached.number("counts")?, calls) {
        (3, 4) => Ok(()),
        other => Err(format!("expected 3 calls counted and 4 seen, not {other:?}").into()),
    }
}

/// What is not about this object and this kernel, or is of another version, is refused, and says why.
fn refuses(program: &str) -> Result<Figures, Failure> {
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(format!("{OBJECT}.json"))?)?;
    let changed = |pointer: &str, value: &str| -> Result<serde_json::Value, Failure> {
        let mut changed = manifest.clone();
        *changed.pointer_mut(pointer).ok_or("the manifest has no such member")? = value.into();
        Ok(changed)
    };
    let cases = [
        (changed("/schema", "siteseer-manifest/2")?, "its version is \"siteseer-manifest/2\""),
        (changed("/object/crc32", "0x00000000")?, "it is about another object"),
        (changed("/build_id", "00112233")?, "it is for the kernel with build id 00112233"),
    ];
    let path = "/tmp/changed.json";
    for (manifest, wanted) in cases {
        std::fs::write(path, serde_json::to_vec(&manifest)?)?;
        let output = Command::new(program).args([OBJECT, path]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1) || !said.contains(wanted) || !output.stdout.is_empty() {
            return Err(format!("expected {wanted:?}, not {output:?}").into());
        }
    }
    Ok(Vec::new())
}

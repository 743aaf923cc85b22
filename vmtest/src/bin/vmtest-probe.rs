// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The guest program of this package's own tests (tests/boot.rs): does one thing per word, good or bad.

use std::{
    ffi::CString,
    fs,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use siteseer_vmtest::guest;

fn main() -> ExitCode {
    guest::main(|| match std::env::args().nth(1).map(|word| act(&word)) {
        Some(Ok(code)) => code,
        Some(Err(error)) => {
            eprintln!("vmtest-probe: {error}");
            ExitCode::from(99)
        }
        None => ExitCode::SUCCESS,
    })
}

fn act(word: &str) -> io::Result<ExitCode> {
    let mut results = guest::results()?;
    match word {
        // What the machine is like, seen from inside.
        "look" => {
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            writeln!(results, "arguments {arguments:?}")?;
            writeln!(results, "variable {:?}", std::env::var("PROBE").ok())?;
            writeln!(results, "file {:?}", fs::read_to_string("/data/file")?)?;
            for line in fs::read_to_string("/proc/mounts")?.lines() {
                let mut words = line.split(' ').skip(1);
                if let (Some(place), Some(kind)) = (words.next(), words.next()) {
                    writeln!(results, "mount {kind} {place}")?;
                }
            }
            writeln!(results, "pid1 {}", std::process::id() == 1)?;
            let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"x", socket.local_addr()?)?;
            writeln!(results, "loopback {}", socket.recv(&mut [0])?)?;
            let text = fs::read_to_string("/proc/kallsyms")?;
            let address = text.lines().find(|line| line.ends_with(" T _stext")).map(|line| line.split(' ').next());
            writeln!(results, "stext {}", address.flatten().unwrap_or_default())?;
            Ok(ExitCode::from(7))
        }
        // Loads modules, each given by its file and its parameters, and prints what the kernel then has about
        // them.
        "load" => {
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            for module in arguments.chunks_exact(2) {
                load(&module[0], &module[1], &mut results)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        // Results and console output at once, and a child that writes results too.
        "flood" => {
            let chatter = thread::spawn(|| {
                for count in 0..2000 {
                    println!("chatter {count} of the program, to be in the way of anything else");
                }
            });
            for count in 0..20_000 {
                writeln!(results, "{count}")?;
            }
            let _ = chatter.join();
            let status = Command::new("/proc/self/exe").arg("word").status()?;
            writeln!(results, "child {status}")?;
            Ok(ExitCode::SUCCESS)
        }
        "word" => {
            writeln!(results, "from the child")?;
            Ok(ExitCode::SUCCESS)
        }
        "abort" => {
            writeln!(results, "before")?;
            std::process::abort()
        }
        "hang" => {
            println!("hanging now");
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
        // Has the kernel rewrite its own code, hundreds of times, while all CPUs execute it: a static key turns
        // scheduler statistics on.
        "patch" => {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| -> io::Result<()> {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                    });
                }
                let flipped = (0..300).try_for_each(|count| {
                    fs::write("/proc/sys/kernel/sched_schedstats", if count % 2 == 0 { "1" } else { "0" })
                });
                stop.store(true, Ordering::Relaxed);
                flipped
            })?;
            writeln!(results, "patched")?;
            Ok(ExitCode::SUCCESS)
        }
        // The kernel prints every CPU's call trace: a splat that leaves it alive.
        "splat" => {
            writeln!(results, "before")?;
            fs::write("/proc/sysrq-trigger", "l")?;
            thread::sleep(Duration::from_millis(500));
            Ok(ExitCode::SUCCESS)
        }
        "taint" => {
            fs::write("/proc/sys/kernel/tainted", "512")?;
            Ok(ExitCode::SUCCESS)
        }
        "panic" => {
            fs::write("/proc/sysrq-trigger", "c")?;
            Ok(ExitCode::SUCCESS)
        }
        other => Err(io::Error::other(format!("no such word: {other}"))),
    }
}

fn load(file: &str, parameters: &str, results: &mut impl Write) -> io::Result<()> {
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parameters = CString::new(parameters)?;
    finit_module(fs::File::open(file)?, &parameters, ModuleInitFlags::empty())?;
    let folder = Path::new("/sys/module").join(&name);
    let doubled = fs::read_to_string(folder.join("parameters/doubled"))?;
    let btf = fs::metadata(Path::new("/sys/kernel/btf").join(&name)).map_or("no BTF", |_| "BTF");
    let text = if folder.join("sections/.text").exists() && has_functions(&name)? { ", text" } else { "" };
    writeln!(results, "{name}: doubled {}, {btf}{text}", doubled.trim())?;
    delete_module(&CString::new(name.as_str())?, DeleteModuleFlags::O_NONBLOCK)?;
    let gone = if folder.join("sections").exists() { "still there" } else { "gone" };
    writeln!(results, "{name}: {gone}")
}

/// Whether the module has a function of its own among the kernel's symbols.
fn has_functions(module: &str) -> io::Result<bool> {
    let (owner, name) = (format!("[{module}]"), format!(" t {module}_"));
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.ends_with(&owner) && line.to_lowercase().contains(&name)))
}

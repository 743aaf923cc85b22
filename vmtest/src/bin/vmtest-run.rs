// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Boots a kernel and runs a static program in it, for people: the console goes to standard error, the results to
//! standard output, and the exit code is the program's.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use siteseer_kernels::image::KernelImage;
use siteseer_vmtest::{Accel, Arch, ExitStatus, Vm, build_guest_for};

/// Boot a kernel in QEMU and run a static program inside as root
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Kernel image, or the name of a kernel of the matrix that ci/kernel has fetched
    #[arg(long, short)]
    kernel: String,
    /// Static program that is its own init (it calls guest::main); else vmtest-init runs PROGRAM
    #[arg(long)]
    init: Option<PathBuf>,
    /// Put a file into the guest; may be repeated
    #[arg(long, short, value_name = "HOST_PATH:GUEST_PATH", value_parser = file_pair)]
    file: Vec<(PathBuf, String)>,
    /// Set an environment variable of the program; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Memory in MiB
    #[arg(long, short)]
    memory: Option<u32>,
    /// Number of CPUs
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Seconds until the guest is killed
    #[arg(long, default_value_t = 300)]
    time_limit: u64,
    /// auto, tcg or kvm
    #[arg(long, default_value = "auto")]
    accel: Accel,
    /// Add to the kernel command line
    #[arg(long)]
    append: Vec<String>,
    /// Add an argument to QEMU's
    #[arg(long, allow_hyphen_values = true)]
    qemu_arg: Vec<String>,
    /// Do not show the console
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments; with --init, arguments only
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

fn file_pair(text: &str) -> Result<(PathBuf, String), String> {
    let (host, guest) = text.rsplit_once(':').ok_or("write HOST_PATH:GUEST_PATH")?;
    Ok((host.into(), guest.to_owned()))
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vmtest-run: {}", siteseer_vmtest::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let kernel = match siteseer_kernels::cached(&arguments.kernel) {
        Some(paths) => paths.vmlinuz,
        None => PathBuf::from(&arguments.kernel),
    };
    let arch: Arch = KernelImage::read(&kernel)
        .map_err(|error| {
            let (path, why) = (kernel.display(), siteseer_vmtest::with_causes(&error));
            format!("{path}: {why} (and it is not a kernel that ci/kernel has fetched)")
        })?
        .arch();
    let mut vm = Vm::new(arch, &kernel)
        .cpus(arguments.cpus)
        .time_limit(Duration::from_secs(arguments.time_limit))
        .accel(arguments.accel)
        .on_results(|bytes| {
            // A closed pipe is the reader's business.
            let _ = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
        });
    vm = match (&arguments.init, arguments.program.as_slice()) {
        (Some(init), program_arguments) => vm.init(init).args(program_arguments),
        (None, [program, program_arguments @ ..]) => vm
            .init(&build_guest_for(arch, "siteseer-vmtest", "vmtest-init", "release")?)
            .program(Path::new(program))
            .args(program_arguments),
        (None, []) => return Err("name a program to run, or --init".into()),
    };
    for (host, guest) in &arguments.file {
        vm = vm.file(host, guest.as_str());
    }
    for (name, value) in &arguments.env {
        vm = vm.env(name, value);
    }
    for parameters in &arguments.append {
        vm = vm.append(parameters);
    }
    for argument in &arguments.qemu_arg {
        vm = vm.qemu_arg(argument);
    }
    if let Some(memory) = arguments.memory {
        vm = vm.memory(memory);
    }
    if !arguments.quiet {
        vm = vm.console(io::stderr());
    }
    let outcome = vm.run()?;
    eprintln!(
        "vmtest-run: {} on {} ({}); {:.1} s to init, {:.1} s in the guest, {:.1} s in all; results by {}",
        outcome.exit_status.map(|status| status.to_string()).unwrap_or_default(),
        outcome.release,
        outcome.accelerator,
        outcome.boot_seconds.unwrap_or_default(),
        outcome.guest_seconds.unwrap_or_default(),
        outcome.wall.as_secs_f64(),
        outcome.carrier.map(|carrier| carrier.to_string()).unwrap_or_default(),
    );
    Ok(match outcome.exit_status {
        Some(ExitStatus::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        _ => ExitCode::FAILURE,
    })
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Boots the cached kernel (`SITESEER_TEST_KERNEL`, by default deb-7.3-x86_64) with programs that behave well and
//! badly.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use siteseer_kernels::{KernelPaths, image};
use siteseer_vmtest::{Accel, Carrier, ExitStatus, Outcome, Vm, VmError, build_guest_for};

/// The kernel, or none if the environment allows to go without.
fn kernel() -> Option<KernelPaths> {
    let name = env::var("SITESEER_TEST_KERNEL").unwrap_or_else(|_| "deb-7.3-x86_64".to_owned());
    match siteseer_kernels::for_test(&name) {
        Ok(paths) => Some(paths),
        Err(absent) if absent.may_skip => {
            eprintln!("SKIPPED: {absent}");
            None
        }
        Err(absent) => panic!("{absent}"),
    }
}

macro_rules! kernel {
    () => {
        match kernel() {
            Some(kernel) => kernel,
            None => return,
        }
    };
}

/// Unwraps with what an error says: its `Debug` form holds the whole console.
trait OrFail {
    fn or_fail(self) -> Outcome;
}

impl OrFail for Result<Outcome, VmError> {
    fn or_fail(self) -> Outcome {
        self.unwrap_or_else(|error| panic!("{error}"))
    }
}

fn guest(kernel: &KernelPaths, bin: &str) -> PathBuf {
    // One build for all tests, whichever comes first.
    static BUILT: LazyLock<std::sync::Mutex<()>> = LazyLock::new(Default::default);
    let _lock = BUILT.lock();
    build_guest_for(kernel.record.arch, "siteseer-vmtest", bin, "dev").unwrap()
}

fn probe<'a>(kernel: &KernelPaths, word: &str) -> Vm<'a> {
    Vm::new(kernel.record.arch, &kernel.vmlinuz)
        .init(&guest(kernel, "vmtest-probe"))
        .arg(word)
        .time_limit(Duration::from_secs(600))
}

#[test]
fn the_machine_is_set_up_as_promised() {
    let kernel = kernel!();
    let data = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(data.path(), "content").unwrap();
    let mut streamed = Vec::new();
    let mut shown = Vec::new();
    let outcome = probe(&kernel, "look")
        .args(["two words", "\"quoted\""])
        .env("PROBE", "a value")
        .file(data.path(), "/data/file")
        .console(&mut shown)
        .on_results(|bytes| streamed.extend_from_slice(bytes))
        .run()
        .or_fail();
    assert_eq!(outcome.exit_status, Some(ExitStatus::Code(7)));
    assert_eq!(outcome.carrier, Some(Carrier::Uart));
    assert_eq!(outcome.release, kernel.record.release);
    assert!(!outcome.success() && outcome.splats.is_empty());
    let lines = outcome.result_lines();
    for line in [
        "arguments [\"two words\", \"\\\"quoted\\\"\"]",
        "variable Some(\"a value\")",
        "file \"content\"",
        "mount proc /proc",
        "mount sysfs /sys",
        "mount devtmpfs /dev",
        "mount tracefs /sys/kernel/tracing",
        "mount debugfs /sys/kernel/debug",
        "mount bpf /sys/fs/bpf",
        "mount cgroup2 /sys/fs/cgroup",
        "pid1 false",
        "loopback 1",
    ] {
        assert!(lines.iter().any(|found| found == line), "no {line:?} in {lines:#?}");
    }
    assert_eq!(streamed, outcome.results);
    assert_eq!(String::from_utf8_lossy(&shown), outcome.console);
    assert!(outcome.console.contains("Linux version"));
    assert!(outcome.guest_seconds > outcome.boot_seconds);
    eprintln!(
        "{} by {}: {:.1} s to init, {:.1} s in the guest, {:.1} s in all",
        outcome.release,
        outcome.accelerator,
        outcome.boot_seconds.unwrap_or_default(),
        outcome.guest_seconds.unwrap_or_default(),
        outcome.wall.as_secs_f64()
    );
}

#[test]
fn the_kernel_is_elsewhere_at_each_boot() {
    let kernel = kernel!();
    let data = tempfile::NamedTempFile::new().unwrap();
    let stext = |parameters: &str| {
        let vm = probe(&kernel, "look").file(data.path(), "/data/file").append(parameters);
        let lines = vm.run().or_fail().result_lines();
        lines.iter().find_map(|line| line.strip_prefix("stext ").map(str::to_owned)).unwrap()
    };
    // There are about 500 places: two boots in a row may find the same one.
    const MOST_BOOTS: usize = 6;
    let mut found: BTreeSet<String> = [stext("nokaslr")].into();
    for _ in 0..MOST_BOOTS {
        found.insert(stext(""));
        if found.len() == 3 {
            return;
        }
    }
    panic!("in {MOST_BOOTS} boots: {found:?}");
}

#[test]
fn results_are_whole_whatever_is_printed_meanwhile() {
    let kernel = kernel!();
    let expected: String = (0..20_000).map(|count| format!("{count}\n")).collect();
    let expected = expected + "from the child\nchild exit status: 0\n";
    for carrier in [Carrier::Uart, Carrier::KernelLog] {
        let mut vm = probe(&kernel, "flood");
        if carrier == Carrier::KernelLog {
            vm = vm.results_device("no-such-port");
        }
        let outcome = vm.run().or_fail();
        assert_eq!(outcome.carrier, Some(carrier));
        assert!(outcome.success());
        assert_eq!(outcome.results.len(), expected.len(), "{carrier:?}");
        assert!(outcome.results == expected.as_bytes(), "{carrier:?}");
        // A frame or a message in the kernel log may come in the middle of a line of the console, which is then lost.
        let chatter = outcome.console.lines().filter(|line| line.starts_with("chatter ")).count();
        assert!(chatter > if carrier == Carrier::KernelLog { 0 } else { 1000 }, "{carrier:?}: {chatter} lines of 2000");
        eprintln!("{carrier:?}: {:.1} s in all", outcome.wall.as_secs_f64());
    }
}

#[test]
fn a_kernel_that_patches_its_code_survives() {
    let kernel = kernel!();
    let outcome = probe(&kernel, "patch").run().or_fail();
    assert!(outcome.success());
    assert_eq!(outcome.result_lines(), ["patched"]);
}

#[test]
fn a_program_that_knows_nothing_of_init_runs_under_it() {
    let kernel = kernel!();
    let vm = Vm::new(kernel.record.arch, &kernel.vmlinuz)
        .init(&guest(&kernel, "vmtest-init"))
        .program(&guest(&kernel, "vmtest-probe"))
        .arg("word");
    assert_eq!(vm.run().or_fail().result_lines(), ["from the child"]);
}

#[test]
fn a_crash_is_an_error_with_the_results_so_far() {
    let kernel = kernel!();
    let error = probe(&kernel, "abort").run().unwrap_err();
    assert!(matches!(error, VmError::Crashed { .. }), "{error}");
    assert!(error.to_string().contains("SIGABRT"), "{error}");
    assert_eq!(error.outcome().unwrap().result_lines(), ["before"]);
}

#[test]
fn a_program_that_hangs_is_killed_with_the_machine() {
    let kernel = kernel!();
    // How long this host takes to boot and to end tells how long is long enough.
    let limit = probe(&kernel, "word").run().or_fail().wall * 2 + Duration::from_secs(10);
    let error = probe(&kernel, "hang").time_limit(limit).run().unwrap_err();
    assert!(matches!(error, VmError::TimeLimit { .. }), "{error}");
    assert!(error.to_string().contains("hanging now"), "{error}");
}

#[test]
fn a_splat_fails_a_program_that_succeeds() {
    let kernel = kernel!();
    let error = probe(&kernel, "splat").run().unwrap_err();
    assert!(matches!(error, VmError::Splat { .. }), "{error}");
    let outcome = error.outcome().unwrap();
    assert_eq!(outcome.exit_status, Some(ExitStatus::Code(0)));
    assert_eq!(outcome.result_lines(), ["before"]);
    assert!(error.to_string().contains("Call"), "{error}");

    let error = probe(&kernel, "taint").run().unwrap_err();
    assert!(matches!(error, VmError::Splat { .. }), "{error}");
    assert!(error.to_string().contains("warned"), "{error}");
}

#[test]
fn a_panic_of_the_kernel_is_an_error_that_shows_it() {
    let kernel = kernel!();
    let error = probe(&kernel, "panic").run().unwrap_err();
    assert!(matches!(error, VmError::WentDown { .. }), "{error}");
    assert!(!error.outcome().unwrap().splats.is_empty());
    assert!(error.to_string().contains("Kernel panic - not syncing"), "{error}");
}

#[test]
fn a_kernel_that_does_not_reach_init_says_how_far_it_came() {
    let kernel = kernel!();
    let vm = probe(&kernel, "word").append("rdinit=/no/such/init root=/dev/no").accel(Accel::Tcg);
    let error = vm.run().unwrap_err();
    assert!(matches!(error, VmError::NeverReachedInit { .. }), "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
}

#[test]
fn what_cannot_be_started_is_refused_before_it_is() {
    let kernel = kernel!();
    let arch = kernel.record.arch;
    let program = guest(&kernel, "vmtest-probe");

    let error = Vm::new(arch, Path::new("/no/such/image")).init(&program).run().unwrap_err();
    assert!(matches!(error, VmError::Image { .. }), "{error}");
    assert!(error.to_string().contains("/no/such/image"), "{error}");
    let error = Vm::new(arch, &kernel.vmlinux).init(&program).run().unwrap_err();
    assert!(matches!(error, VmError::Image { .. }), "{error}");
    // This test's own executable is linked dynamically.
    let error = Vm::new(arch, &kernel.vmlinuz).init(&env::current_exe().unwrap()).run().unwrap_err();
    assert!(error.to_string().contains("dynamically"), "{error}");
    let error = Vm::new(arch, &kernel.vmlinuz).run().unwrap_err();
    assert!(matches!(error, VmError::NoInit), "{error}");
    let error = probe(&kernel, "word").memory(64).run().unwrap_err();
    assert!(matches!(error, VmError::Memory { .. }), "{error}");
    let error = probe(&kernel, "word").qemu_arg("-no-such-option").accel(Accel::Tcg).run().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn the_cached_pair_is_of_one_build() {
    let kernel = kernel!();
    assert_eq!(image::check_pair(&kernel.vmlinuz, &kernel.vmlinux).unwrap(), kernel.record.build_id);
}

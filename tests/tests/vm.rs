// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Boots each kernel once, the reference twice, and shows every case inside as a test of its own.
//!
//! The first test of a boot that runs makes it, with all the cases that were asked for; the others take their verdict
//! from that run. A machine without QEMU, or a kernel that was not fetched (`ci/kernel NAME`), fails the tests with a
//! sentence that says what to do.
//!
//! # Which kernels
//! `SITESEER_KERNELS`: rows of kernels/matrix.toml with spaces or commas between; `all`; `default`: those of Debian,
//! except that of sid; or `daily`: the oldest, and the newest of each architecture. Without it, the [`REFERENCE`]
//! alone. All cases run on each, except those of a [table](siteseer_conformance::guest::extent::ON_THE_REFERENCE),
//! which says why one kernel is enough (`SITESEER_CASES=everywhere` runs them on all). With `SITESEER_CASES=daily`,
//! those that take [long](siteseer_conformance::guest::extent::LONG) run on the reference alone, and
//! [some](siteseer_conformance::guest::extent::NOT_DAILY) do not run.
//!
//! # What may differ
//! The cases state what must come out on the [`REFERENCE`] kernel, and hold there to the letter. Other compilers inline
//! otherwise and lose other arguments; there a case follows the kernel's own site data by a stated rule, and prints
//! what it found different.
//!
//! The conformance suite's cases (tests/cases) run in the same boot, as `KERNEL::suite::NAME`: what they must show on
//! which kernel is in their own tables.
//!
//! What is known to be wrong is in [`KNOWN`]: such a case must fail, and its line must go when it passes.
//!
//! A case that is not exercised says what the kernel lacks, and is not believed: it fails where the kernel's release
//! must have the capability, or the image that was booted has a function of the shape that the case looked for.

use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSection};
use siteseer::Target;
use siteseer::internals::source::{BaseTypes, SiteData};
use siteseer_conformance::guest::case::{Capability, Ending, Lack, Verdict, cases};
use siteseer_conformance::guest::demo::TOOL;
use siteseer_conformance::guest::extent::{Extent, Role, is_apart, runs_on};
use siteseer_conformance::guest::known::{self, Judged, KNOWN, SUITE};
use siteseer_conformance::guest::{code, killed, modules, own_data, refused, soak, trace_tool};
use siteseer_conformance::suite::case_file::{self, CaseFile};
use siteseer_conformance::suite::judge::{self, Status};
use siteseer_conformance::suite::prepare::Prepared;
use siteseer_encoder::{BaseKernel, Detail, KernelTypes, Options, encode_all};
use siteseer_kernels::modules::ModuleSource;
use siteseer_kernels::{KernelPaths, REFERENCE};
use siteseer_sites::file::Optional;
use siteseer_sites::with_causes;
use siteseer_sites::{SiteSet, file};
use siteseer_vmtest::{Arch, Vm, build_guest_for};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Emulated machines are slow, and so are loaded ones; a guest that hangs is stopped then. On two idle cores, a boot
/// with all cases takes about 500 s.
const TIME_LIMIT: Duration = Duration::from_secs(3000);

/// A kernel that boots when the first of its tests runs.
struct Boot {
    kernel: String,
    /// Whether it is the one with the cases that are [apart](is_apart).
    apart: bool,
    /// The cases that are run in it.
    selected: Vec<String>,
    run: OnceLock<Run>,
}

impl Boot {
    fn run(&self) -> &Run {
        self.run.get_or_init(|| boot(&self.kernel, &self.selected))
    }
}

/// What one boot brought back.
struct Run {
    verdicts: BTreeMap<String, Verdict>,
    /// Those of the conformance suite.
    suite: BTreeMap<String, judge::Verdict>,
    /// `uname -r`; empty if the kernel is not there.
    release: String,
    /// The image that was booted: what a case says that it lacks is looked for there.
    image: Option<Target>,
    /// What went wrong with the run as a whole.
    failure: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let chosen = siteseer_kernels::chosen().map_err(|error| with_causes(&error));
    let (kernels, extent) = match chosen.and_then(|kernels| Ok((kernels, Extent::chosen()?))) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut boots: Vec<Arc<Boot>> = kernels
        .into_iter()
        .flat_map(|kernel| [false, true].map(|apart| (kernel.clone(), apart)))
        .filter(|(kernel, apart)| !apart || kernel == REFERENCE)
        .map(|(kernel, apart)| {
            let selected = selection(&arguments, &kernel, apart, extent);
            Arc::new(Boot { kernel, apart, selected, run: OnceLock::new() })
        })
        .collect();
    // What takes longest is not to be what all others have waited for: the reference by far, then kernels of another
    // architecture, with programs that have to be built for them.
    let host = Arch::host().map(|arch| arch.to_string()).unwrap_or_default();
    boots.sort_by_key(|boot| (boot.kernel != REFERENCE, boot.kernel.ends_with(&host)));
    // The boots come first, and then the cases one by one rather than kernel by kernel: the threads of the test program
    // then boot different kernels, an emulated machine on each, instead of waiting for the same one.
    let mut trials = Vec::new();
    for boot in boots.iter().cloned() {
        // The run itself is a test: splats, a crash of the guest's program, or a kernel that does not boot.
        let which = if boot.apart { "_apart" } else { "" };
        trials.push(Trial::test(format!("{}::the_kernel_does_not_complain{which}", boot.kernel), move || {
            boot.run().failure.clone().map_or(Ok(()), |why| Err(Failed::from(why)))
        }));
    }
    for case in cases() {
        let is_of = |boot: &&Arc<Boot>| {
            let role = Role::of(&boot.kernel);
            runs_on(&case.name, role, extent) && is_apart(&case.name, role) == boot.apart
        };
        for boot in boots.iter().filter(is_of) {
            let (boot, name) = (boot.clone(), case.name.clone());
            trials.push(Trial::test(format!("{}::{name}", boot.kernel), move || {
                known(&boot.kernel, &name, verdict(&boot.kernel, boot.run(), &name), boot.run())
            }));
        }
    }
    for name in suite_names() {
        for boot in boots.iter().filter(|boot| !boot.apart) {
            let (boot, name) = (boot.clone(), name.clone());
            trials
                .push(Trial::test(format!("{}::{SUITE}{name}", boot.kernel), move || suite_verdict(boot.run(), &name)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The cases of a boot that the command line's filters leave.
fn selection(arguments: &Arguments, kernel: &str, apart: bool, extent: Extent) -> Vec<String> {
    let names = cases().into_iter().map(|case| case.name);
    let names = names.chain(suite_names().into_iter().map(|name| format!("{SUITE}{name}")));
    names
        .filter(|name| {
            let role = Role::of(kernel);
            if !runs_on(name, role, extent) || is_apart(name, role) != apart {
                return false;
            }
            let full = format!("{kernel}::{name}");
            let hit = |filter: &String| if arguments.exact { full == *filter } else { full.contains(filter.as_str()) };
            arguments.filter.as_ref().is_none_or(hit) && !arguments.skip.iter().any(hit)
        })
        .collect()
}

/// A verdict by the table of what is known to be wrong. That the guest said nothing of a case is not a failure of the
/// case.
fn known(kernel: &str, name: &str, verdict: Result<(), Failed>, run: &Run) -> Result<(), Failed> {
    match known::judge(KNOWN, kernel, name, verdict.is_err()) {
        Judged::Known(_) if run.verdicts.contains_key(name) => Ok(()),
        Judged::AsItIs | Judged::Known(_) => verdict,
        Judged::Outdated(wrong) => {
            Err(format!("it passes: remove its line from tests/src/guest/known.rs: {wrong}").into())
        }
    }
}

fn verdict(kernel: &str, run: &Run, name: &str) -> Result<(), Failed> {
    let Some(verdict) = run.verdicts.get(name) else {
        return Err(run.failure.clone().unwrap_or_else(|| "the guest said nothing of this case".to_owned()).into());
    };
    match &verdict.ending {
        Ending::Failed => Err(verdict.detail.clone().into()),
        Ending::Passed { differences } if kernel == REFERENCE && !differences.is_empty() => {
            Err(format!("not as the case was written for this kernel:\n{}", differences.join("\n")).into())
        }
        Ending::Passed { .. } => Ok(()),
        Ending::NotExercised(Lack::Capability(Capability::RawLink)) => match is_patched(kernel, RAW_LINK) {
            true => Err(format!("not exercised, and the kernel has {RAW_LINK}.patch").into()),
            false => Ok(()),
        },
        Ending::NotExercised(lack) if kernel == REFERENCE => {
            Err(format!("not exercised on the kernel that it is written for: {lack}").into())
        }
        Ending::NotExercised(lack) => match &run.image {
            Some(image) => lack.holds(&run.release, image).map_err(Failed::from),
            None => Err(format!("not exercised, and there is no image to look into: {lack}").into()),
        },
    }
}

/// The patch of kernels/patches for [`Capability::RawLink`]. No release has it, so the reference kernel may lack it.
const RAW_LINK: &str = "kprobe-multi-addresses";

/// Whether a kernel was built with a patch.
fn is_patched(kernel: &str, patch: &str) -> bool {
    let build = siteseer_kernels::cached(kernel).and_then(|paths| paths.record.build);
    build.is_some_and(|build| build.recipe.patches.iter().any(|(name, _)| name == patch))
}

/// The cases of the conformance suite. A folder that cannot be read has none; a test of the suite's own says so.
fn suite_names() -> Vec<String> {
    case_file::all(&case_file::folder()).unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

/// A case that is known to fail is not a failure of the test: `ci/matrix` says so, and the case's line in
/// tests/src/guest/known.rs.
fn suite_verdict(run: &Run, name: &str) -> Result<(), Failed> {
    match run.suite.get(name) {
        Some(verdict) if verdict.status == Status::Fail => Err(verdict.detail.clone().into()),
        Some(_) => Ok(()),
        None => Err(run.failure.clone().unwrap_or_else(|| "the case cannot be read".to_owned()).into()),
    }
}

/// The suite's cases among those that are selected.
fn suite_cases(selected: &[String]) -> Vec<CaseFile> {
    let all = case_file::all(&case_file::folder()).unwrap_or_default();
    let chosen = |name: &str| selected.iter().any(|selected| selected.strip_prefix(SUITE) == Some(name));
    all.into_iter().filter(|(name, _)| chosen(name)).filter_map(|(_, case)| case.ok()).collect()
}

/// The cases with an outcome that is printed as a whole: its figures are wanted.
const FIGURES: [&str; 6] = ["reach::", "soak::", "killed::", "code::", "jumps::", "libbpf::nothing_is_lost_in_a_life"];
/// The cases that load the module.
const OF_MODULE: [&str; 6] = [
    "modules::",
    "soak::",
    "lookups::so_it_does_of_a_module",
    "libbpf::a_module_without_site_data_is_libbpfs",
    "libbpf::modules_come_and_go_between_objects",
    "trace::a_note_on_modules_is_printed_once",
];
/// The cases that have a kernel with site data of its own; they load that module too.
const OF_OWN_DATA: &str = "own_data::";

/// What the guest gets besides its program: files of this machine, and where they are in the guest.
struct Carried {
    files: Vec<(PathBuf, String)>,
    /// The image whose site data is among them.
    image: Target,
}

fn carried(kernel: &KernelPaths, selected: &[String]) -> Result<Carried, String> {
    // The stacks that the tool prints have the inlined functions in them.
    let has_stacks = selected.iter().any(|name| name.starts_with("trace::"));
    let sites = site_file(&kernel.vmlinux, if has_stacks { Detail::Lines } else { Detail::Nothing })?;
    let data = SiteData::open(&sites, None, false).map_err(|error| with_causes(&error))?;
    let image = Target::image(data).map_err(|error| with_causes(&error))?;
    let id = sites.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut files = vec![(sites.clone(), format!("/var/cache/siteseer/{id}"))];
    let has_own_data = selected.iter().any(|name| name.starts_with(OF_OWN_DATA));
    if has_own_data || selected.iter().any(|name| OF_MODULE.iter().any(|of| name.starts_with(of))) {
        let [module, module_sites] = module_files(kernel).map_err(|why| format!("the module: {why}"))?;
        if has_own_data {
            files.push((upstreams_part(&sites)?, own_data::OF_IMAGE.to_owned()));
            files.push((upstreams_part(&module_sites.0)?, own_data::OF_MODULE.to_owned()));
            // A kernel with data of its own has to serve it itself: it does not get the module that would.
            if siteseer_kernels::own_site_data(kernel).is_some() {
                let data = upstreams_part(&module_sites.0)?;
                files.push((with_section(&module.0, &data)?, own_data::WITH_DATA.to_owned()));
            } else {
                files.push((built(kernel, own_data::NAME)?, own_data::FILE.to_owned()));
            }
        }
        files.extend([module, module_sites]);
    }
    if selected.iter().any(|name| name.starts_with("trace::")) {
        let tool = build_guest_for(kernel.record.arch, "siteseer-cli", "siteseer", "guest");
        files.push((tool.map_err(|error| with_causes(&error))?, TOOL.to_owned()));
        files.push((Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples.md"), trace_tool::PAGE.to_owned()));
    }
    if selected.iter().any(|name| name.starts_with("refused::")) {
        files.push((spoiled(&kernel.vmlinux)?, refused::FILE.to_owned()));
    }
    if selected.iter().any(|name| name.starts_with("code::ten_thousand")) {
        files.push((moved(&kernel.vmlinux)?, code::FILE.to_owned()));
    }
    Ok(Carried { files, image })
}

fn boot(kernel: &str, selected: &[String]) -> Run {
    let failed = |failure: String| Run {
        verdicts: BTreeMap::new(),
        suite: BTreeMap::new(),
        release: String::new(),
        image: None,
        failure: Some(failure),
    };
    let Some(paths) = siteseer_kernels::cached(kernel) else {
        return failed(format!("kernel {kernel} has not been fetched: run ci/kernel {kernel}"));
    };
    let Carried { files, image } = match carried(&paths, selected) {
        Ok(carried) => carried,
        Err(why) => return failed(format!("what {kernel} gets: {why}")),
    };
    let prepared = match Prepared::new(&paths, &suite_cases(selected)) {
        Ok(prepared) => prepared,
        Err(why) => return failed(format!("the conformance suite's modules for {kernel}: {why}")),
    };
    let arch = paths.record.arch;
    let guest = match build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "guest") {
        Ok(guest) => guest,
        Err(why) => return failed(why.to_string()),
    };
    let number = |variable: &str| std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
    // A kill takes a part of a second, and a machine may be slow.
    let soaking = Duration::from_secs(60 * number(soak::MINUTES) + 2 * number(killed::COUNT));
    let mut vm = Vm::new(arch, &paths.vmlinuz)
        .init(&guest)
        .arg("test")
        .args(selected.iter().cloned())
        .memory(2048)
        .cpus(cpus(kernel))
        .time_limit(TIME_LIMIT + soaking);
    for (path, inside) in files {
        vm = vm.file(&path, inside);
    }
    vm = prepared.install(vm);
    for variable in [soak::MINUTES, soak::SEED, killed::COUNT, killed::SEED] {
        if let Ok(value) = std::env::var(variable) {
            vm = vm.env(variable, &value);
        }
    }
    if std::env::var_os("SITESEER_CONSOLE").is_some() {
        // And each verdict as it comes.
        vm = vm.console(std::io::stderr()).on_results(|bytes| _ = std::io::stderr().write_all(bytes));
    }
    match vm.run() {
        Ok(outcome) => {
            let lines = outcome.result_lines();
            let in_order = verdicts_in(&lines);
            print_memory(kernel, &in_order);
            let verdicts: BTreeMap<String, Verdict> =
                in_order.into_iter().map(|verdict| (verdict.name.clone(), verdict)).collect();
            print_table(kernel, &paths.record.release, outcome.wall, &verdicts);
            let failure = (!outcome.success()).then(|| {
                let splats: Vec<String> = outcome.splats.iter().map(|splat| format!("{splat:?}")).collect();
                format!(
                    "the guest ended with {:?}\n{}\n{}",
                    outcome.exit_status,
                    splats.join("\n"),
                    tail(&outcome.console)
                )
            });
            let lines = lines.iter().map(String::as_str);
            let suite = prepared.judge(lines, false, failure.as_deref().unwrap_or("it ended and said nothing"));
            print_suite(kernel, &suite);
            Run { verdicts, suite, release: paths.record.release, image: Some(image), failure }
        }
        Err(error) => {
            if let Some(outcome) = error.outcome() {
                let in_order = verdicts_in(&outcome.result_lines());
                print_memory(kernel, &in_order);
                let last = in_order.last().map_or("none", |verdict| &verdict.name);
                println!(
                    "the last case on {kernel} that ended: {last}, after {} others",
                    in_order.len().saturating_sub(1)
                );
            }
            failed(with_causes(&error))
        }
    }
}

/// The verdicts among a guest's results, in the order in which the cases ran.
fn verdicts_in(lines: &[String]) -> Vec<Verdict> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Two on the reference kernel, so that what crosses CPUs is tried. One on the others: all CPUs of an emulated machine
/// share a thread of this one, and each patch of the kernel's text has to stop the second.
fn cpus(kernel: &str) -> u32 {
    if kernel == REFERENCE { 2 } else { 1 }
}

/// The end of the console.
fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The ground truth of a run, a line a function; what differs from the reference; what was not exercised and why.
fn print_table(kernel: &str, release: &str, time: Duration, verdicts: &BTreeMap<String, Verdict>) {
    println!("\nGround truth on {kernel} ({release}, {} s):", time.as_secs());
    for verdict in verdicts.values() {
        match &verdict.ending {
            Ending::Passed { differences } => {
                if verdict.name.starts_with("truth::") {
                    println!("  {}", verdict.detail);
                }
                for difference in differences {
                    println!("      differs: {difference}");
                }
            }
            Ending::NotExercised(lack) => println!("  not exercised: {}: {lack}", verdict.name),
            Ending::Failed => {}
        }
    }
    let passed = |verdict: &&Verdict| matches!(verdict.ending, Ending::Passed { .. });
    for verdict in verdicts.values().filter(passed) {
        if verdict.name.starts_with("tools::") {
            println!("\nOrdinary tools on {kernel}, {}: {}", verdict.name, verdict.detail);
        } else if FIGURES.iter().any(|of| verdict.name.starts_with(of)) {
            println!("\n{kernel}: {}", verdict.detail);
        }
    }
    for (_, name, why) in KNOWN.iter().filter(|(on, _, _)| *on == kernel) {
        if verdicts.contains_key(*name) {
            println!("  known to be wrong: {name}: {why}");
        }
    }
    print_times(kernel, verdicts);
    println!();
}

/// The outcome of the suite's cases that did not pass.
fn print_suite(kernel: &str, verdicts: &BTreeMap<String, judge::Verdict>) {
    println!("Conformance suite on {kernel}, {} cases:", verdicts.len());
    for (name, verdict) in verdicts.iter().filter(|(_, verdict)| verdict.status != Status::Pass) {
        println!("  {}: {name}: {}", verdict.status, verdict.detail.lines().next().unwrap_or_default());
    }
    println!();
}

/// What the groups of cases took, the longest first.
fn print_times(kernel: &str, verdicts: &BTreeMap<String, Verdict>) {
    let mut groups: BTreeMap<&str, (u64, Vec<&Verdict>)> = BTreeMap::new();
    for verdict in verdicts.values() {
        let group = groups.entry(verdict.name.split("::").next().unwrap_or_default()).or_default();
        group.0 += verdict.milliseconds;
        group.1.push(verdict);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (sum, _))| std::cmp::Reverse(*sum));
    println!("\nTime on {kernel}, in seconds of the guest's clock:");
    for (group, (sum, mut cases)) in groups {
        cases.sort_by_key(|verdict| std::cmp::Reverse(verdict.milliseconds));
        let longest: Vec<String> = cases
            .iter()
            .take(6)
            .map(|verdict| {
                let name = verdict.name.split_once("::").map_or(verdict.name.as_str(), |(_, name)| name);
                format!("{name} {:.1}", verdict.milliseconds as f64 / 1000.0)
            })
            .collect();
        println!("  {:>6.1}  {group}, {} cases: {}", sum as f64 / 1000.0, cases.len(), longest.join(", "));
    }
}

/// After which cases the guest's process had more memory than ever before. All cases run in one process.
fn print_memory(kernel: &str, verdicts: &[Verdict]) {
    const MEBIBYTE: u64 = 1 << 20;
    println!("\nMemory on {kernel}, in MiB, where it grew by 8 and more:");
    let mut most = 0;
    for verdict in verdicts {
        match verdict.resident {
            None => println!("  unknown  {}", verdict.name),
            Some(resident) if resident >= most + 8 * MEBIBYTE => {
                println!("  {:>6}  {}", resident / MEBIBYTE, verdict.name);
                most = resident;
            }
            Some(_) => {}
        }
    }
}

/// A module of tests/modules, built for the kernel.
fn built(paths: &KernelPaths, name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("modules").join(name);
    let source = ModuleSource { name: name.to_owned(), folder, flags: Vec::new() };
    let built = siteseer_kernels::modules::build(paths, &[source]).map_err(|error| with_causes(&error))?;
    let built = built.into_iter().next().ok_or("nothing was built")?;
    built.map_err(|failure| format!("{}\n{}", failure.reason, failure.log))
}

/// The module that the cases load, and its site data: where they are, and where they go in the guest.
fn module_files(paths: &KernelPaths) -> Result<[(PathBuf, String); 2], String> {
    let module = built(paths, modules::NAME)?;
    let base = BaseTypes::open(&paths.vmlinux).map_err(|error| with_causes(&error))?;
    let types = KernelTypes::new(&base.btf).map_err(|error| with_causes(&error))?;
    let kernel = BaseKernel { types: &types, build_id: &base.build_id.0 };
    let sites = encoded(&module, &Options { kernel: Some(kernel), code: true, ..Options::default() })?;
    let name = sites.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok([(module, modules::FILE.to_owned()), (sites, format!("/var/cache/siteseer/{name}"))])
}

/// A copy of a module with its site data in it, as kbuild will leave it.
fn with_section(module: &Path, data: &Path) -> Result<PathBuf, String> {
    let path = data.with_extension("ko");
    let mut command = std::process::Command::new("objcopy");
    command.arg("--add-section").arg(format!(".BTF.inline={}", data.display())).arg(module).arg(&path);
    let output = command.output().map_err(|error| format!("cannot run objcopy (Debian package binutils): {error}"))?;
    if output.status.success() {
        return Ok(path);
    }
    Err(format!("objcopy {}: {}", module.display(), String::from_utf8_lossy(&output.stderr).trim()))
}

/// What of a site file is upstream's format, in a file of its own: the section `.BTF.inline`.
fn upstreams_part(sites: &Path) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", sites.display());
    let bytes = std::fs::read(sites).map_err(|error| failed(&error))?;
    let elf = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let section = elf.section_by_name(".BTF.inline").ok_or_else(|| failed(&"it has no .BTF.inline"))?;
    let path = sites.with_extension("inline");
    put(&path, section.data().map_err(|error| failed(&error))?)?;
    Ok(path)
}

/// Site data of a few functions. The kernel will refuse a site of them.
fn spoiled(vmlinux: &Path) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", vmlinux.display());
    let bytes = std::fs::read(vmlinux).map_err(|error| failed(&error))?;
    let functions = refused::FUNCTIONS.map(str::to_owned).to_vec();
    let options = Options { functions: Some(functions), ..Options::default() };
    let (mut set, _) = siteseer_encoder::encode(&bytes, &options).map_err(|error| failed(&error))?;
    refused::spoil(&mut set, &bytes)?;
    written(&set, &Optional::default(), "-refused")
}

/// Site data in which sites were moved.
fn moved(vmlinux: &Path) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", vmlinux.display());
    let bytes = std::fs::read(vmlinux).map_err(|error| failed(&error))?;
    let options = Options { code: true, ..Options::default() };
    let mut encoded = encode_all(&bytes, &options).map_err(|error| failed(&error))?;
    code::moved(&mut encoded, &bytes)?;
    written(&encoded.set, &encoded.optional(), "-moved")
}

/// The encoded site data of an image, made again: encoding takes seconds.
fn site_file(vmlinux: &Path, ranges: Detail) -> Result<PathBuf, String> {
    encoded(vmlinux, &Options { ranges, code: true, ..Options::default() })
}

fn encoded(image: &Path, options: &Options<'_>) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let bytes = std::fs::read(image).map_err(|error| failed(&error))?;
    let encoded = encode_all(&bytes, options).map_err(|error| failed(&error))?;
    written(&encoded.set, &encoded.optional(), "")
}

/// Writes site data into a file that is named for the image's build id.
fn written(set: &SiteSet, optional: &Optional<'_>, suffix: &str) -> Result<PathBuf, String> {
    let id: String = set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{id}{suffix}");
    let mut bytes = Vec::new();
    file::write_with(set, optional, &mut bytes).map_err(|error| with_causes(&error))?;
    // Of one image there may be both.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(if optional.ranges.is_some() { "lines" } else { "" });
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(format!("{name}.sites"));
    put(&path, &bytes)?;
    Ok(path)
}

/// Writes a file at once. Two boots of a kernel make the same files, and one may read them while the other writes.
fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let folder = path.parent().unwrap_or(Path::new("."));
    // A guest has it with these permissions, and some of its processes are not root's.
    let permissions = std::fs::Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Runs the suite on kernels, one boot each, several at a time.

use super::case_file::CaseFile;
use super::judge::{Status, Verdict};
use super::prepare::Prepared;
use super::results::{KernelRun, Results, Row};
use crate::guest::case::{self, Ending};
use siteseer::Target;
use siteseer::internals::source::SiteData;
use siteseer_kernels::KernelPaths;
use siteseer_sites::file;
use siteseer_sites::with_causes;
use siteseer_vmtest::{Outcome, Vm, VmError, build_guest_for};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A guest that hangs is stopped then; emulated ones are slow, and so are loaded machines.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
const MEMORY: u32 = 2048;

/// A case that cannot be read, and why.
pub type Unreadable = (String, String);

/// What to run.
pub struct Wanted {
    /// The kernels.
    pub kernels: Vec<String>,
    /// The cases.
    pub cases: Vec<CaseFile>,
    /// Those that cannot be read: they fail on every kernel.
    pub unreadable: Vec<Unreadable>,
    /// Names of the kernel's own functions (`truth::...`).
    pub truth: Vec<String>,
    /// Whether each case gets a wrong expectation.
    pub planted: bool,
    /// Where the guests' consoles are kept.
    pub consoles: PathBuf,
    /// How many guests run at a time.
    pub at_once: usize,
}

/// What one kernel brought back.
type Column = (KernelRun, BTreeMap<String, Verdict>);

/// Runs all, and says what happens in lines.
pub fn run(wanted: &Wanted, progress: &(dyn Fn(&str) + Sync)) -> Results {
    let next = AtomicUsize::new(0);
    let columns: Mutex<BTreeMap<usize, Column>> = Mutex::default();
    // One cargo at a time, and one kbuild: a machine's cores are no more for it.
    let making = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..wanted.at_once.clamp(1, wanted.kernels.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(name) = wanted.kernels.get(nth) else { return };
                    let column = kernel(name, wanted, &making, progress);
                    columns.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(nth, column);
                }
            });
        }
    });
    let columns = columns.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    collect(wanted, columns.into_values().collect())
}

fn collect(wanted: &Wanted, columns: Vec<Column>) -> Results {
    let row = |group: &str, name: &str, title: &str, about: &str, key: &str| Row {
        group: group.to_owned(),
        name: name.to_owned(),
        title: title.to_owned(),
        about: about.to_owned(),
        cells: columns
            .iter()
            .filter_map(|(kernel, verdicts)| Some((kernel.name.clone(), verdicts.get(key)?.clone())))
            .collect(),
    };
    let mut rows: Vec<Row> =
        wanted.cases.iter().map(|case| row("suite", &case.name, &case.title, &case.about, &case.name)).collect();
    for (name, why) in &wanted.unreadable {
        let fail = |(kernel, _): &Column| (kernel.name.clone(), Verdict::new(Status::Fail, why.clone()));
        let cells = columns.iter().map(fail).collect();
        rows.push(Row { cells, ..row("suite", name, "", "", name) });
    }
    for name in &wanted.truth {
        let function = name.strip_prefix("truth::").unwrap_or(name);
        rows.push(row("truth", function, "", "", name));
    }
    Results { kernels: columns.into_iter().map(|(kernel, _)| kernel).collect(), rows }
}

/// Runs one kernel. What goes wrong is that kernel's result.
fn kernel(name: &str, wanted: &Wanted, making: &Mutex<()>, progress: &(dyn Fn(&str) + Sync)) -> Column {
    let all = || wanted.cases.iter().map(|case| case.name.clone()).chain(wanted.truth.iter().cloned());
    let nothing = |run: KernelRun, why: &str| {
        let verdicts = all().map(|name| (name, Verdict::new(Status::Fail, why))).collect();
        progress(&format!("{}: {}", run.name, run.problem.as_deref().unwrap_or(why)));
        (run, verdicts)
    };
    let Some(paths) = siteseer_kernels::cached(name) else {
        // Nothing is known of its cases.
        let problem = format!("it has not been fetched or built: ci/kernel {name}");
        progress(&format!("{name}: {problem}"));
        return (KernelRun::failed(name, "", problem), Default::default());
    };
    let release = &paths.record.release;
    let ready = {
        let _one = making.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        progress(&format!("{name}: {release}: preparing"));
        ready(&paths, wanted)
    };
    let Ready { prepared, sites, image, guest } = match ready {
        Ok(ready) => ready,
        Err(why) => {
            let run = KernelRun::failed(name, release, why.to_string());
            return nothing(run, "what it takes could not be made");
        }
    };
    progress(&format!("{name}: booting"));
    let begin = Instant::now();
    let outcome = boot(&paths, &prepared, &sites, &guest, wanted);
    let seconds = begin.elapsed().as_secs();
    let (problem, known) = match &outcome {
        Ok(outcome) => (complaint(outcome), Some(outcome)),
        Err(error) => (Some(with_causes(&error)), error.outcome()),
    };
    if let Some(outcome) = known {
        let path = wanted.consoles.join(format!("{name}.console"));
        if let Err(error) = std::fs::write(&path, &outcome.console) {
            progress(&format!("{}: {error}", path.display()));
        }
    }
    let lines = known.map(Outcome::result_lines).unwrap_or_default();
    let otherwise = problem.as_deref().unwrap_or("it ended and said nothing");
    let mut verdicts = prepared.judge(lines.iter().map(String::as_str), wanted.planted, otherwise);
    verdicts.extend(truth(&lines, &wanted.truth, release, &image));
    let run = KernelRun {
        name: name.to_owned(),
        release: release.clone(),
        made_with: prepared.family.to_string(),
        problem,
        seconds,
    };
    progress(&format!("{name}: {seconds} s"));
    (run, verdicts)
}

struct Ready {
    prepared: Prepared,
    /// The kernel's encoded site data.
    sites: tempfile::NamedTempFile,
    /// The same, to be asked.
    image: Target,
    guest: PathBuf,
}

fn ready(paths: &KernelPaths, wanted: &Wanted) -> Result<Ready, Box<dyn std::error::Error + Send + Sync>> {
    let prepared = Prepared::new(paths, &wanted.cases)?;
    let guest = build_guest_for(paths.record.arch, "siteseer-conformance", "siteseer-guest", "release")?;
    let image = std::fs::read(&paths.vmlinux)?;
    let options = siteseer_encoder::Options { code: true, ..siteseer_encoder::Options::default() };
    let encoded = siteseer_encoder::encode_all(&image, &options)?;
    let sites = tempfile::Builder::new().prefix("sites-").tempfile()?;
    file::write_with(&encoded.set, &encoded.optional(), &mut std::fs::File::create(sites.path())?)?;
    let data = SiteData::open(sites.path(), None, false).map_err(|error| with_causes(&error))?;
    let image = Target::image(data).map_err(|error| with_causes(&error))?;
    Ok(Ready { prepared, sites, image, guest })
}

fn boot(
    paths: &KernelPaths,
    prepared: &Prepared,
    sites: &tempfile::NamedTempFile,
    guest: &Path,
    wanted: &Wanted,
) -> Result<Outcome, VmError> {
    let mut vm = Vm::new(paths.record.arch, &paths.vmlinuz)
        .init(guest)
        .file(sites.path(), format!("/var/cache/siteseer/{}.sites", paths.record.build_id))
        .memory(MEMORY)
        // All CPUs of an emulated machine share a thread of this one. The tests try what crosses CPUs, on the reference
        // kernel.
        .cpus(1)
        .time_limit(TIME_LIMIT);
    vm = if wanted.truth.is_empty() { vm.arg("suite") } else { vm.arg("test").args(wanted.truth.iter().cloned()) };
    if std::env::var_os("SITESEER_CONSOLE").is_some() {
        vm = vm.console(std::io::stderr());
    }
    prepared.install(vm).run()
}

/// What a run that came to its end complains of.
fn complaint(outcome: &Outcome) -> Option<String> {
    const SHOWN: usize = 20;
    if outcome.success() {
        return None;
    }
    let splats: Vec<String> = outcome.splats.iter().map(|splat| format!("{splat:?}")).collect();
    let lines: Vec<&str> = outcome.console.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default();
    let ended = outcome.exit_status.map_or("it did not end".to_owned(), |status| format!("it ended with {status}"));
    Some(format!("{ended}\n{}\n{}", splats.join("\n"), tail.join("\n")))
}

/// The verdicts on functions of the kernel itself.
fn truth(lines: &[String], names: &[String], release: &str, image: &Target) -> BTreeMap<String, Verdict> {
    let mut seen: BTreeMap<String, case::Verdict> = BTreeMap::new();
    for verdict in lines.iter().filter_map(|line| serde_json::from_str::<case::Verdict>(line).ok()) {
        seen.insert(verdict.name.clone(), verdict);
    }
    let judge = |name: &String| match seen.get(name) {
        None => Verdict::new(Status::Fail, "the guest said nothing of it"),
        Some(verdict) => match &verdict.ending {
            Ending::Passed { .. } => Verdict::new(Status::Pass, verdict.detail.clone()),
            Ending::Failed => Verdict::new(Status::Fail, verdict.detail.clone()),
            Ending::NotExercised(lack) => match lack.holds(release, image) {
                Ok(()) => Verdict::new(Status::NotExercised, lack.to_string()),
                Err(why) => Verdict::new(Status::Fail, why),
            },
        },
    };
    names.iter().map(|name| (name.clone(), judge(name))).collect()
}

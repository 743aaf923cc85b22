// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Everything that a kernel's run takes, made on the host: modules, their site data, BPF objects, jobs.
//!
//! What goes wrong with one case is that case's verdict, and takes no other along.

use super::case_file::{CaseFile, Expect, Outcome, PROGRAMS, Value};
use super::conditions;
use super::evidence::Evidence;
use super::family::Family;
use super::job::{Attempt, FOLDER, JOB, Job, MODULE, OBJECT, Observation};
use super::judge::{self, Status, Verdict};
use super::snapshot::{self, Compared};
use crate::guest::known::{self, KNOWN, SUITE};
use siteseer::internals::source::BaseTypes;
use siteseer_bpf_progs::{LIBBPF_INCLUDE, compile};
use siteseer_encoder::{BaseKernel, KernelTypes, Options};
use siteseer_kernels::KernelPaths;
use siteseer_kernels::modules::{self, ModuleSource};
use siteseer_sites::file;
use siteseer_sites::with_causes;
use siteseer_vmtest::{Arch, Vm};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The cases of a run, ready to be put into a guest.
pub struct Prepared {
    /// What the kernel was made with.
    pub family: Family,
    /// The kernel's name in kernels/matrix.toml.
    kernel: String,
    /// The cases that are run.
    cases: Vec<CaseFile>,
    /// Those that are decided without.
    decided: BTreeMap<String, Verdict>,
    /// Files, and their paths in the guest.
    files: Vec<(PathBuf, String)>,
    /// Holds the files.
    _folder: tempfile::TempDir,
}

/// Why nothing of a kernel can be prepared.
pub type PrepareError = Box<dyn std::error::Error + Send + Sync>;

impl Prepared {
    /// Prepares cases for a kernel.
    ///
    /// # Errors
    /// If nothing can be built for the kernel at all.
    pub fn new(kernel: &KernelPaths, cases: &[CaseFile]) -> Result<Prepared, PrepareError> {
        let family = Family::of(kernel)?;
        let folder = tempfile::Builder::new().prefix("suite-").tempdir()?;
        let mut prepared = Prepared {
            family: family.clone(),
            kernel: kernel.name.clone(),
            cases: Vec::new(),
            decided: BTreeMap::new(),
            files: Vec::new(),
            _folder: folder,
        };
        let folder = prepared._folder.path().to_owned();
        let mut wanted = Vec::new();
        for case in cases {
            match conditions::applies(case, &family) {
                Ok(()) => wanted.push(case),
                Err(why) => prepared.decide(case, Status::NotExercised, why),
            }
        }
        if wanted.is_empty() {
            return Ok(prepared);
        }
        let sources = wanted.iter().map(|case| staged(case, &folder)).collect::<Result<Vec<_>, _>>()?;
        let built = modules::build(kernel, &sources)?;
        let base = BaseTypes::open(&kernel.vmlinux)?;
        let clang = compile::clang()?;
        for (case, module) in wanted.into_iter().zip(built) {
            let made = module
                .map_err(|failure| (Status::Fail, format!("the module does not build: {}", with_causes(&failure))))
                .and_then(|module| prepared.case(case, &module, &base, &clang, &folder));
            match made {
                Ok(()) => prepared.cases.push(case.clone()),
                Err((status, why)) => prepared.decide(case, status, why),
            }
        }
        Ok(prepared)
    }

    fn decide(&mut self, case: &CaseFile, status: Status, why: String) {
        self.decided.insert(case.name.clone(), Verdict::new(status, why));
    }

    /// Makes the files of one case.
    fn case(
        &mut self,
        case: &CaseFile,
        module: &Path,
        base: &BaseTypes,
        clang: &std::ffi::OsString,
        folder: &Path,
    ) -> Result<(), (Status, String)> {
        let fail = |what: &str| {
            let what = what.to_owned();
            move |error: &dyn std::fmt::Display| (Status::Fail, format!("{what}: {error}"))
        };
        let image = fs::read(module).map_err(|error| fail("the module")(&error))?;
        let evidence = Evidence::read(&image).map_err(|error| (Status::Fail, with_causes(&error)))?;
        conditions::exercised(case, &self.family, &evidence).map_err(|why| (Status::NotExercised, why))?;
        let types = KernelTypes::new(&base.btf).map_err(|error| fail("the kernel's types")(&error))?;
        let kernel = BaseKernel { types: &types, build_id: &base.build_id.0 };
        let options = Options { kernel: Some(kernel), code: true, ..Options::default() };
        let encoding = fail("the module's site data");
        let encoded = siteseer_encoder::encode_all(&image, &options).map_err(|error| encoding(&error))?;
        let mut bytes = Vec::new();
        file::write_with(&encoded.set, &encoded.optional(), &mut bytes).map_err(|error| encoding(&error))?;
        let id: String = encoded.set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        if id.is_empty() {
            return Err((Status::Fail, "the module has no build id".to_owned()));
        }
        let own = folder.join(&case.name);
        let (sites, object, job) = (own.join("module.sites"), own.join(OBJECT), own.join(JOB));
        let writing = fail("what the case takes cannot be written");
        fs::write(&sites, bytes).map_err(|error| writing(&error))?;
        let target = match self.family.arch {
            Arch::X86_64 => "x86",
            Arch::Arm64 => "arm64",
        };
        let headers = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (suite, siteseer) = (headers.join("cases"), headers.join("../loader/include"));
        let includes = [Path::new(LIBBPF_INCLUDE), &suite, &siteseer];
        compile::compile(clang, &case.folder.join(PROGRAMS), &object, target, &includes, &case.name)
            .map_err(|error| fail("the BPF programs")(&error))?;
        let expectations = judge::expectations(case, &self.family);
        let text = serde_json::to_vec(&describe(case, &expectations)).map_err(|error| writing(&error))?;
        fs::write(&job, text).map_err(|error| writing(&error))?;
        let place = format!("{FOLDER}/{}", case.name);
        self.files.extend([
            (module.to_owned(), format!("{place}/{MODULE}")),
            (object, format!("{place}/{OBJECT}")),
            (job, format!("{place}/{JOB}")),
            (sites, format!("/var/cache/siteseer/{id}.sites")),
        ]);
        Ok(())
    }

    /// Puts everything into a guest.
    pub fn install<'v>(&self, vm: Vm<'v>) -> Vm<'v> {
        self.files.iter().fold(vm, |vm, (path, place)| vm.file(path, place.clone()))
    }

    /// Whether there is anything to run in a guest.
    pub fn runs(&self) -> bool {
        !self.cases.is_empty()
    }

    /// The verdicts: of what was decided before, and of what the guest tells. `planted` cases get a wrong expectation;
    /// with `otherwise`, a case that the guest did not report fails with that.
    pub fn judge<'l>(
        &self,
        lines: impl IntoIterator<Item = &'l str>,
        planted: bool,
        otherwise: &str,
    ) -> BTreeMap<String, Verdict> {
        let mut seen: BTreeMap<String, Observation> = BTreeMap::new();
        for observation in lines.into_iter().filter_map(|line| serde_json::from_str::<Observation>(line).ok()) {
            seen.insert(observation.suite.clone(), observation);
        }
        let mut verdicts = self.decided.clone();
        for case in &self.cases {
            let verdict = match seen.get(&case.name) {
                Some(observation) => self.judge_one(case, observation, planted),
                None => Verdict::new(Status::Fail, format!("the guest said nothing of it: {otherwise}")),
            };
            verdicts.insert(case.name.clone(), verdict);
        }
        if planted {
            return verdicts;
        }
        let judged = |(name, verdict): (String, Verdict)| {
            let case = format!("{SUITE}{name}");
            let judged = known::judge(KNOWN, &self.kernel, &case, verdict.is_failure());
            let verdict = verdict.judged(judged);
            (name, verdict)
        };
        verdicts.into_iter().map(judged).collect()
    }

    fn judge_one(&self, case: &CaseFile, seen: &Observation, planted: bool) -> Verdict {
        let verdict = judge::judge(case, &self.family, seen, planted);
        if verdict.status == Status::Fail {
            return verdict;
        }
        let expectations = judge::expectations(case, &self.family);
        match snapshot::check(case, &self.family, &snapshot::text(&expectations, &seen.attempts)) {
            Ok(Compared::Same) => verdict,
            Ok(Compared::NotRecorded) => {
                let advice = "INSTA_UPDATE=always ci/matrix records them";
                let family = self.family.name();
                Verdict::new(verdict.status, format!("{}\nplans of {family} not recorded: {advice}", verdict.detail))
            }
            Err(why) => Verdict::new(Status::Fail, why),
        }
    }
}

/// A folder with a module's sources and nothing else.
fn staged(case: &CaseFile, folder: &Path) -> Result<ModuleSource, PrepareError> {
    let own = folder.join(&case.name).join("module");
    fs::create_dir_all(&own)?;
    let mut files = case.sources()?;
    for entry in fs::read_dir(&case.folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            files.push(path);
        }
    }
    files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/suite.h"));
    for file in files {
        let name = file.file_name().ok_or("a source without a name")?;
        fs::copy(&file, own.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(ModuleSource { name: case.module(), folder: own, flags: Vec::new() })
}

fn describe(case: &CaseFile, expectations: &[Expect]) -> Job {
    let mut symbols = BTreeSet::new();
    for expect in expectations {
        if let Outcome::Events(events) = &expect.outcome {
            symbols.extend(events.iter().flat_map(|event| &event.values).filter_map(|value| match value {
                Value::Address(symbol, _) => Some(symbol.clone()),
                Value::Number(_) | Value::Absent => None,
            }));
        }
    }
    let attempt = |expect: &Expect| Attempt {
        programs: expect.programs.clone(),
        complete: expect.options.complete,
        function: expect.options.function.clone(),
        file: expect.options.file.clone(),
        all_prototypes: expect.options.all_prototypes,
        accept_doubt: expect.options.accept_doubt,
        cookie: expect.options.cookie,
    };
    Job {
        case: case.name.clone(),
        module: case.module(),
        run: case.run,
        any_process: case.any_process,
        symbols: symbols.into_iter().collect(),
        attempts: expectations.iter().map(attempt).collect(),
    }
}

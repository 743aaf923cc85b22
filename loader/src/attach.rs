// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Carrying out a plan: the only system calls that change the kernel.
//!
//! The maps that trampolines refer to are made, the trampolines loaded, the sites armed, mechanism by mechanism. Every
//! call may fail. What the kernel refuses at one site is that site's outcome; what it refuses altogether (privileges,
//! memory, a program that does not verify) ends the attempt. Whatever has been armed by then is owned by a link that is
//! being dropped, so that an error leaves nothing behind. When all sites have been tried the policy is applied once
//! more, now with the kernel's refusals.

mod kprobe;
mod limits;
mod load;
mod multi;
mod tracefs;

pub use tracefs::clean;
pub(crate) use tracefs::{Definition, remove_all};

use crate::arch::Arch;
use crate::error::Error;
use crate::function::Candidate;
use crate::kernel::Kernel;
use crate::link::Link;
use crate::mechanism::Mechanism;
use crate::object::{Loaded, Program};
use crate::plan::{self, Decision, Plan, PlanError, PlanOptions, PlannedSite, PlannedTrampoline, Policy};
use crate::program::{self, FuncInfo, LineInfo, UserProgram, Uses};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::section::{SectionError, Wanted};
use crate::target::Target;
use crate::trampoline::{self, SiteRecord};
use libbpf_sys as sys;
use siteseer_sites::btf::{Btf, Kind};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Why a plan could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The process may not.
    #[error("attaching takes CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN): run as root")]
    Privileges,
    /// The program's section names no function, and none was given.
    #[error("program {program}: SEC(\"kprobe_maybe_inline\") names no function, and none was given to attach to")]
    NoFunction {
        /// Name of the program.
        program: String,
    },
    /// More files would be needed than may be open.
    #[error("{needed} files would have to be open, the limit is {limit} and cannot be raised: {error}")]
    Files {
        /// How many.
        needed: u64,
        /// The limit.
        limit: u64,
        /// What the system said when it was to be raised.
        error: io::Error,
    },
    /// Arguments are read by helpers that the program's licence does not allow.
    #[error(
        "program {program} does not declare a GPL-compatible licence, and its arguments at {site} take helpers that \
         only such programs may call (bpf_probe_read_kernel, bpf_rdonly_cast)"
    )]
    Licence {
        /// Name of the program.
        program: String,
        /// One of the sites.
        site: String,
    },
    /// A trampoline could not be generated, though the plan said it could.
    #[error("the trampoline for {site}: {refusal}")]
    Trampoline {
        /// One of its sites.
        site: String,
        /// Why.
        refusal: Refusal,
    },
    /// The kernel does not take the BTF of a trampoline.
    #[error("the kernel refuses the BTF of the trampoline for {site}: {error}{}", tail(log))]
    Btf {
        /// One of its sites.
        site: String,
        /// The error.
        error: io::Error,
        /// The kernel's log.
        log: String,
    },
    /// The verifier rejects a trampoline.
    #[error("the kernel rejects program {program} in the trampoline for {site}: {error}{}", tail(log))]
    Verifier {
        /// Name of the program.
        program: String,
        /// One of the trampoline's sites.
        site: String,
        /// The error.
        error: io::Error,
        /// The whole log.
        log: String,
    },
    /// A map could not be made or filled.
    #[error("the map of {what}: {error}")]
    Map {
        /// What it holds.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// A site could not be armed for a reason that is not the site's.
    #[error("{mechanism} at {site}: {error}")]
    Arm {
        /// The mechanism.
        mechanism: Mechanism,
        /// The site.
        site: String,
        /// The error.
        error: io::Error,
    },
}

/// The end of a log: what matters comes last.
fn tail(log: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = log.trim_end().lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = lines.len().saturating_sub(LINES);
    let cut = if from > 0 { "  [...]\n" } else { "" };
    format!("\n{cut}  {}", lines[from..].join("\n  "))
}

/// How to attach: to which functions, under which policy, with which cookie.
#[derive(Debug, Clone)]
pub struct Attach<'t> {
    target: &'t Target,
    options: PlanOptions,
    functions: Vec<String>,
    bulk: bool,
}

impl<'t> Attach<'t> {
    /// To the function that the program's section names, under [`Policy::BestEffort`].
    pub fn new(target: &'t Target) -> Attach<'t> {
        Attach { target, options: PlanOptions::default(), functions: Vec::new(), bulk: true }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Attach<'t> {
        self.options.policy = policy;
        self
    }

    /// Sets what `bpf_get_attach_cookie()` answers.
    #[must_use]
    pub fn cookie(mut self, cookie: u64) -> Attach<'t> {
        self.options.cookie = cookie;
        self
    }

    /// Attaches to this function, `[module:]name`, in place of the one that the section names. May be called again for more.
    #[must_use]
    pub fn function(mut self, name: impl Into<String>) -> Attach<'t> {
        self.functions.push(name.into());
        self
    }

    /// Takes all functions of the name even if their prototypes differ. The program has to tell them apart, by
    /// `siteseer_site()` and [`crate::report::SiteReport::prototype`].
    #[must_use]
    pub fn all_prototypes(mut self, all: bool) -> Attach<'t> {
        self.options.all_prototypes = all;
        self
    }

    /// Whether many kprobes may be armed together, through an event in tracefs (the default), or each on its own. Together is
    /// many times faster; a process that is killed then leaves the event's definition, unarmed, until the next one
    /// attaches or [`clean`] is called.
    #[must_use]
    pub fn bulk(mut self, bulk: bool) -> Attach<'t> {
        self.bulk = bulk;
        self
    }

    /// Plans the attachment of a loaded program. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Object`] if the program did not come through [`crate::register`] or is not loaded, [`Error::Target`] if
    /// there is no such function, [`Error::Plan`] if the program cannot be attached to it.
    pub fn plan<'p>(&self, program: impl Into<Program<'p>>) -> Result<Plan, Error> {
        self.prepare(program.into()).map(|prepared| prepared.plan)
    }

    /// Attaches a loaded program. The object it belongs to must stay loaded as long as its maps are wanted; the link
    /// itself does not need it.
    ///
    /// # Errors
    /// As [`Attach::plan`], and [`Error::Attach`] if the plan cannot be carried out. Then nothing is attached.
    pub fn attach<'p>(&self, program: impl Into<Program<'p>>) -> Result<Link, Error> {
        let program = program.into();
        let privileges = self.target.kernel().privileges;
        if !(privileges.bpf && privileges.perfmon) {
            return Err(AttachError::Privileges.into());
        }
        let prepared = self.prepare(program)?;
        let mut link = carry_out(prepared, self.target, self.bulk)?;
        link.report.notes = self.notes();
        Ok(link)
    }

    fn prepare<'p>(&self, program: Program<'p>) -> Result<Prepared, Error> {
        let loaded = program.read()?;
        let (gpl, user) = (loaded.gpl, user_program(loaded, self.target.kernel()));
        let uses =
            program::analyse(&user).map_err(|refusal| PlanError::Program { program: user.name.clone(), refusal })?;
        let wanted = if self.functions.is_empty() {
            let wanted = program.wanted()?;
            if wanted.function.is_none() {
                return Err(AttachError::NoFunction { program: user.name }.into());
            }
            vec![wanted]
        } else {
            self.functions.iter().map(|name| Wanted::parse(name)).collect::<Result<Vec<_>, SectionError>>()?
        };
        let functions = self.target.functions(&wanted)?;
        let plan = plan::plan(&functions, &user, &uses, self.target.kernel(), self.options)?;
        Ok(Prepared { plan, user, uses, gpl })
    }

    /// What a report should say besides the sites' outcomes.
    fn notes(&self) -> Vec<String> {
        let symbols = self.target.symbols();
        let mut notes = symbols.unavailable().to_vec();
        let modules = symbols.modules().len();
        if modules > 0 {
            notes.push(format!(
                "inlined copies in the {modules} loaded modules are not covered: modules are not supported yet"
            ));
        }
        notes
    }
}

/// What libbpf keeps of a program, as the analysis takes it.
fn user_program(loaded: Loaded<'_>, kernel: &Kernel) -> UserProgram {
    let insns: Vec<_> = loaded.insns.iter().map(load::insn).collect();
    let kernel_btf = kernel.btf.as_deref().and_then(|data| Btf::parse(data).ok());
    let parameters = |id: i32| {
        let btf = kernel_btf.as_ref()?;
        let func = btf.ty(u32::try_from(id).ok()?).filter(|ty| ty.kind() == Kind::Func)?;
        u8::try_from(btf.ty(func.target()?)?.params().len()).ok()
    };
    let kfuncs = insns.iter().filter(|insn| insn.is_kfunc_call() && insn.off == 0);
    let kfunc_arguments: BTreeMap<i32, u8> =
        kfuncs.filter_map(|insn| Some((insn.imm, parameters(insn.imm)?))).collect();
    UserProgram {
        name: loaded.name,
        func_info: loaded
            .func_info
            .iter()
            .map(|info| FuncInfo { insn_off: info.insn_off, type_id: info.type_id })
            .collect(),
        line_info: loaded
            .line_info
            .iter()
            .map(|info| LineInfo {
                insn_off: info.insn_off,
                file_name_off: info.file_name_off,
                line_off: info.line_off,
                line_col: info.line_col,
            })
            .collect(),
        btf: loaded.btf,
        exit: false,
        kfunc_arguments,
        insns,
    }
}

/// A plan, and the program that it is for.
struct Prepared {
    plan: Plan,
    user: UserProgram,
    uses: Uses,
    gpl: bool,
}

/// `caller+0x12`.
fn place(site: &Candidate) -> String {
    format!("{}+{:#x}", site.symbol, site.offset())
}

fn carry_out(prepared: Prepared, target: &Target, bulk: bool) -> Result<Link, Error> {
    let kernel = target.kernel();
    let Prepared { mut plan, user, uses, gpl } = prepared;
    let attached =
        |plan: &Plan| plan.sites.iter().filter(|site| matches!(site.decision, Decision::Attach { .. })).count();
    limits::raise_files(attached(&plan) as u64 + plan.trampolines.len() as u64)?;

    let site_map = uses.site.then(|| site_map(&plan, kernel)).transpose()?;
    let fault_map = load::map(sys::BPF_MAP_TYPE_PERCPU_ARRAY, c"siteseer_faults", 4, 8, 1)
        .map_err(|error| AttachError::Map { what: "faults", error })?;
    let mut link = Link {
        armed: Vec::new(),
        definitions: Vec::new(),
        programs: Vec::new(),
        site_map,
        fault_map,
        report: plan.report(),
    };

    let mut loader = Loader { user: &user, uses: &uses, gpl, kernel, cookie: plan.cookie, btf: None };
    // All programs first: loading takes long, and calls of the functions that are traced.
    for planned in &plan.trampolines {
        let program = loader.load(planned, &plan, &link)?;
        link.programs.push(program);
    }
    let mut refused: Vec<(usize, io::Error, Mechanism)> = Vec::new();
    for (nth, planned) in plan.trampolines.iter().enumerate() {
        let sites: Vec<&PlannedSite> = planned.sites.iter().filter_map(|&index| plan.sites.get(index)).collect();
        let errors = arm(nth, planned, &sites, target, bulk, &mut link);
        for (nth, error) in errors {
            let Some(&index) = planned.sites.get(nth) else { continue };
            if !is_refusal(&error) {
                let site = plan.sites.get(index).map(|site| place(&site.site)).unwrap_or_default();
                return Err(AttachError::Arm { mechanism: planned.mechanism, site, error }.into());
            }
            refused.push((index, error, planned.mechanism));
        }
    }
    if !refused.is_empty() {
        for (index, error, mechanism) in refused {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            if let Some(site) = plan.sites.get_mut(index) {
                site.decision = Decision::Skip(Reason::Kernel { errno, mechanism: mechanism.word() });
            }
        }
        for (index, function) in plan.functions.iter().enumerate() {
            let sites: Vec<_> = plan.sites.iter().filter(|site| site.function == index).cloned().collect();
            plan::apply(plan.policy, &function.name, &sites)?;
        }
        link.report = plan.report();
    }
    Ok(link)
}

/// From how many kprobes of one program on they are armed together.
const MANY: usize = 5;

/// Arms the sites of one trampoline. Gives the sites that could not be, by place in the list, and the errors.
fn arm(
    nth: usize,
    planned: &PlannedTrampoline,
    sites: &[&PlannedSite],
    target: &Target,
    bulk: bool,
    link: &mut Link,
) -> Vec<(usize, io::Error)> {
    let addresses: Vec<u64> = sites.iter().map(|site| site.site.address).collect();
    let Link { programs, armed, definitions, report, .. } = link;
    let Some(program) = programs.get(nth) else { return Vec::new() };
    match planned.mechanism {
        Mechanism::KprobeMulti => {
            let (links, errors) = multi::attach(program.as_fd(), &addresses);
            armed.extend(links);
            errors
        }
        Mechanism::Kprobe => {
            let mut left: Vec<usize> = (0..sites.len()).collect();
            if bulk && sites.len() >= MANY {
                let places: Vec<tracefs::Place<'_>> = sites
                    .iter()
                    .map(|site| tracefs::Place {
                        symbol: &site.site.symbol,
                        offset: site.site.offset(),
                        address: site.site.address,
                    })
                    .collect();
                let name = sites.first().and_then(|site| report.functions.get(site.function));
                let name = name.map_or_else(String::new, |function| function.name.clone());
                let outcome = tracefs::attach(program.as_fd(), &name, &places, target.symbols());
                armed.extend(outcome.links);
                definitions.extend(outcome.definitions);
                left = outcome.left;
            }
            let rest: Vec<u64> = left.iter().filter_map(|&index| addresses.get(index).copied()).collect();
            let pmu = target.kernel().kprobe_pmu.unwrap_or(0);
            let (links, errors) = kprobe::attach_each(program.as_fd(), pmu, &rest);
            armed.extend(links);
            errors.into_iter().filter_map(|(nth, error)| Some((*left.get(nth)?, error))).collect()
        }
    }
}

/// Whether an error is the kernel's answer about this one site, not about the process or the machine.
fn is_refusal(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(
            libc::EPERM
                | libc::EACCES
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::E2BIG
                | libc::EINTR
                | libc::ENOSYS
        ) | None
    )
}

/// Makes the map by which a program finds out which site it is at. Two copies of a function may begin at one address, one call
/// after the other without an instruction between; the program then runs for each, and is told the later one both times.
fn site_map(plan: &Plan, kernel: &Kernel) -> Result<OwnedFd, AttachError> {
    let failed = |error| AttachError::Map { what: "sites", error };
    let mut records: BTreeMap<u64, SiteRecord> = BTreeMap::new();
    for (id, planned) in (0u32..).zip(&plan.sites) {
        if !matches!(planned.decision, Decision::Attach { .. }) {
            continue;
        }
        let site = &planned.site;
        let record = SiteRecord {
            id,
            kind: site.kind as u32,
            address: site.address,
            symbol: site.symbol_address,
            offset: u32::try_from(site.offset()).unwrap_or(u32::MAX),
            reserved: 0,
        };
        records.insert(site.address, record);
        if site.is_entry() {
            records.extend(Arch::of(kernel.machine).entry_addresses(site.address).map(|address| (address, record)));
        }
    }
    let entries = u32::try_from(records.len().max(1)).unwrap_or(u32::MAX);
    let map = load::map(sys::BPF_MAP_TYPE_HASH, c"siteseer_sites", 8, size_of::<SiteRecord>() as u32, entries)
        .map_err(failed)?;
    for (address, record) in records {
        load::update(map.as_fd(), &address.to_ne_bytes(), &record.to_bytes()).map_err(failed)?;
    }
    Ok(map)
}

/// Loads trampolines of one program.
struct Loader<'a> {
    user: &'a UserProgram,
    uses: &'a Uses,
    gpl: bool,
    kernel: &'a Kernel,
    cookie: u64,
    /// The BTF that was loaded last: mostly that of the next one, too.
    btf: Option<(Vec<u8>, OwnedFd)>,
}

impl Loader<'_> {
    fn load(&mut self, planned: &PlannedTrampoline, plan: &Plan, link: &Link) -> Result<OwnedFd, AttachError> {
        let first = planned.sites.first().and_then(|&index| plan.sites.get(index));
        let site = || first.map(|site| place(&site.site)).unwrap_or_default();
        let maps = (link.site_map.as_ref().map(AsRawFd::as_raw_fd), Some(link.fault_map.as_raw_fd()));
        let spec = planned.spec(self.kernel, self.cookie, maps.0, maps.1);
        let image = trampoline::generate(self.user, self.uses, &spec)
            .map_err(|refusal| AttachError::Trampoline { site: site(), refusal })?;
        if image.gpl_only && !self.gpl {
            return Err(AttachError::Licence { program: self.user.name.clone(), site: site() });
        }
        if let Some(data) = &image.btf
            && self.btf.as_ref().is_none_or(|(loaded, _)| loaded != data)
        {
            let fd = load::btf(data).map_err(|refused| AttachError::Btf {
                site: site(),
                error: refused.error,
                log: refused.log,
            })?;
            self.btf = Some((data.clone(), fd));
        }
        let request = load::Request {
            name: &self.user.name,
            gpl: self.gpl,
            attach_type: match planned.mechanism {
                Mechanism::KprobeMulti => sys::BPF_TRACE_KPROBE_MULTI,
                Mechanism::Kprobe => 0,
            },
            insns: &image.insns,
            func_info: &image.func_info,
            line_info: &image.line_info,
            btf: image.btf.as_ref().and(self.btf.as_ref()).map(|(_, fd)| fd.as_fd()),
        };
        request.load().map_err(|refused| AttachError::Verifier {
            program: self.user.name.clone(),
            site: site(),
            error: refused.error,
            log: refused.log,
        })
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A module that comes and goes (`tests/modules/siteseer_life`): functions of it are traced, while the target is older
//! than its loading, while it is unloaded, and when it is loaded again.

use crate::guest::case::{Capability, Case, Failure, Shown, case, need};
use crate::guest::removal;
use crate::guest::typed::{expect, program_of, record, site_of};
use libbpf_rs::{AsRawLibbpf, Object, ObjectBuilder};
use siteseer::{Attach, AttachError, AttachOptions, Link, Mechanism, Outcome, Policy, Target};
use siteseer_bpf_progs::LIFE;
use siteseer_sites::SiteKind::{Body, Inline};
use siteseer_sites::with_causes;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Name of the module.
pub const NAME: &str = "siteseer_life";
/// Where the harness puts it in the guest.
pub const FILE: &str = "/modules/siteseer_life.ko";

/// The cases.
pub fn cases() -> Vec<Case> {
    let case = |name, run| case("modules", name, run);
    vec![
        case("calls_in_a_module", calls_in_a_module),
        Case {
            name: "modules::its_own_types_at_an_inline_copy".to_owned(),
            run: Box::new(its_own_types_at_an_inline_copy),
        },
        case("unloaded_while_attached", unloaded_while_attached),
        case("unloaded_while_attached_in_c", unloaded_while_attached_in_c),
        case("what_is_added_is_bounded", what_is_added_is_bounded),
        case("a_body_keeps_its_module", a_body_keeps_its_module),
        case("not_loaded_and_without_site_data", not_loaded_and_without_site_data),
    ]
}

/// The module, loaded until it is dropped.
pub(crate) struct Loaded;

impl Loaded {
    pub(crate) fn load() -> Result<Loaded, Failure> {
        Loaded::from(FILE)
    }

    /// Loads it from another file.
    pub(crate) fn from(path: &str) -> Result<Loaded, Failure> {
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        // SAFETY: an open file, and no parameters.
        let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        if result == 0 { Ok(Loaded) } else { Err(format!("{path}: {}", io::Error::last_os_error()).into()) }
    }

    /// Has it make its calls.
    pub(crate) fn run(&self, number: u64) -> io::Result<()> {
        fs::write(format!("/sys/module/{NAME}/parameters/run"), number.to_string())
    }
}

fn unload() -> io::Result<()> {
    let name = CString::new(NAME)?;
    // SAFETY: a name that ends.
    match unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unloads it as soon as nothing refers to it: the kernel frees a program some time after its last descriptor is
/// closed.
pub(crate) fn unload_when_free() -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begin = Instant::now();
    loop {
        match unload() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < PATIENCE => {
                thread::yield_now();
            }
            other => return other,
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = removal::wait();
        let _ = unload_when_free();
    }
}

pub(crate) fn load_programs() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(LIFE)?.load()?)
}

/// The kind of site, and the values, of a call.
pub(crate) type Seen = (u32, Vec<Option<u64>>);

/// The calls that a program sees.
pub(crate) fn seen(object: &Object, link: &Link, module: &Loaded, number: u64) -> Result<Vec<Seen>, Failure> {
    let hits = record(object, || module.run(number))?;
    let one = |hit: &siteseer_bpf_progs::truth::Record| -> Result<_, Failure> {
        let site = site_of(link, hit)?;
        expect("the module", &site.module.as_deref(), &Some(NAME))?;
        expect("the address", &hit.address, &site.address)?;
        Ok((site.kind as u32, (0..3).map(|nth| hit.value(nth)).collect()))
    };
    hits.iter().map(one).collect()
}

/// What [`Loaded::run`] has the inlined copies called with.
pub(crate) fn copies(number: u64) -> Vec<(u32, Vec<Option<u64>>)> {
    vec![(Inline as u32, vec![Some(number), Some(7), None]), (Inline as u32, vec![Some(number + 1), Some(8), None])]
}

// Proves S1.7.
fn calls_in_a_module(target: &Target) -> Result<String, Failure> {
    let module = Loaded::load()?;
    let object = load_programs()?;
    // The target was made before the module was loaded.
    expect("the target's modules", &target.modules().names().any(|name| **name == *NAME), &false)?;
    let link = Attach::new(target).attach(&program_of(&object, "copied")?)?;
    expect("calls of the copies", &seen(&object, &link, &module, 4711)?, &copies(4711))?;
    drop(link);
    expect("calls after detaching", &record(&object, || module.run(1))?.len(), &0)?;

    need(target, Capability::Fentry)?;
    let link = Attach::new(target).attach(&program_of(&object, "entered")?)?;
    let by_fentry =
        |site: &siteseer::SiteReport| matches!(site.outcome, Outcome::Attached { mechanism: Mechanism::Fentry, .. });
    expect("by fentry", &link.report().sites().all(by_fentry), &true)?;
    let wanted = vec![(Body as u32, vec![Some(101), Some(202), Some(4712)])];
    expect("calls of the body", &seen(&object, &link, &module, 4712)?, &wanted)?;
    drop(link);
    let link = Attach::new(target).attach(&program_of(&object, "returned")?)?;
    let wanted = vec![(Body as u32, vec![Some(4713), Some(101 + 4713), None])];
    expect("returns of the body", &seen(&object, &link, &module, 4713)?, &wanted)?;
    Ok("two inlined copies, a body by fentry with its types, and its return".to_owned())
}

fn its_own_types_at_an_inline_copy(target: &Target) -> Result<Shown, Failure> {
    let module = Loaded::load()?;
    let object = load_programs()?;
    let refused = match Attach::new(target).attach(&program_of(&object, "followed")?) {
        Ok(link) => return Err(format!("attached:\n{}", link.report().long()).into()),
        Err(error) => with_causes(&error),
    };
    // A compiler that says nothing of the pointer itself (clang for arm64, ThinLTO) is in the way before its type is.
    let lost = "this copy's debug information does not mention it";
    let is_lost = refused.contains(lost);
    let why = if is_lost { lost } else { "its type is a module's own" };
    for words in ["life_followed", "[siteseer_life]", why] {
        if !refused.contains(words) {
            return Err(format!("the refusal does not say {words:?}: {refused}").into());
        }
    }
    drop(module);
    let text = refused.lines().next().unwrap_or_default().to_owned();
    Ok(Shown { text, differences: if is_lost { vec![refused] } else { Vec::new() } })
}

// Proves S13.19, S13.20.
fn unloaded_while_attached(target: &Target) -> Result<String, Failure> {
    let module = Loaded::load()?;
    let object = load_programs()?;
    let attach = Attach::with(target, AttachOptions::default().policy(Policy::BestEffort));
    let program = program_of(&object, "copied")?;
    let mut link = attach.attach(&program)?;
    expect("gone at first", &link.gone()?, &Vec::new())?;
    expect("calls", &seen(&object, &link, &module, 1)?, &copies(1))?;
    // Kprobes do not keep a module.
    std::mem::forget(module);
    unload_when_free()?;
    let gone = link.gone()?;
    let attached: Vec<u32> = link.report().attached().map(|site| site.id).collect();
    expect("sites that are gone", &gone.iter().map(|gone| gone.sites.clone()).collect::<Vec<_>>(), &vec![attached])?;
    expect("loaded again", &gone[0].loaded_again, &false)?;
    // Most likely at the same address.
    let module = Loaded::load()?;
    let gone = link.gone()?;
    expect("loaded again", &gone.iter().map(|gone| gone.loaded_again).collect::<Vec<_>>(), &vec![true])?;
    expect("calls that a link on what is gone sees", &record(&object, || module.run(2))?.len(), &0)?;
    expect("modules not looked at", &link.unseen_modules()?, &vec![NAME.to_owned()])?;
    expect("sites added", &attach.refresh(&program, &mut link)?, &2)?;
    expect("modules not looked at", &link.unseen_modules()?.len(), &0)?;
    expect("loaded again, and attached", &link.gone()?.iter().any(|gone| gone.loaded_again), &false)?;
    expect("calls", &seen(&object, &link, &module, 3)?, &copies(3))?;
    expect("sites added twice", &attach.refresh(&program, &mut link)?, &0)?;
    let text = gone[0].to_string();
    drop(link);
    expect("calls after detaching", &record(&object, || module.run(4))?.len(), &0)?;
    Ok(text)
}

unsafe extern "C" {
    /// tests/c/changes.c
    fn siteseer_test_changes(
        program: *const libbpf_sys::bpf_program,
        module: *const c_char,
        set_loaded: extern "C" fn(bool) -> c_int,
        said: *mut c_char,
        room: usize,
    ) -> c_int;
}

/// Loads or unloads the module, for the C program.
extern "C" fn set_loaded(loaded: bool) -> c_int {
    let done = match loaded {
        true => Loaded::load().map(std::mem::forget),
        false => unload_when_free().map_err(Failure::from),
    };
    c_int::from(done.is_err())
}

/// The same by the C interface.
fn unloaded_while_attached_in_c(_: &Target) -> Result<String, Failure> {
    let module = Loaded::load()?;
    let object = load_programs()?;
    let program = program_of(&object, "copied")?;
    let (name, mut said) = (CString::new(NAME)?, vec![0u8; 1 << 12]);
    // SAFETY: the program's object lives, and the buffer is as long as is said.
    let failed = unsafe {
        let program = program.as_libbpf_object().as_ptr();
        siteseer_test_changes(program, name.as_ptr(), set_loaded, said.as_mut_ptr().cast(), said.len())
    };
    drop(module);
    let text = CStr::from_bytes_until_nul(&said)?.to_string_lossy().into_owned();
    if failed == 0 { Ok(text) } else { Err(format!("line {failed}: {text}").into()) }
}

/// What holds when a link is made holds for what a module brings later: the bound on sites, switches that are off.
fn what_is_added_is_bounded(target: &Target) -> Result<String, Failure> {
    const SWITCH: &str = "/sys/kernel/debug/kprobes/enabled";
    let module = Loaded::load()?;
    let object = load_programs()?;
    let options = AttachOptions::default().policy(Policy::BestEffort);
    let program = program_of(&object, "copied")?;
    let mut link = Attach::with(target, options.clone()).attach(&program)?;
    let sites = link.report().sites().count();
    // A link on what is in no module.
    let counting = crate::guest::typed::load(0)?;
    let count = program_of(&counting, "count")?;
    let elsewhere = Attach::with(target, AttachOptions::default().function("ns_capable").policy(Policy::BestEffort));
    std::mem::forget(module);
    unload_when_free()?;

    fs::write(SWITCH, "0")?;
    let mut other = elsewhere.attach(&count)?;
    let module = Loaded::load()?;
    let added = elsewhere.refresh(&count, &mut other);
    let complete = Attach::with(target, options.clone().policy(Policy::Complete)).refresh(&program, &mut link);
    fs::write(SWITCH, "1")?;
    expect("sites added elsewhere", &added?, &0)?;
    let notes = other.report().notes.join("; ");
    if !notes.contains("kprobes are switched off") {
        return Err(format!("what was said when it was attached is gone from the report: {notes}").into());
    }
    let refusal = match complete {
        Err(error @ AttachError::SwitchedOff(_)) => with_causes(&error),
        other => return Err(format!("complete, with kprobes off: {other:?}").into()),
    };
    match Attach::with(target, options.clone().max_sites(1)).refresh(&program, &mut link) {
        Err(AttachError::TooManySites { sites: 2, limit: 1 }) => {}
        other => return Err(format!("one site is allowed: {other:?}").into()),
    }
    expect("sites of the link", &link.report().sites().count(), &sites)?;
    // Sites that are gone do not count.
    let allowed = Attach::with(target, options.max_sites(2));
    expect("sites added", &allowed.refresh(&program, &mut link)?, &2)?;
    expect("calls", &seen(&object, &link, &module, 6)?, &copies(6))?;
    drop((link, other));
    Ok(refusal)
}

// Proves S13.18, S13.21.
fn a_body_keeps_its_module(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let module = Loaded::load()?;
    let object = load_programs()?;
    let link = Attach::new(target).attach(&program_of(&object, "entered")?)?;
    let refused = match unload() {
        Ok(()) => return Err("the module was unloaded".into()),
        Err(error) => error,
    };
    expect("gone", &link.gone()?, &Vec::new())?;
    expect("calls", &seen(&object, &link, &module, 5)?.len(), &1)?;
    drop(link);
    std::mem::forget(module);
    removal::wait()?;
    unload_when_free()?;
    Ok(refused.to_string())
}

/// A folder whose site files are out of sight until it is dropped.
pub(crate) struct Hidden(Vec<(PathBuf, PathBuf)>);

impl Hidden {
    /// The site file with that build id.
    pub(crate) fn new(id: &str) -> io::Result<Hidden> {
        let path = Path::new("/var/cache/siteseer").join(format!("{id}.sites"));
        let away = path.with_extension("away");
        fs::rename(&path, &away)?;
        Ok(Hidden(vec![(path, away)]))
    }

    /// That of the module, while it is loaded.
    pub(crate) fn of_module() -> Result<Hidden, Failure> {
        let notes = fs::read(Path::new("/sys/module").join(NAME).join("notes/.note.gnu.build-id"))?;
        Ok(Hidden::new(
            &siteseer::internals::kernel::build_id(&notes).ok_or("the module has no build id")?.to_string(),
        )?)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        for (path, away) in &self.0 {
            let _ = fs::rename(away, path);
        }
    }
}

fn not_loaded_and_without_site_data(target: &Target) -> Result<String, Failure> {
    let refused = |name: &str| -> Result<_, siteseer::Error> {
        let fresh = target.reread()?;
        Ok(fresh.as_ref().unwrap_or(target).functions(&[siteseer::internals::section::Wanted::parse(name)?])?)
    };
    let says = |result: Result<_, siteseer::Error>, words: &[&str]| -> Result<String, Failure> {
        let text = match result {
            Ok::<Vec<siteseer::internals::function::Function>, _>(_) => return Err("it was found".into()),
            Err(error) => with_causes(&error),
        };
        match words.iter().find(|words| !text.contains(**words)) {
            Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
            None => Ok(text),
        }
    };
    says(refused("siteseer_life:life_body"), &["module siteseer_life is not loaded"])?;
    let module = Loaded::load()?;
    says(refused("siteseer_life:life_bodi"), &["no function life_bodi in module siteseer_life", "life_body"])?;
    says(refused("vmlinux:life_body"), &["there is no function life_body"])?;
    let hidden = Hidden::of_module()?;
    let text = says(refused("siteseer_life:life_body"), &["no site data for module siteseer_life", "siteseer encode"])?;
    // Without the module's name it is an unknown symbol.
    let fresh = target.reread()?.ok_or("a module was loaded, and the target is not old")?;
    let function = fresh.function("life_body")?;
    let obstacles: Vec<String> =
        function.candidates.iter().filter_map(|site| Some(site.obstacle.as_ref()?.to_string())).collect();
    expect("obstacles", &obstacles, &vec!["in module siteseer_life, which has no site data".to_owned()])?;
    let missing: Vec<&str> = fresh.modules().without_data().map(|(name, _)| name).collect();
    expect("modules without site data", &missing.contains(&NAME), &true)?;
    drop(hidden);
    drop(module);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kernel's own site data: `/sys/kernel/btf/vmlinux.inline` and `MODULE.inline`, from the kernel to attached sites.
//!
//! No kernel that a distribution ships has these files yet. Two kinds of kernels have them here ([`Provider`]). On
//! most, a module (`tests/modules/siteseer_inline`) serves them as upstream's kernel will, and checks the data first,
//! by upstream's rules. A kernel that we patched and built (`inline-7.3-x86_64`) carries the data in its own sections
//! `.BTF.inline`, and serves it itself, after the same checks; so does a module for it. In both, the data is the
//! section `.BTF.inline` of a site file alone, without our companion section. The loader prefers a site file, so the
//! cases hide it. What the site file says about the same sites is what the kernel's data is compared with.

use crate::guest::case::{Capability, Case, Failure, Shown, case, need};
use crate::guest::modules::{self, Hidden, Loaded, copies, load_programs, seen};
use crate::guest::truth;
use crate::guest::typed::{expect, program_of, record};
use siteseer::internals::function::{Candidate, Function};
use siteseer::internals::section::Wanted;
use siteseer::internals::source::Origin;
use siteseer::sites::Location;
use siteseer::sites::btf::loc::to_upstream;
use siteseer::sites::btf::{Btf, Kind, LocsecEntry, SplitBtf, Type, loc_flags, rules};
use siteseer::{Attach, AttachOptions, Policy, SourceOptions, Target};
use siteseer_sites::with_causes;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Name of the module that serves the data.
pub const NAME: &str = "siteseer_inline";
/// Where the harness puts it in the guest.
pub const FILE: &str = "/modules/siteseer_inline.ko";
/// Where the harness puts the data of the image.
pub const OF_IMAGE: &str = "/siteseer/vmlinux.inline";
/// Where the harness puts the data of the module that is traced.
pub const OF_MODULE: &str = "/siteseer/siteseer_life.inline";

/// Where the harness puts the module that is traced with its data in it, if the kernel has data of its own.
pub const WITH_DATA: &str = "/modules/siteseer_life_inline.ko";

/// What the kernel's own data are called.
const SERVED: &str = "/sys/kernel/btf/vmlinux.inline";

/// Bytes of a type, without what follows by its kind.
const TYPE_BYTES: usize = 12;

/// Bytes of a page, on the guests.
const PAGE: usize = 4096;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name, run| case("own_data", name, run);
    vec![
        Case { name: "own_data::known_calls".to_owned(), run: Box::new(known_calls) },
        case("says_what_the_site_file_says", says_what_the_site_file_says),
        case("of_a_module", of_a_module),
        case("files_are_read_and_mapped_as_upstreams", files_are_read_and_mapped_as_upstreams),
        case("what_is_lost_is_said", what_is_lost_is_said),
        case("why_there_is_none", why_there_is_none),
        case("what_breaks_a_rule_is_refused", what_breaks_a_rule_is_refused),
    ]
}

/// The module that serves, loaded until it is dropped.
struct Server;

impl Server {
    fn load() -> Result<Server, Failure> {
        let file = File::open(FILE)?;
        // SAFETY: an open file, and no parameters.
        let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        if result == 0 { Ok(Server) } else { Err(format!("{FILE}: {}", io::Error::last_os_error()).into()) }
    }

    fn tell(parameter: &str, words: &str) -> io::Result<()> {
        fs::write(format!("/sys/module/{NAME}/parameters/{parameter}"), words)
    }

    /// Has it serve a file as the data of the image (`vmlinux`) or of a module.
    fn serve(&self, of: &str, path: &str) -> io::Result<()> {
        Server::tell("serve", &format!("{of} {path}"))
    }

    /// Has it be a kernel that cannot load the data.
    fn fail(&self, of: &str) -> io::Result<()> {
        Server::tell("serve", of)
    }

    fn withdraw(&self, of: &str) -> io::Result<()> {
        Server::tell("withdraw", of)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Ok(name) = CString::new(NAME) else { return };
        // SAFETY: a name that ends.
        let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
        if result != 0 {
            eprintln!("{NAME}: {}", io::Error::last_os_error());
        }
    }
}

/// Who serves the data.
enum Provider {
    /// The kernel has a section `.BTF.inline`, and so have its modules.
    Kernel,
    /// The kernel has none.
    Module(Server),
}

/// Whether the kernel has data of its own. Nothing else has a file of that name while no [`Server`] lives.
pub(crate) fn is_the_kernels() -> bool {
    Path::new(SERVED).exists()
}

impl Provider {
    fn get() -> Result<Provider, Failure> {
        if is_the_kernels() { Ok(Provider::Kernel) } else { Server::load().map(Provider::Module) }
    }

    /// Sees to it that the data of the image is served.
    fn image(&self) -> Result<(), Failure> {
        if let Provider::Module(server) = self {
            server.serve("vmlinux", OF_IMAGE)?;
        }
        if fs::read(SERVED)? != fs::read(OF_IMAGE)? {
            let why = "is not what the encoder makes of the kernel's image: another version of the encoder made it. Remove the \
                kernel's folder from the cache, and build the kernel again (ci/kernel)";
            return Err(format!("{SERVED} {why}").into());
        }
        Ok(())
    }

    /// Loads the module that is traced, and has its data served.
    fn module(&self) -> Result<Loaded, Failure> {
        match self {
            Provider::Kernel => Loaded::from(WITH_DATA),
            Provider::Module(server) => {
                let module = Loaded::load()?;
                server.serve(modules::NAME, OF_MODULE)?;
                Ok(module)
            }
        }
    }
}

/// The running kernel with its own data, while the site file that `full` is from is out of sight.
fn with_own_data(provider: &Provider, full: &Target) -> Result<Target, Failure> {
    provider.image()?;
    let _hidden = Hidden::new(&full.kernel().build_id.to_string())?;
    let own = Target::running(&SourceOptions::default())?;
    expect("origin of the data", own.data().origin(), &Origin::Kernel)?;
    Ok(own)
}

fn known_calls(full: &Target) -> Result<Shown, Failure> {
    let provider = Provider::get()?;
    let own = with_own_data(&provider, full)?;
    truth::with_less(&own, full)
}

/// How many names from the site data the case looks up, at even distances.
const NAMES: usize = 2000;

fn look_up(target: &Target, names: &[String]) -> Result<Vec<Function>, Failure> {
    let wanted = names.iter().map(|name| Wanted::parse(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(target.functions(&wanted)?)
}

/// A location with its run-time address, if it is one.
fn at_run_time(at: &Location, displacement: u64) -> Location {
    match at {
        Location::Address(address) => Location::Address(address.wrapping_add(displacement)),
        other => other.clone(),
    }
}

/// What was compared.
#[derive(Debug, Default)]
struct Counts {
    sites: usize,
    located: usize,
    beyond: usize,
}

/// How a site of the site file comes out of the kernel's own data.
fn compare(full: &Candidate, own: &Candidate, displacements: (u64, u64), counts: &mut Counts) -> Result<(), String> {
    let place = format!("{}+{:#x}", full.symbol, full.offset());
    // Sections that no symbol places, such as .exit.text: the site is known, and no probe can be put there by either.
    let is_unplaced = own.obstacle.is_some() && full.obstacle.is_some();
    if full.kind != own.kind || full.address != own.address && !is_unplaced {
        return Err(format!("{place}: {} at {:#x}, by the site file {}", own.kind, own.address, full.kind));
    }
    if full.arguments.len() != own.arguments.len() {
        return Err(format!("{place}: {} arguments, not {}", own.arguments.len(), full.arguments.len()));
    }
    counts.sites += 1;
    for (nth, (wanted, seen)) in full.arguments.iter().zip(&own.arguments).enumerate() {
        let said = wanted.as_ref().ok().filter(|located| located.is_certain() && to_upstream(located, 0).is_some());
        match (said, seen) {
            (Some(wanted), Ok(seen)) => {
                let (wanted, at) = (
                    (wanted.size, wanted.signed, at_run_time(&wanted.at, displacements.0)),
                    (seen.size, seen.signed, at_run_time(&seen.at, displacements.1)),
                );
                if wanted != at || !seen.is_certain() {
                    return Err(format!("{place}: argument {nth} is {at:?}, by the site file {wanted:?}"));
                }
                counts.located += 1;
            }
            (None, Err(_)) => counts.beyond += usize::from(wanted.is_ok()),
            (wanted, seen) => return Err(format!("{place}: argument {nth} is {seen:?}, by the site file {wanted:?}")),
        }
    }
    Ok(())
}

fn says_what_the_site_file_says(full: &Target) -> Result<String, Failure> {
    let mut names: Vec<String> = full.data().read(&[], |file| {
        let all: Vec<&str> = file.function_names().collect();
        all.iter().step_by((all.len() / NAMES).max(1)).map(|name| (*name).to_owned()).collect()
    })?;
    names.extend(truth::functions().map(str::to_owned));
    let provider = Provider::get()?;
    let own = with_own_data(&provider, full)?;
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for (full, own) in look_up(full, &names)?.iter().zip(&look_up(&own, &names)?) {
        for wanted in full.candidates.iter().filter(|site| site.index.is_some()) {
            let Some(seen) = own.candidates.iter().find(|site| site.index == wanted.index) else {
                wrong.push(format!("{}: nothing at {}+{:#x}", full.name, wanted.symbol, wanted.offset()));
                continue;
            };
            let displacements = (full.displacement, own.displacement);
            wrong.extend(compare(wanted, seen, displacements, &mut counts).err());
        }
        if full.candidates.len() != own.candidates.len() {
            let counts = (own.candidates.len(), full.candidates.len());
            wrong.push(format!("{}: {} sites, by the site file {}", full.name, counts.0, counts.1));
        }
    }
    if let Some(first) = wrong.first() {
        return Err(format!("{} differences; the first: {first}", wrong.len()).into());
    }
    let Counts { sites, located, beyond } = counts;
    if sites == 0 || located == 0 || beyond == 0 {
        return Err(format!("nothing was compared: {counts:?}").into());
    }
    Ok(format!(
        "{} names, {sites} sites, {located} arguments equal; {beyond} that upstream's kinds cannot say",
        names.len()
    ))
}

fn of_a_module(_: &Target) -> Result<String, Failure> {
    let provider = Provider::get()?;
    let module = provider.module()?;
    let hidden = Hidden::of_module()?;
    let target = Target::running(&SourceOptions::default())?;
    let object = load_programs()?;
    let link = Attach::new(&target).attach(&program_of(&object, "copied")?)?;
    expect("calls of the copies", &seen(&object, &link, &module, 4711)?, &copies(4711))?;
    let note = link.report().notes.iter().find(|note| note.contains("siteseer_life.inline"));
    let note =
        note.ok_or_else(|| format!("the report does not say where its data is from:\n{}", link.report()))?.clone();
    drop(link);
    expect("calls after detaching", &record(&object, || module.run(1))?.len(), &0)?;
    drop(hidden);
    // What is served of a module goes with it.
    let served = Path::new("/sys/kernel/btf").join(format!("{}.inline", modules::NAME));
    expect("the file of the loaded module", &served.exists(), &true)?;
    drop(module);
    expect("the file of the unloaded module", &served.exists(), &false)?;
    Ok(note)
}

/// A private or shared mapping of a file in which nothing was changed, for as long as it is compared.
fn map(path: &str, len: usize, protection: i32, flags: i32, offset: i64) -> io::Result<Mapping> {
    let file = File::open(path)?;
    // SAFETY: the kernel chooses the address, and the file is open.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), offset) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapping { at: at.cast(), len }) }
}

struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped for reading, with so many bytes, and the server does not change what it serves.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn protect(&self, protection: i32) -> io::Result<()> {
        // SAFETY: the mapping is this one, which begins at a page.
        let result = unsafe { libc::mprotect(self.at.cast(), self.len, protection) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Upstream's rules for mapping these files (selftests/bpf, `prog_tests/btf_sysfs.c`), and that each parses over its
/// base. And upstream's case of a module (`prog_tests/btf_inline.c`): a function that was inlined is in the module's
/// file, in the text section.
fn files_are_read_and_mapped_as_upstreams(full: &Target) -> Result<String, Failure> {
    let provider = Provider::get()?;
    provider.image()?;
    let module = provider.module()?;
    let image = full.data().base_btf().ok_or("the kernel has no BTF")?;
    let image = Btf::parse(&image)?;
    let data = fs::read(SERVED)?;
    expect("violations of the image's file", &rules::check(&data, Some(&image))?.len(), &0)?;
    let folder = Path::new("/sys/kernel/btf");
    let types = fs::read(folder.join(modules::NAME))?;
    let types = Btf::parse_split(&types, &image)?;
    let of_module = format!("{}/{}.inline", folder.display(), modules::NAME);
    let module_data = fs::read(&of_module)?;
    expect("violations of the module's file", &rules::check(&module_data, Some(&types))?.len(), &0)?;
    let split = Btf::parse_split(&module_data, &types)?;
    let mut copies = 0;
    for section in split.types().filter(|ty| ty.kind() == Kind::Locsec && ty.name() == "inline.text") {
        let is_copied = |func| split.ty(func).is_some_and(|func| func.name() == "life_copied");
        copies += section.locsec().iter().filter(|entry| is_copied(entry.func())).count();
    }
    expect("copies of life_copied in the module's file", &copies, &2)?;

    let private = |path: &str, len, protection, offset| map(path, len, protection, libc::MAP_PRIVATE, offset);
    let mapping = private(SERVED, data.len(), libc::PROT_READ, 0)?;
    expect("what is mapped", &(mapping.bytes() == data), &true)?;
    let whole = data.len().next_multiple_of(PAGE);
    let cases: [(&str, io::Result<()>, i32); 6] = [
        ("for writing later", mapping.protect(libc::PROT_READ | libc::PROT_WRITE), libc::EACCES),
        ("for writing", private(SERVED, data.len(), libc::PROT_READ | libc::PROT_WRITE, 0).map(drop), libc::EACCES),
        ("shared", map(SERVED, data.len(), libc::PROT_READ, libc::MAP_SHARED, 0).map(drop), libc::EACCES),
        ("from the second page", private(SERVED, PAGE, libc::PROT_READ, PAGE as i64).map(drop), libc::EINVAL),
        ("past the end", private(SERVED, whole + 1, libc::PROT_READ, 0).map(drop), libc::EINVAL),
        ("of a module", private(&of_module, PAGE, libc::PROT_READ, 0).map(drop), libc::ENODEV),
    ];
    for (what, result, expected) in &cases {
        let seen = result.as_ref().err().and_then(io::Error::raw_os_error);
        expect(&format!("mapping it {what}"), &seen, &Some(*expected))?;
    }
    drop(mapping);
    drop(module);
    Ok(format!("{} bytes are mapped privately, for reading; {} other ways are refused", data.len(), cases.len()))
}

/// What reports and refusals say of a copy that control may enter past its entry.
const MAY_MISS: &str = "may not be seen";

fn what_is_lost_is_said(full: &Target) -> Result<String, Failure> {
    let provider = Provider::get()?;
    let own = with_own_data(&provider, full)?;
    let object = crate::guest::typed::load(0)?;
    let program = program_of(&object, "count")?;
    // Functions with a copy that is marked in the site file: `complete` refuses them by it.
    let names: Vec<String> = full.data().read(&[], |file| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for site in file.sites().take(200_000) {
            let site = site?;
            if site.marks().contains(siteseer::sites::Marks::MAY_MISS) && site.unprobeable().is_none() {
                names.push(site.function_name().to_owned());
            }
            if names.len() == 200 {
                break;
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    })??;
    let mut shown = None;
    for name in &names {
        let of = |target| {
            Attach::with(
                target,
                AttachOptions::default().function(name.as_str()).policy(Policy::Complete).all_prototypes(true),
            )
        };
        let Err(refused) = of(full).attach(&program) else { continue };
        if !refused.to_string().contains(MAY_MISS) {
            continue;
        }
        let Ok(link) = of(&own).attach(&program) else { continue };
        let report = link.report().to_string();
        for words in [SERVED, "upstream's kinds only", "may be passed by"] {
            if !report.contains(words) {
                return Err(format!("the report does not say {words:?}:\n{report}").into());
            }
        }
        if report.contains(MAY_MISS) {
            return Err(format!("the report says what the data does not:\n{report}").into());
        }
        shown = Some(format!("{name}: complete by the kernel's data, with a note; by the site file: {refused}"));
        break;
    }
    let shown = shown.ok_or_else(|| format!("none of {} functions shows it: {names:?}", names.len()))?;
    Ok(shown.lines().next().unwrap_or_default().to_owned())
}

/// What the search says of the kernel's own data.
fn refusal() -> Result<String, Failure> {
    let text = match Target::running(&SourceOptions::default()) {
        Ok(target) => return Err(format!("site data was found: {}", target.data().origin()).into()),
        Err(error) => with_causes(&error),
    };
    let line = text.lines().find(|line| line.contains(SERVED));
    Ok(line.ok_or_else(|| format!("the error does not name {SERVED}: {text}"))?.trim().to_owned())
}

fn why_there_is_none(full: &Target) -> Result<String, Failure> {
    need(full, Capability::OthersSiteData)?;
    let server = Server::load()?;
    let _hidden = Hidden::new(&full.kernel().build_id.to_string())?;
    let says = |words: &str| match refusal()? {
        line if line.contains(words) => Ok(()),
        line => Err(Failure::from(format!("expected {words:?}: {line}"))),
    };
    says("the kernel was built without CONFIG_DEBUG_INFO_BTF_INLINE")?;
    server.fail("vmlinux")?;
    says("the kernel cannot load its module btf_vmlinux_inline")?;
    // Types, and not one site among them.
    let btf = full.data().base_btf().ok_or("the kernel has no BTF")?;
    let empty = "/siteseer/empty.inline";
    fs::write(empty, SplitBtf::new(&Btf::parse(&btf)?).to_bytes())?;
    server.serve("vmlinux", empty)?;
    says("there are no sites in it")?;
    server.withdraw("vmlinux")?;
    says("the kernel was built without CONFIG_DEBUG_INFO_BTF_INLINE")?;
    server.serve("vmlinux", OF_IMAGE)?;
    let target = Target::running(&SourceOptions::default())?;
    expect("origin of the data", target.data().origin(), &Origin::Kernel)?;
    Ok("not configured, not loaded, empty, and there".to_owned())
}

/// A change of a copy of the data.
type Change<'d> = Box<dyn Fn(&mut [u8]) + 'd>;
/// A way to break a rule, in words, and the change that does it.
type Damage<'d> = (&'d str, Change<'d>);

/// Sets a word.
fn set(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// What breaks the rules of the LOC kinds in some data, with the places of a LOC_PARAM, a LOC_PROTO and a LOCSEC, and
/// the numbers of an INT and of a LOC_PROTO of another length.
fn damages<'d>([param, proto, locsec]: [usize; 3], [int, other_proto]: [u32; 2]) -> Vec<Damage<'d>> {
    let word = |at: usize, value: u32| -> Change<'d> { Box::new(move |bytes| set(bytes, at, value)) };
    let flag = |at: usize| -> Change<'d> { Box::new(move |bytes| bytes[at + 7] |= 0x80) };
    vec![
        ("the magic number", word(0, 0)),
        ("flags in the header", word(0, 0x0101_eb9f)),
        ("an unknown kind", Box::new(move |bytes| bytes[param + 7] = 0x7f)),
        ("a LOC_PARAM with a name", word(param, 1)),
        ("a LOC_PARAM with a kind flag", flag(param)),
        ("a LOC_PARAM of size 0", word(param + 8, 0)),
        ("a LOC_PARAM of size 17", word(param + 8, 17)),
        ("a signed register", word(param + 12, loc_flags::REG | loc_flags::SIGNED)),
        ("a register and a constant", word(param + 12, loc_flags::REG | loc_flags::CONST)),
        ("a constant of 8 bytes in one word", word(param + 12, loc_flags::CONST)),
        ("an offset in one word", word(param + 12, loc_flags::REG | loc_flags::OFFSET)),
        ("a LOC_PROTO with a name", word(proto, 1)),
        ("a LOC_PROTO with a kind flag", flag(proto)),
        ("a LOC_PROTO with a type", word(proto + 8, int)),
        ("a LOC_PROTO that refers to an INT", word(proto + 12, int)),
        ("a LOC_PROTO that refers to nothing that there is", word(proto + 12, 0x000f_ffff)),
        ("a LOCSEC without a name", word(locsec, 0)),
        ("a LOCSEC with a kind flag", flag(locsec)),
        ("a LOCSEC with a type", word(locsec + 8, int)),
        ("a site of an INT", word(locsec + 12, int)),
        ("a site without a LOC_PROTO", word(locsec + 16, 0)),
        ("a site with an INT as its LOC_PROTO", word(locsec + 16, int)),
        ("a LOC_PROTO of another length than the FUNC_PROTO", word(locsec + 16, other_proto)),
    ]
}

/// Data to be damaged, and where in it what [`damages`] changes is.
struct Intact {
    data: Vec<u8>,
    /// A LOC_PARAM that is a register of 8 bytes, a LOC_PROTO and a LOCSEC that are not empty.
    places: [usize; 3],
    /// A LOC_PROTO of another length than that of the LOCSEC's first site.
    other_proto: u32,
}

impl Intact {
    fn of(data: Vec<u8>, types: &Btf<'_>) -> Result<Intact, Failure> {
        let own = Btf::parse_split(&data, types)?;
        let find = |kind: Kind, is_it: &dyn Fn(Type<'_>) -> bool| {
            let ty = own.types().find(|ty| ty.kind() == kind && is_it(*ty));
            ty.ok_or_else(|| Failure::from(format!("no fitting {kind:?} in the data")))
        };
        let is_register = |ty: Type<'_>| {
            let word = u32::from_le_bytes(ty.tail()[..4].try_into().unwrap_or_default());
            (ty.size_or_type(), ty.vlen(), word) == (8, 1, loc_flags::REG)
        };
        let param = find(Kind::LocParam, &is_register)?;
        let proto = find(Kind::LocProto, &|ty| ty.vlen() > 0)?;
        let locsec = find(Kind::Locsec, &|ty| ty.vlen() > 0)?;
        let first = locsec.locsec().first().map(LocsecEntry::loc_proto).and_then(|id| own.ty(id));
        let first = first.ok_or("the first site has no LOC_PROTO")?.vlen();
        let other_proto = find(Kind::LocProto, &|ty| ty.vlen() != first)?.id();
        // A type has 12 bytes before what follows.
        let places = [param, proto, locsec].map(|ty| ty.tail().as_ptr() as usize - data.as_ptr() as usize - TYPE_BYTES);
        Ok(Intact { data, places, other_proto })
    }
}

/// The sites of a module, split over its types, and a LOC_PROTO of another length in addition.
fn small_data(types: &Btf<'_>) -> Result<Vec<u8>, Failure> {
    let func = types.find(Kind::Func, "life_body").ok_or("no life_body among the module's types")?.id();
    let mut b = SplitBtf::new(types);
    let register = b.loc_param(8, loc_flags::REG, &[5]);
    let proto = b.loc_proto(&[register, 0]);
    b.loc_proto(&[register, 0, 0]);
    b.locsec("inline.text", &[LocsecEntry::new(func, proto, 0x40)]);
    Ok(b.to_bytes())
}

/// The module that serves refuses what it is given. A kernel that serves by itself loads a module with such data
/// without them.
fn what_breaks_a_rule_is_refused(full: &Target) -> Result<String, Failure> {
    let image = full.data().base_btf().ok_or("the kernel has no BTF")?;
    let image = Btf::parse(&image)?;
    let int = image.types().find(|ty| ty.kind() == Kind::Int).ok_or("no INT")?.id();
    let served = Path::new("/sys/kernel/btf").join(format!("{}.inline", modules::NAME));
    let provider = Provider::get()?;
    let module = Loaded::load()?;
    let types = fs::read(Path::new("/sys/kernel/btf").join(modules::NAME))?;
    let types = Btf::parse_split(&types, &image)?;
    match provider {
        Provider::Module(server) => {
            let intact = Intact::of(small_data(&types)?, &types)?;
            let path = "/siteseer/damaged.inline";
            let try_it = |data: &[u8]| {
                fs::write(path, data)?;
                match server.serve(modules::NAME, path) {
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                        expect("a file of what was refused", &served.exists(), &false)?;
                        Ok(None)
                    }
                    done => Ok(Some(done.and_then(|()| fs::read(&served))?)),
                }
            };
            for cut in [0, 8, intact.data.len() / 2, intact.data.len() - 1] {
                if try_it(&intact.data[..cut])?.is_some() {
                    return Err(format!("the first {cut} bytes of {} were taken", intact.data.len()).into());
                }
            }
            let count = try_damages(&intact, int, &types, try_it)?;
            drop(module);
            Ok(format!("{count} violations are refused, and the data without any is served"))
        }
        Provider::Kernel => {
            drop(module);
            let whole = fs::read(WITH_DATA)?;
            let intact = Intact::of(fs::read(OF_MODULE)?, &types)?;
            let at = whole.windows(intact.data.len()).position(|part| part == intact.data);
            let at = at.ok_or_else(|| format!("{WITH_DATA} does not hold {OF_MODULE}"))?;
            let path = "/siteseer/damaged.ko";
            let count = try_damages(&intact, int, &types, |data| {
                let mut file = whole.clone();
                file[at..at + data.len()].copy_from_slice(data);
                fs::write(path, file)?;
                let module = Loaded::from(path)?;
                let seen = served.exists().then(|| fs::read(&served)).transpose()?;
                drop(module);
                Ok(seen)
            })?;
            Ok(format!("the kernel serves none of {count} modules that break a rule, and the data without any"))
        }
    }
}

/// Tries each way to break a rule, then the data as they are. `try_it` gives what is served, if the data are taken.
fn try_damages(
    intact: &Intact,
    int: u32,
    types: &Btf<'_>,
    try_it: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<usize, Failure> {
    let data = &intact.data;
    let damages = damages(intact.places, [int, intact.other_proto]);
    for (what, damage) in &damages {
        let mut bytes = data.clone();
        damage(&mut bytes);
        if bytes == *data {
            return Err(format!("{what}: nothing was changed").into());
        }
        if try_it(&bytes)?.is_some() {
            return Err(format!("{what}: it was taken").into());
        }
        // Our own list of the kernel's rules says the same.
        if rules::check(&bytes, Some(types)).is_ok_and(|found| found.is_empty()) {
            return Err(format!("{what}: the kernel refuses it, and the rules do not").into());
        }
    }
    expect("what is served", &(try_it(data)?.as_ref() == Some(data)), &true)?;
    expect("violations of what is served", &rules::check(data, Some(types))?.len(), &0)?;
    Ok(damages.len())
}

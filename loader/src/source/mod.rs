// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where site data comes from.
//!
//! In order: the file that the caller names; what the application brings along (`subset.rs`); a site file in a cache
//! folder, by the kernel's build id, which says more than the kernel's own data do; those,
//! `/sys/kernel/btf/vmlinux.inline`; a debug vmlinux in the usual places, first its encoded sites, then (feature
//! `dwarf`) its DWARF. Only the functions asked for are encoded from DWARF.
//!
//! Site data is addresses: that of another kernel is worse than none. A file whose build id is not the kernel's is
//! refused, or passed over while searching. The types in it are numbers of the kernel's BTF; so its copy of that BTF is
//! compared with the kernel's, byte by byte.
//!
//! Who may have written a file decides whether it is read at all ([`is_privileged`], and docs/security.md).
//!
//! A failed search lists every place that was tried, and why it did not serve.

mod module;
pub mod modules;
mod own;
pub mod placement;
mod subset;
mod trust;

use crate::bpf::call::errno;
use crate::kernel::{BuildId, Kernel};
use object::{Object, ObjectSection};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, BtfError};
use siteseer_sites::file::{FileError, Image, SiteFile, has_sites};
use siteseer_sites::subset::SubsetError;
use siteseer_sites::with_causes;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use module::Over;
pub use module::{BaseTypes, ModuleFinder};
use own::KERNEL_INLINE;
pub use own::RunTime;
use subset::Asked;
use subset::Embedded;
pub use trust::{Chosen, Contents, environment, is_privileged, read, read_as};

/// How to look for site data.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SourceOptions {
    /// A site file, or a debug vmlinux: nothing else is tried.
    pub file: Option<PathBuf>,
    /// Which debug images without encoded sites may be read (slower: their DWARF is walked). Without effect unless the
    /// crate's feature `dwarf` is on.
    pub dwarf: Dwarf,
    /// Site files of modules, or modules with debug information, to be tried before the usual places. Each is used for
    /// the module that has its build id.
    pub modules: Vec<PathBuf>,
    pub(crate) embedded: Option<Embedded>,
}

impl SourceOptions {
    /// Sets [`SourceOptions::file`].
    #[must_use]
    pub fn file(self, file: impl Into<PathBuf>) -> SourceOptions {
        SourceOptions { file: Some(file.into()), ..self }
    }

    /// Sets [`SourceOptions::dwarf`].
    #[must_use]
    pub fn dwarf(self, dwarf: Dwarf) -> SourceOptions {
        SourceOptions { dwarf, ..self }
    }

    /// Uses a subset of site data that the application brings along (`siteseer subset`), of kernels and of modules:
    ///
    /// ```ignore
    /// SourceOptions::default().embedded(include_bytes!("app.sites"))
    /// ```
    ///
    /// It is tried before the usual places. If it has the running kernel, only functions that its maker asked for can
    /// be looked up.
    #[must_use]
    pub fn embedded(self, subset: impl Into<Cow<'static, [u8]>>) -> SourceOptions {
        SourceOptions { embedded: Some(Embedded::from(subset)), ..self }
    }

    /// The subset that the application brings along.
    #[doc(hidden)]
    pub fn embedded_bytes(&self) -> Option<&[u8]> {
        self.embedded.as_deref()
    }

    /// Sets [`SourceOptions::modules`].
    #[must_use]
    pub fn modules(self, modules: impl IntoIterator<Item = PathBuf>) -> SourceOptions {
        SourceOptions { modules: modules.into_iter().collect(), ..self }
    }
}

/// Which files DWARF is read from. It is an intricate format, and its reader is large: a process with privileges had
/// better leave it to `siteseer encode`, which needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dwarf {
    /// No file's.
    Never,
    /// That of files that the caller names. The default of processes with privileges ([`is_privileged`]).
    Named,
    /// Also that of files that are found by searching. The default of all other processes.
    Found,
}

impl Dwarf {
    /// Whether a file's is read.
    fn reads(self, chosen: Chosen) -> bool {
        match chosen {
            Chosen::ByCaller => self != Dwarf::Never,
            Chosen::BySearch => self == Dwarf::Found,
        }
    }
}

impl Default for Dwarf {
    fn default() -> Dwarf {
        if is_privileged() { Dwarf::Named } else { Dwarf::Found }
    }
}

/// Where site data was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The kernel's own, of its image.
    Kernel,
    /// The kernel's own, of a module: a file in `/sys/kernel/btf`.
    KernelModule(PathBuf),
    /// A site file, or an ELF file with a `.BTF.inline` section.
    Encoded(PathBuf),
    /// The DWARF of a debug vmlinux.
    Dwarf(PathBuf),
    /// What the application brings along.
    Embedded,
    /// Nowhere: there are none.
    Nothing,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Kernel => f.write_str(KERNEL_INLINE),
            Origin::Nothing => f.write_str("no site data"),
            Origin::Embedded => f.write_str(EMBEDDED),
            Origin::KernelModule(path) | Origin::Encoded(path) => path.display().fmt(f),
            Origin::Dwarf(path) => write!(f, "DWARF of {}", path.display()),
        }
    }
}

/// A place that was tried without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The place.
    pub path: PathBuf,
    /// Why it did not serve.
    pub why: String,
}

/// Why there is no site data.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nothing was found.
    #[error(
        "no site data for this kernel (build id {build_id}); tried:{}\nget it: siteseer fetch; or make it from the \
         debug image of this very kernel: siteseer encode VMLINUX",
        list(tried)
    )]
    NotFound {
        /// The kernel's build id.
        build_id: BuildId,
        /// All places, in order.
        tried: Vec<Tried>,
    },
    /// Nothing was found for a module.
    #[error(
        "no site data for module {module} (build id {build_id}); tried:{}\nget it: siteseer fetch --modules; or make it \
         from the module's file with debug information: siteseer encode {module}.ko --base VMLINUX",
        list(tried)
    )]
    ModuleNotFound {
        /// The module.
        module: String,
        /// Its build id.
        build_id: BuildId,
        /// All places, in order.
        tried: Vec<Tried>,
    },
    /// A module was built without a build id.
    #[error("module {module} has no build id, which would identify its site data")]
    NoModuleBuildId {
        /// The module.
        module: String,
    },
    /// The file is of a kernel's image, not of a module.
    #[error("{} is of a kernel's image, not of a module", path.display())]
    NotModule {
        /// The file.
        path: PathBuf,
    },
    /// A module's types are over those of another kernel.
    #[error(
        "{origin} is for another kernel: its types are based on those of build id {theirs}, the kernel's is {ours}"
    )]
    OtherKernel {
        /// The file.
        origin: Origin,
        /// The build id of the kernel that it is for.
        theirs: BuildId,
        /// The kernel's.
        ours: BuildId,
    },
    /// A file could not be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The caller's file is of another kernel.
    #[error("{} is of another kernel: its build id is {theirs}, the kernel's is {ours}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The file's build id.
        theirs: BuildId,
        /// The kernel's.
        ours: BuildId,
    },
    /// The file has the kernel's build id, and other types.
    #[error("{}: its .BTF is not the kernel's, though the build id is", path.display())]
    OtherTypes {
        /// The file.
        path: PathBuf,
    },
    /// The kernel does not have site data of its own.
    #[error("{}: {why}", path.display())]
    NotInKernel {
        /// The file in sysfs.
        path: PathBuf,
        /// Why it does not have them.
        why: &'static str,
    },
    /// The file has neither sites nor, as far as this build of siteseer can read it, DWARF.
    #[error("{} has no encoded sites, and {why}", path.display())]
    NoSites {
        /// The file.
        path: PathBuf,
        /// Why its DWARF does not serve.
        why: &'static str,
    },
    /// Malformed site data.
    #[error("{origin}")]
    Malformed {
        /// Where they are from.
        origin: Origin,
        /// What is wrong.
        #[source]
        error: FileError,
    },
    /// The kernel's BTF cannot be read, and its own site data needs it.
    #[error("/sys/kernel/btf/vmlinux")]
    KernelBtf(#[source] BtfError),
    /// What the application brings along cannot be used.
    #[error("the site data that the application brings along")]
    Subset(#[from] SubsetError),
    /// What the application brings along is not about this kernel.
    #[error("none for this kernel among those of {images} images")]
    NotInSubset {
        /// How many images and modules it is about.
        images: usize,
    },
    /// What the application brings along is about other functions.
    #[error("the site data that the application brings along is not about {function}: name it to siteseer subset")]
    NotAsked {
        /// The function, or the pattern.
        function: String,
    },
    /// DWARF could not be encoded.
    #[error("{}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What stands for the application's own site data where there is a path else.
const EMBEDDED: &str = "the application's own";

impl SourceError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            SourceError::Read { error, .. } => errno(error),
            SourceError::NotFound { .. }
            | SourceError::ModuleNotFound { .. }
            | SourceError::NotInKernel { .. }
            | SourceError::NotAsked { .. }
            | SourceError::NoSites { .. } => libc::ENODATA,
            _ => libc::EINVAL,
        }
    }
}

fn list(tried: &[Tried]) -> String {
    tried.iter().map(|tried| format!("\n  {}: {}", tried.path.display(), tried.why)).collect()
}

/// Site data, found and checked, not yet read.
#[derive(Debug)]
pub struct SiteData {
    origin: Origin,
    bytes: Bytes,
    /// What was encoded last.
    encoded: Mutex<Option<Encoded>>,
    /// The functions that they are about, if these are not all.
    asked: Option<Asked>,
}

/// Functions that were encoded from DWARF.
#[derive(Debug)]
struct Encoded {
    /// Their names; `None` for all.
    names: Option<BTreeSet<String>>,
    bytes: Arc<Vec<u8>>,
}

impl Encoded {
    fn has(&self, functions: &[&str]) -> bool {
        match &self.names {
            None => true,
            Some(names) => !functions.is_empty() && functions.iter().all(|&name| names.contains(name)),
        }
    }
}

#[derive(Debug)]
enum Bytes {
    /// A file with encoded sites.
    Encoded(Contents),
    /// The kernel's split BTF, what it is split over, and what goes with it. `None`: the sites are among the types.
    Kernel { inline: Option<Vec<u8>>, btf: Arc<[u8]>, image: Image },
    /// A debug vmlinux.
    #[cfg_attr(not(feature = "dwarf"), allow(dead_code, reason = "only the encoder reads it"))]
    Dwarf(Contents),
}

/// Whether the kernel has site data of its own, which are the only ones whose addresses are relative to where it lies.
pub(crate) fn kernel_has_its_own() -> bool {
    Path::new(KERNEL_INLINE).exists()
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> SourceError + '_ {
    move |error| SourceError::Read { path: path.to_owned(), error }
}

fn contents(path: &Path, chosen: Chosen) -> Result<Contents, SourceError> {
    trust::read(path, chosen).map_err(read_error(path))
}

type Elf<'a> = object::read::elf::ElfFile64<'a, object::LittleEndian>;

fn elf_build_id(elf: &Elf<'_>) -> BuildId {
    BuildId(elf.build_id().ok().flatten().unwrap_or_default().to_vec())
}

impl SiteData {
    fn new(origin: Origin, bytes: Bytes) -> SiteData {
        SiteData { origin, bytes, encoded: Mutex::new(None), asked: None }
    }

    /// Opens a file that may hold site data or DWARF. `kernel` is what it has to fit, if it is for a running kernel.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot be read, is of another kernel, or has no sites.
    pub fn open(path: &Path, kernel: Option<&Kernel>, dwarf: bool) -> Result<SiteData, SourceError> {
        SiteData::open_chosen(path, kernel, dwarf, Chosen::ByCaller)
    }

    fn open_chosen(path: &Path, kernel: Option<&Kernel>, dwarf: bool, chosen: Chosen) -> Result<SiteData, SourceError> {
        let bytes = contents(path, chosen)?;
        let elf = Elf::parse(&*bytes).map_err(|error| SourceError::Malformed {
            origin: Origin::Encoded(path.to_owned()),
            error: FileError::Elf(error),
        })?;
        if let Some(kernel) = kernel {
            let theirs = elf_build_id(&elf);
            if theirs != kernel.build_id {
                let ours = kernel.build_id.clone();
                return Err(SourceError::Foreign { path: path.to_owned(), theirs, ours });
            }
            let own = elf.section_by_name(".BTF").and_then(|section| section.data().ok());
            if let (Some(own), Some(running)) = (own, kernel.btf.as_deref())
                && *own != *running
            {
                return Err(SourceError::OtherTypes { path: path.to_owned() });
            }
        }
        let section = |name: &str| elf.section_by_name(name).is_some();
        if section(".BTF.inline") || (!section(".debug_info") && btf_has_sites(&elf)) {
            let origin = Origin::Encoded(path.to_owned());
            if let Err(error) = SiteFile::parse(&bytes) {
                return Err(SourceError::Malformed { origin, error });
            }
            return Ok(SiteData::new(origin, Bytes::Encoded(bytes)));
        }
        SiteData::of_dwarf(path, bytes, dwarf, chosen)
    }

    /// A file without encoded sites, if its DWARF will do.
    fn of_dwarf(path: &Path, bytes: Contents, dwarf: bool, chosen: Chosen) -> Result<SiteData, SourceError> {
        let has_dwarf = Elf::parse(&*bytes).is_ok_and(|elf| elf.section_by_name(".debug_info").is_some());
        let why = if !has_dwarf {
            "no DWARF either"
        } else if !cfg!(feature = "dwarf") {
            "its DWARF cannot be read: this siteseer was built without the feature `dwarf`"
        } else if !dwarf && chosen == Chosen::BySearch && is_privileged() {
            "its DWARF is not read in a process with privileges unless it is asked for: encode it (siteseer encode)"
        } else if !dwarf {
            "its DWARF is not to be read"
        } else {
            return Ok(SiteData::new(Origin::Dwarf(path.to_owned()), Bytes::Dwarf(bytes)));
        };
        Err(SourceError::NoSites { path: path.to_owned(), why })
    }

    /// Finds the site data of the running kernel.
    ///
    /// # Errors
    /// [`SourceError`]; a search that finds nothing says where it looked.
    pub fn find(options: &SourceOptions, kernel: &Kernel, at: RunTime) -> Result<SiteData, SourceError> {
        if let Some(path) = &options.file {
            return SiteData::open(path, Some(kernel), options.dwarf.reads(Chosen::ByCaller));
        }
        let mut tried = Vec::new();
        if let Some(embedded) = &options.embedded {
            match Self::of_subset(embedded, kernel) {
                Err(error @ SourceError::NotInSubset { .. }) => {
                    tried.push(Tried { path: EMBEDDED.into(), why: reason(&error) });
                }
                found => return found,
            }
        }
        let own = [PathBuf::from(KERNEL_INLINE)];
        for path in caches(&kernel.build_id).into_iter().chain(own).chain(debug_images(kernel)) {
            let found = if path == Path::new(KERNEL_INLINE) {
                Self::of_kernel(kernel, at)
            } else {
                let dwarf = options.dwarf.reads(Chosen::BySearch);
                SiteData::open_chosen(&path, Some(kernel), dwarf, Chosen::BySearch)
            };
            match found {
                Ok(data) => return Ok(data),
                Err(error) => tried.push(Tried { path, why: reason(&error) }),
            }
        }
        Err(SourceError::NotFound { build_id: kernel.build_id.clone(), tried })
    }

    /// None, for a kernel without any: no site is known, and the types are those of the kernel's BTF.
    ///
    /// # Errors
    /// [`SourceError::KernelBtf`] if the kernel has no BTF.
    pub(crate) fn nothing(kernel: &Kernel) -> Result<SiteData, SourceError> {
        let btf = kernel.btf.clone().ok_or(SourceError::KernelBtf(BtfError::TruncatedHeader(0)))?;
        let image = Image {
            machine: kernel.machine,
            build_id: kernel.build_id.0.clone(),
            base_address: None,
            sections: Vec::new(),
        };
        Ok(SiteData::new(Origin::Nothing, Bytes::Kernel { inline: None, btf, image }))
    }

    /// What they are about: the architecture and the build id of the image.
    ///
    /// # Errors
    /// [`SourceError::Malformed`].
    pub fn image(&self) -> Result<(Machine, BuildId), SourceError> {
        let malformed = |error| SourceError::Malformed { origin: self.origin.clone(), error };
        match &self.bytes {
            Bytes::Encoded(bytes) => {
                let file = SiteFile::parse(bytes).map_err(malformed)?;
                Ok((file.machine(), BuildId(file.build_id().to_vec())))
            }
            Bytes::Kernel { image, .. } => Ok((image.machine, BuildId(image.build_id.clone()))),
            Bytes::Dwarf(bytes) => {
                let elf = Elf::parse(&**bytes).map_err(|error| malformed(FileError::Elf(error)))?;
                let e_machine = elf.elf_header().e_machine.get(elf.endian()).0;
                let machine = Machine::from_elf(e_machine).ok_or_else(|| malformed(FileError::Machine(e_machine)))?;
                Ok((machine, elf_build_id(&elf)))
            }
        }
    }

    /// The BTF of the kernel's image; `None` if there is none, or it cannot be read.
    pub fn base_btf(&self) -> Option<Arc<[u8]>> {
        let (Bytes::Encoded(bytes) | Bytes::Dwarf(bytes)) = &self.bytes else {
            let Bytes::Kernel { btf, .. } = &self.bytes else { return None };
            return Some(Arc::clone(btf));
        };
        let elf = Elf::parse(&**bytes).ok()?;
        let section = elf.section_by_name(".BTF")?;
        section.data().ok().map(Arc::from)
    }

    /// Whether they are a debug image's. Only the functions asked for are encoded from one.
    pub(crate) fn reads_dwarf(&self) -> bool {
        matches!(self.bytes, Bytes::Dwarf(_))
    }

    /// Where they were found.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Reads them. If it is DWARF, only the functions named are encoded; an empty list is all of them. What was encoded
    /// last is kept, and serves again if it has the functions. The numbers of types that the kernel's own BTF does not
    /// have are then the same; after other functions were encoded they are others.
    ///
    /// # Errors
    /// [`SourceError`] if they are malformed.
    pub fn read<R>(&self, functions: &[&str], with: impl FnOnce(&SiteFile<'_>) -> R) -> Result<R, SourceError> {
        let malformed = |error| SourceError::Malformed { origin: self.origin.clone(), error };
        // What was made of damaged data is not given out, whichever way it was read.
        let read = |file: Result<SiteFile<'_>, FileError>| {
            let file = file.map_err(malformed)?;
            let result = with(&file);
            file.whole().map_err(malformed)?;
            Ok(result)
        };
        match &self.bytes {
            Bytes::Encoded(bytes) => read(SiteFile::parse(bytes)),
            Bytes::Kernel { inline, btf, image } => {
                let base = Btf::parse(btf).map_err(SourceError::KernelBtf)?;
                read(of_kinds(inline.as_deref(), &base, image))
            }
            Bytes::Dwarf(image) => read(SiteFile::parse(&self.encoded(image, functions, None)?)),
        }
    }

    /// What the encoder makes of DWARF; `base` is the kernel that a module is for.
    fn encoded(&self, image: &[u8], functions: &[&str], base: Option<&BaseTypes>) -> Result<Arc<Vec<u8>>, SourceError> {
        let mut last = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(encoded) = last.as_ref().filter(|encoded| encoded.has(functions)) {
            return Ok(Arc::clone(&encoded.bytes));
        }
        let bytes = Arc::new(self.encode(image, functions, base)?);
        let names = (!functions.is_empty()).then(|| functions.iter().map(|&name| name.to_owned()).collect());
        *last = Some(Encoded { names, bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }

    #[cfg(feature = "dwarf")]
    fn encode(&self, image: &[u8], functions: &[&str], base: Option<&BaseTypes>) -> Result<Vec<u8>, SourceError> {
        let Origin::Dwarf(path) = &self.origin else { return Ok(Vec::new()) };
        let failed = |error| SourceError::Encode { path: path.clone(), error };
        let functions = functions.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let types = base.filter(|_| siteseer_encoder::is_module(image));
        let types = types.map(|base| siteseer_encoder::KernelTypes::new(&base.btf)).transpose();
        let types = types.map_err(|error| failed(error.into()))?;
        let build_id = base.map_or(&[][..], |base| &base.build_id.0);
        let options = siteseer_encoder::Options {
            functions: (!functions.is_empty()).then_some(functions),
            kernel: types.as_ref().map(|types| siteseer_encoder::BaseKernel { types, build_id }),
            code: true,
            ..siteseer_encoder::Options::default()
        };
        let encoded = siteseer_encoder::encode_all(image, &options).map_err(|error| failed(error.into()))?;
        let mut bytes = Vec::new();
        siteseer_sites::file::write_with(&encoded.set, &encoded.optional(), &mut bytes)
            .map_err(|error| failed(error.into()))?;
        Ok(bytes)
    }

    #[cfg(not(feature = "dwarf"))]
    fn encode(&self, _: &[u8], _: &[&str], _: Option<&BaseTypes>) -> Result<Vec<u8>, SourceError> {
        let Origin::Dwarf(path) = &self.origin else { return Ok(Vec::new()) };
        Err(SourceError::NoSites { path: path.clone(), why: "this siteseer was built without the feature `dwarf`" })
    }

    /// Whether addresses in the data are run-time addresses already.
    pub(crate) fn is_run_time(&self) -> bool {
        matches!(self.bytes, Bytes::Kernel { .. })
    }
}

/// Sites in upstream's kinds: split off, or among the types that they refer to.
fn of_kinds<'a>(inline: Option<&'a [u8]>, base: &Btf<'a>, image: &Image) -> Result<SiteFile<'a>, FileError> {
    match inline {
        Some(inline) => SiteFile::from_inline(inline, base, image.clone()),
        None => SiteFile::from_whole(base, image.clone()),
    }
}

/// Whether there are sites among an image's types.
fn btf_has_sites(elf: &Elf<'_>) -> bool {
    let section = elf.section_by_name(".BTF").and_then(|section| section.data().ok());
    section.is_some_and(has_sites)
}

/// An error's text without the path that stands beside it.
fn reason(error: &SourceError) -> String {
    let text: Cow<'_, str> = match error {
        SourceError::Read { error, .. } if error.kind() == io::ErrorKind::NotFound => "not there".into(),
        SourceError::Read { error, .. } => error.to_string().into(),
        SourceError::Foreign { theirs, .. } if theirs.0.is_empty() => "it has no build id".into(),
        SourceError::Foreign { theirs, .. } => format!("of another build (build id {theirs})").into(),
        SourceError::OtherTypes { .. } => "its .BTF is not the kernel's, though the build id is".into(),
        SourceError::NotInKernel { why, .. } => (*why).into(),
        SourceError::NoSites { why, .. } => format!("no encoded sites, and {why}").into(),
        SourceError::Malformed { error, .. } => with_causes(error).into(),
        other => with_causes(other).into(),
    };
    text.into_owned()
}

/// The folder where the user's site files are kept: `$XDG_CACHE_HOME/siteseer`, or `~/.cache/siteseer`. `None` where
/// the environment does not say, names a path that is not absolute, or is not to be believed (set-user-ID, file
/// capabilities).
pub fn user_cache() -> Option<PathBuf> {
    cache_of(environment)
}

fn cache_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("siteseer"))
}

/// Where the site file of an image or module with that build id is looked for.
fn caches(id: &BuildId) -> Vec<PathBuf> {
    let folders = user_cache().into_iter().chain(["/var/cache/siteseer".into(), "/usr/lib/siteseer".into()]);
    folders.map(|folder| folder.join(format!("{id}.sites"))).collect()
}

/// Where debug images are looked for.
fn debug_images(kernel: &Kernel) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let id = kernel.build_id.to_string();
    if let Some((folder, rest)) = id.split_at_checked(2) {
        places.push(format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug").into());
    }
    let release = &kernel.release;
    places.extend([
        format!("/usr/lib/debug/boot/vmlinux-{release}").into(),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux").into(),
        format!("/lib/modules/{release}/build/vmlinux").into(),
        format!("/boot/vmlinux-{release}").into(),
    ]);
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Privileges;
    use siteseer_sites::Machine;
    use std::env;

    pub(super) fn kernel() -> Kernel {
        Kernel {
            release: "0.0-none".to_owned(),
            machine: Machine::X86_64,
            build_id: BuildId(vec![0xab, 0xcd, 0xef]),
            btf: None,
            rdonly_cast: None,
            kprobe_pmu: None,
            kprobe_multi: false,
            cookies: false,
            fentry: false,
            tracing_multi: false,
            kprobe_session: None,
            notrace_events: false,
            decodes_past_modules: false,
            kretprobe: None,
            private_stack: false,
            unplaced: false,
            privileges: Privileges::default(),
        }
    }

    #[test]
    fn places_are_by_build_id_and_release() {
        let places = caches(&kernel().build_id).into_iter().chain(debug_images(&kernel()));
        let places: Vec<String> = places.map(|path| path.display().to_string()).collect();
        for expected in [
            "/var/cache/siteseer/abcdef.sites",
            "/usr/lib/debug/.build-id/ab/cdef.debug",
            "/usr/lib/debug/lib/modules/0.0-none/vmlinux",
            "/boot/vmlinux-0.0-none",
        ] {
            assert!(places.iter().any(|place| place == expected), "{expected} in {places:?}");
        }
    }

    // Proves S2.9.
    #[test]
    fn a_search_in_vain_lists_every_place() {
        let at = RunTime { text: 0, stext: 0, init: None };
        let error = SiteData::find(&SourceOptions::default(), &kernel(), at).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("build id abcdef"), "{text}");
        for place in caches(&kernel().build_id).into_iter().chain(debug_images(&kernel())) {
            assert!(text.contains(&format!("{}: not there", place.display())), "{text}");
        }
    }

    #[test]
    fn caches_are_absolute() {
        let cache = |cache: &str, home: &str| {
            let value = |name: &str| Some(OsString::from(if name == "HOME" { home } else { cache }));
            cache_of(value).map(|path| path.display().to_string())
        };
        assert_eq!(cache("/c", "/h").as_deref(), Some("/c/siteseer"));
        assert_eq!(cache("", "/h").as_deref(), Some("/h/.cache/siteseer"));
        assert_eq!(cache("c", "/h").as_deref(), Some("/h/.cache/siteseer"), "as the XDG specification says");
        assert_eq!(cache("", ""), None, "an empty HOME would give a relative path");
        assert_eq!(cache_of(|_| None), None);
    }

    #[test]
    fn dwarf_is_read_as_far_as_it_is_asked_for() {
        use Chosen::{ByCaller, BySearch};
        let reads = |dwarf: Dwarf| [ByCaller, BySearch].map(|chosen| dwarf.reads(chosen));
        assert_eq!(reads(Dwarf::Never), [false, false]);
        assert_eq!(reads(Dwarf::Named), [true, false]);
        assert_eq!(reads(Dwarf::Found), [true, true]);
        assert_eq!(Dwarf::default() == Dwarf::Named, is_privileged());
    }

    #[test]
    fn what_was_encoded_serves_again() {
        let encoded = |names: Option<&[&str]>| Encoded {
            names: names.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            bytes: Arc::default(),
        };
        assert!(encoded(None).has(&[]) && encoded(None).has(&["foo"]));
        let some = encoded(Some(&["foo", "bar"]));
        assert!(some.has(&["bar"]) && some.has(&["foo", "bar"]));
        assert!(!some.has(&[]) && !some.has(&["foo", "baz"]));
    }

    #[test]
    fn files_that_are_not_site_data() {
        let folder = env::temp_dir().join(format!("siteseer-source-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("not.elf");
        std::fs::write(&path, b"hello, world").unwrap();
        assert!(matches!(SiteData::open(&path, None, true), Err(SourceError::Malformed { .. })));
        let own = env::current_exe().unwrap();
        let foreign = SiteData::open(&own, Some(&kernel()), true).unwrap_err();
        assert!(matches!(foreign, SourceError::Foreign { .. }), "{foreign}");
        assert!(foreign.to_string().contains("the kernel's is abcdef"));
        assert!(matches!(SiteData::open(&folder.join("none"), None, true), Err(SourceError::Read { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

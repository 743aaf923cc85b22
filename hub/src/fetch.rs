// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Fetching the site data of a kernel to where the loader looks.
//!
//! Hubs are tried first, then debuginfod's servers and the distribution's archive, which have the debug image: it is
//! encoded here, and thrown away. If the image on a debuginfod server has site data in sections of its own, these alone
//! are fetched. Places are tried one after the other until one serves. If a place lies, the next one
//! is asked, and the lie is reported.

use crate::config::Config;
use crate::error::{Cause, HubError};
use crate::http::{Client, Part, Status};
use crate::jobs::Jobs;
use crate::layout::{self, BTF, Base, INDEX, Index, Kernel, MODULES, MODULES_1, SIGNATURE, SITES};
use crate::local::{Local, look};
use crate::make::{encode_modules, parse_index};
use crate::place::{self, Lock, install};
use crate::sign::Keys;
use crate::{debian, pack, stored};
use siteseer::internals::kernel::BuildId;
use siteseer_sites::file::{self, module_kernel};
use siteseer_sites::with_causes;
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::http::{Limits, Progress};

/// A kernel that site data is wanted of.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The build id of its image.
    pub build_id: Option<BuildId>,
    /// What `uname -r` prints on it.
    pub release: Option<String>,
    /// Its types, if it is running: what is fetched must have the same.
    pub btf: Option<Arc<[u8]>>,
    /// Whether its modules' are wanted too.
    pub modules: bool,
}

/// How to fetch.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where from.
    pub config: Config,
    /// Whether the distribution's archive may be asked.
    pub archive: bool,
    /// Whether data that nobody signed will do.
    pub allow_unsigned: bool,
    /// Where to; [`place::folder`] by default.
    pub folder: Option<PathBuf>,
    /// Whether to fetch what is there already.
    pub again: bool,
    /// How long, and how much.
    pub limits: Limits,
}

/// What was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// The site file of the image.
    pub path: PathBuf,
    /// Where it is from; `None` if it was there.
    pub from: Option<String>,
    /// How many modules' site files were written.
    pub modules: usize,
    /// Places that did not serve, and why.
    pub tried: Vec<(String, String)>,
}

/// A signature has some hundred bytes; an index some hundred for each kernel.
const SIGNATURE_LIMIT: u64 = 64 << 10;
const INDEX_LIMIT: u64 = 64 << 20;

/// A file may be so many times as large as it was sent, beyond some megabytes. Site files are four times as large.
const EXPANSION: u64 = 64;
const EXPANSION_FREE: u64 = 64 << 20;

/// The site files of a kernel, checked.
struct Found {
    image: Vec<u8>,
    /// By name.
    modules: Vec<(String, Vec<u8>)>,
}

struct Fetcher<'o> {
    options: &'o Options,
    keys: Keys,
    client: Client,
    progress: &'o dyn Progress,
    folder: PathBuf,
    tried: Vec<(String, String)>,
}

/// Fetches the site data of a kernel.
///
/// # Errors
/// [`HubError::NotFound`] with each place that was tried; [`HubError::Place`] and others if there is nowhere to write.
pub fn fetch(wanted: &Wanted, options: &Options, progress: &dyn Progress) -> Result<Fetched, HubError> {
    let folder = options.folder.clone().map_or_else(place::folder, Ok)?;
    place::prepare(&folder, options.folder.is_some())?;
    let keys = Keys::parse(&options.config.keys)?;
    let client = Client::new(options.limits);
    let mut fetcher = Fetcher { options, keys, client, progress, folder, tried: Vec::new() };
    fetcher.fetch(wanted)
}

impl Fetcher<'_> {
    fn fetch(&mut self, wanted: &Wanted) -> Result<Fetched, HubError> {
        let (id, release) = match &wanted.build_id {
            Some(id) => (id.clone(), wanted.release.clone()),
            None => {
                let release = wanted.release.clone().unwrap_or_default();
                match self.by_release(&release)? {
                    Some(id) => (id, Some(release)),
                    // Only the package of that name can have it.
                    None => return self.package_of(&release, wanted),
                }
            }
        };
        let wanted = Wanted { build_id: Some(id.clone()), release, ..wanted.clone() };
        let waits = || self.progress.say("another siteseer is fetching the same data: waiting for it");
        let _lock = Lock::take(&self.folder, &id.to_string(), waits)?;
        let name = format!("{id}.sites");
        let path = self.folder.join(&name);
        if !self.options.again && !wanted.modules && self.is_there(&path, &wanted) {
            return Ok(Fetched { path, from: None, modules: 0, tried: Vec::new() });
        }
        for url in self.options.config.urls.clone() {
            match self.of_hub(&url, &id, &wanted) {
                Ok(found) => return self.install(&id, found, url),
                Err(error) => self.note(url, &error)?,
            }
        }
        for url in self.options.config.debuginfod.clone() {
            match self.of_debuginfod(&url, &id, &wanted) {
                Ok(found) => return self.install(&id, found, url),
                Err(error) => self.note(url, &error)?,
            }
        }
        if let Some(release) = wanted.release.clone().filter(|_| self.options.archive) {
            match self.of_package(&release, &wanted) {
                Ok(Some((_, found))) => return self.install(&id, found, "the distribution's archive".to_owned()),
                Ok(None) => {}
                Err(error) => self.note("the distribution's archive".to_owned(), &error)?,
            }
        }
        let what = match &wanted.release {
            Some(release) => format!("release {release} (build id {id})"),
            None => format!("build id {id}"),
        };
        Err(HubError::NotFound { what, tried: std::mem::take(&mut self.tried) })
    }

    /// Notes that a place did not serve. If there is no room here, no other place will do.
    fn note(&mut self, place: String, error: &HubError) -> Result<(), HubError> {
        if let HubError::Io { path, error } = error {
            let error = std::io::Error::new(error.kind(), error.to_string());
            return Err(HubError::Io { path: path.clone(), error });
        }
        let text = with_causes(error);
        // The place stands before it already.
        let why = text.strip_prefix(&place).map_or(text.as_str(), |rest| rest.trim_start_matches([':', ' ', '/']));
        self.tried.push((place, why.to_owned()));
        Ok(())
    }

    /// Whether the site data is there and correct.
    fn is_there(&self, path: &Path, wanted: &Wanted) -> bool {
        fs::read(path).is_ok_and(|data| check_image(&path.display().to_string(), &data, wanted).is_ok())
    }

    /// The build id of a release, by the index of a hub.
    fn by_release(&mut self, release: &str) -> Result<Option<BuildId>, HubError> {
        for url in self.options.config.urls.clone() {
            let found = self.index(&url).map(|index| -> Vec<Kernel> {
                index.kernels.into_iter().filter(|kernel| kernel.release == release).collect()
            });
            match found {
                Ok(kernels) => match kernels.as_slice() {
                    [] => self.tried.push((url, format!("it has no kernel {release}"))),
                    [one] => match layout::parse_id(&one.build_id) {
                        Some(id) => return Ok(Some(id)),
                        None => {
                            let why = format!("its index says {:?}, which is not a build id", one.build_id);
                            self.tried.push((url, why));
                        }
                    },
                    several => {
                        let ids: Vec<&str> = several.iter().map(|kernel| kernel.build_id.as_str()).collect();
                        let why =
                            format!("there are several builds of {release}: name one (--build-id {})", ids.join(", "));
                        return Err(HubError::Malformed { what: url, why: why.into() });
                    }
                },
                Err(error) => self.note(url, &error)?,
            }
        }
        Ok(None)
    }

    /// Checks what came by its signature, before anything else is done with it.
    fn check(&self, url: &str, data: &[u8], path: &str) -> Result<(), HubError> {
        let unsigned = |why: &str| HubError::Unsigned { what: url.to_owned(), why: why.to_owned() };
        let signature = match self.client.small(&format!("{url}{SIGNATURE}"), SIGNATURE_LIMIT) {
            Ok(signature) => Some(signature),
            Err(HubError::NotThere { .. } | HubError::NotAFile { .. }) => None,
            Err(error) => return Err(error),
        };
        match (signature, self.keys.is_empty()) {
            // A signature that is present and wrong is never passed over.
            (Some(signature), false) => self.keys.verify(url, data, &signature, path),
            _ if self.options.allow_unsigned => Ok(()),
            (Some(_), true) => Err(unsigned("it is signed, and no key is trusted (SITESEER_KEYS, keys in fetch.toml)")),
            (None, _) => Err(unsigned("it is not signed")),
        }
    }

    /// A file of a hub, checked by its signature.
    fn file(&self, url: &str, id: &BuildId, name: &str) -> Result<(String, File, Part), HubError> {
        let path = layout::path(id, name);
        let at = format!("{}/{path}", url.trim_end_matches('/'));
        let part = Part::new(&self.folder, &format!("{id}.{name}"));
        let had = part.path().exists();
        let one = || -> Result<File, HubError> {
            let mut file = self.client.large(&at, &part, self.options.limits.packed, self.progress)?;
            let mut data = Vec::new();
            let read = file.read_to_end(&mut data).and_then(|_| file.seek(SeekFrom::Start(0)));
            read.map_err(crate::error::io(part.path()))?;
            self.check(&at, &data, &path).inspect_err(|_| part.discard())?;
            Ok(file)
        };
        let file = match one() {
            // What was kept of an earlier attempt may have been another version's.
            Err(HubError::Signature { .. }) if had => one()?,
            other => other?,
        };
        Ok((at, file, part))
    }

    /// A file of a hub that is stored whole, decompressed.
    fn whole(&self, url: &str, id: &BuildId, name: &str) -> Result<(String, Vec<u8>), HubError> {
        let (at, file, part) = self.file(url, id, name)?;
        let sent = file.metadata().map_or(0, |about| about.len());
        let limit = self.options.limits.unpacked.min(sent.saturating_mul(EXPANSION).saturating_add(EXPANSION_FREE));
        let data = pack::decompress(&at, file, limit);
        part.discard();
        Ok((at, data?))
    }

    /// A file of a hub, decompressed. If it is not there whole, the index says which one it is the difference from.
    fn unpacked(
        &self,
        url: &str,
        id: &BuildId,
        name: &'static str,
        index: &OnceCell<Index>,
    ) -> Result<(String, Vec<u8>), HubError> {
        let absent = match self.whole(url, id, name) {
            Err(absent @ HubError::NotThere { .. }) => absent,
            other => return other,
        };
        let index = match index.get() {
            Some(index) => index,
            None => match self.index(url) {
                Err(HubError::NotThere { .. }) => return Err(absent),
                read => {
                    let read = read?;
                    index.get_or_init(|| read)
                }
            },
        };
        let kernel = index.kernels.iter().find(|kernel| kernel.build_id == id.to_string());
        match kernel.and_then(|kernel| Some((kernel, kernel.part(name).base.as_ref()?))) {
            Some((kernel, base)) => self.difference(url, id, name, index, (kernel, base)),
            None => Err(absent),
        }
    }

    fn difference(
        &self,
        url: &str,
        id: &BuildId,
        name: &'static str,
        index: &Index,
        (kernel, base): (&Kernel, &Base),
    ) -> Result<(String, Vec<u8>), HubError> {
        let stored = kernel.part(name).name(name);
        let what = format!("{}/{}", url.trim_end_matches('/'), layout::path(id, stored));
        let limit = self.options.limits.unpacked;
        if base.unpacked > limit {
            return Err(HubError::TooLarge { what: format!("{what}, decompressed,"), limit });
        }
        let bad = |why: Cause| HubError::Base { what: what.clone(), base: base.build_id.clone(), why };
        let over = layout::parse_id(&stored::base_of(&what, index, base, name)?.build_id);
        let over = over.ok_or_else(|| bad("that is not a build id".into()))?;
        let (at, mut file, part) = self.file(url, id, stored)?;
        let mut delta = Vec::new();
        let read = file.read_to_end(&mut delta).map_err(crate::error::io(part.path()));
        part.discard();
        read?;
        let is_base = |data: &Vec<u8>| stored::check_base(&what, base, data).is_ok();
        let bytes = match self.at_hand(&over, name).filter(is_base) {
            Some(bytes) => bytes,
            None => match self.whole(url, &over, name) {
                // If there is no room here, that is not about the base.
                Err(error @ HubError::Io { .. }) => return Err(error),
                Err(error) => return Err(bad(error.into())),
                Ok((_, bytes)) => bytes,
            },
        };
        stored::check_base(&what, base, &bytes)?;
        Ok((at, pack::decompress_over(&what, &delta, &bytes, base.unpacked)?))
    }

    /// A file of another kernel, made again from its site file, if that was fetched before.
    fn at_hand(&self, id: &BuildId, name: &str) -> Option<Vec<u8>> {
        let image = fs::read(self.folder.join(format!("{id}.sites"))).ok()?;
        stored::packed_again(&image, name)
    }

    /// The index of a hub.
    fn index(&self, url: &str) -> Result<Index, HubError> {
        let at = format!("{}/{INDEX}", url.trim_end_matches('/'));
        let index = self.client.small(&at, INDEX_LIMIT)?;
        self.check(&at, &index, INDEX)?;
        parse_index(&at, &index)
    }

    fn of_hub(&self, url: &str, id: &BuildId, wanted: &Wanted) -> Result<Found, HubError> {
        let limit = self.options.limits.unpacked;
        let index = OnceCell::new();
        let unpack = |name: &'static str| self.unpacked(url, id, name, &index);
        let (at, image) = unpack(SITES)?;
        let image = stored::image(&at, image, wanted.btf.as_deref(), limit, || Ok(unpack(BTF)?.1))?;
        check_image(&at, &image, wanted)?;
        let mut modules = Vec::new();
        if wanted.modules {
            match unpack(MODULES) {
                Err(HubError::NotThere { .. }) => {}
                packed => {
                    let (at, packed) = packed?;
                    let modules = stored::modules(&at, &packed, &image, limit)?;
                    for (name, data) in &modules {
                        check_module(&at, name, data, id)?;
                    }
                    return Ok(Found { image, modules });
                }
            }
            let (at, archive) = match self.whole(url, id, MODULES_1) {
                Err(HubError::NotThere { .. }) => {
                    self.progress.say(&format!("{url} has no modules of this kernel"));
                    return Ok(Found { image, modules });
                }
                other => other?,
            };
            for (name, data) in pack::files(&at, &archive)? {
                check_module(&at, &name, data, id)?;
                modules.push((name, data.to_vec()));
            }
        }
        Ok(Found { image, modules })
    }

    fn of_debuginfod(&self, url: &str, id: &BuildId, wanted: &Wanted) -> Result<Found, HubError> {
        let base = format!("{}/buildid/{id}", url.trim_end_matches('/'));
        let at = format!("{base}/debuginfo");
        if !self.options.allow_unsigned {
            return Err(HubError::Unsigned { what: at, why: "debuginfod does not sign".to_owned() });
        }
        if wanted.modules {
            self.progress.say(&format!("{url} is not asked for modules: the site data of the image alone is fetched"));
        }
        match self.of_sections(&base, id, wanted) {
            Ok(image) => return Ok(Found { image, modules: Vec::new() }),
            Err(error) if lacks_sections(&error) => {}
            // The whole image would not come either.
            Err(error @ (HubError::Http { .. } | HubError::Io { .. })) => return Err(error),
            Err(error) => {
                self.progress.say(&format!("{}: the debug image is fetched in its place", with_causes(&error)));
            }
        }
        let part = Part::new(&self.folder, &format!("{id}.debuginfo"));
        let fetched = self.client.large(&at, &part, self.options.limits.image, self.progress);
        let found = fetched.and_then(|_| self.encode(part.path(), &[], id, wanted));
        // What broke off can go on another time.
        if !matches!(found, Err(HubError::Http { .. })) {
            part.discard();
        }
        found
    }

    /// The site file of an image on a debuginfod server, of its sections. `base` is the address of the image.
    fn of_sections(&self, base: &str, id: &BuildId, wanted: &Wanted) -> Result<Vec<u8>, HubError> {
        let section = |name: &str| -> Result<Vec<u8>, HubError> {
            let at = format!("{base}/section/{name}");
            let part = Part::new(&self.folder, &format!("{id}{name}"));
            let mut file = self.client.large(&at, &part, self.options.limits.unpacked, self.progress)?;
            let mut data = Vec::new();
            let read = file.read_to_end(&mut data).map_err(crate::error::io(part.path()));
            part.discard();
            read.map(|_| data)
        };
        // That which most images do not have comes first.
        let (ext, inline) = (section(".BTF.inline.ext")?, section(".BTF.inline")?);
        let own = match &wanted.btf {
            Some(_) => Vec::new(),
            None => section(".BTF")?,
        };
        let btf = wanted.btf.as_deref().unwrap_or(&own);
        let at = format!("{base}/section");
        let joined = file::join(&id.0, btf, &inline, &ext);
        let image = joined.map_err(|error| HubError::Malformed { what: at.clone(), why: error.into() })?;
        check_image(&at, &image, wanted)?;
        Ok(image)
    }

    fn of_package(&self, release: &str, wanted: &Wanted) -> Result<Option<(BuildId, Found)>, HubError> {
        let say = |text: &str| self.progress.say(text);
        let limit = self.options.limits.image;
        let Some(unpacked) = debian::fetch(release, wanted.modules, &self.folder, limit, &say)? else {
            return Ok(None);
        };
        let id = Local::open(&unpacked.image)?.build_id;
        let wanted = Wanted { build_id: wanted.build_id.clone().or_else(|| Some(id.clone())), ..wanted.clone() };
        let found = self.encode(&unpacked.image, &unpacked.modules, &id, &wanted)?;
        Ok(Some((id, found)))
    }

    fn package_of(&mut self, release: &str, wanted: &Wanted) -> Result<Fetched, HubError> {
        if self.options.archive {
            match self.of_package(release, wanted) {
                Ok(Some((id, found))) => {
                    let _lock = Lock::take(&self.folder, &id.to_string(), || {})?;
                    return self.install(&id, found, "the distribution's archive".to_owned());
                }
                Ok(None) => {}
                Err(error) => self.note("the distribution's archive".to_owned(), &error)?,
            }
        }
        let what = format!("release {release}");
        Err(HubError::NotFound { what, tried: std::mem::take(&mut self.tried) })
    }

    /// Encodes a debug image.
    fn encode(&self, image: &Path, modules: &[PathBuf], id: &BuildId, wanted: &Wanted) -> Result<Found, HubError> {
        let what = image.display().to_string();
        let local = Local::open(image)?;
        let ours = wanted.build_id.as_ref().unwrap_or(id);
        if local.build_id != *ours {
            return Err(HubError::Foreign { what, theirs: local.build_id, ours: ours.clone() });
        }
        self.progress.say("encoding the debug image");
        let data = local.sites(None)?;
        check_image(&what, &data, wanted)?;
        let btf = look(&what, &data, |file| file.base_btf_bytes().unwrap_or_default().to_vec())?;
        let modules = if modules.is_empty() {
            Vec::new()
        } else {
            let encoded = encode_modules(modules, &btf, ours, Jobs::default(), self.progress)?;
            if encoded.left_out > 0 {
                self.progress.say(&format!("{} modules of {} could not be encoded", encoded.left_out, modules.len()));
            }
            encoded.files
        };
        Ok(Found { image: data, modules })
    }

    /// Writes what was found to where the loader looks. The modules come first: who finds the image finds them.
    fn install(&mut self, id: &BuildId, found: Found, from: String) -> Result<Fetched, HubError> {
        for (name, data) in &found.modules {
            install(&self.folder, name, data)?;
        }
        let path = install(&self.folder, &format!("{id}.sites"), &found.image)?;
        let tried = std::mem::take(&mut self.tried);
        Ok(Fetched { path, from: Some(from), modules: found.modules.len(), tried })
    }
}

/// Whether an image has no such section, or a server does not know such a request: debuginfod has it since elfutils
/// 0.188, and before answers 406.
fn lacks_sections(error: &HubError) -> bool {
    let is_unknown = |status: &Status| matches!(status.0, 400 | 405 | 406 | 501);
    match error {
        HubError::NotThere { .. } => true,
        HubError::Http { why, .. } => why.downcast_ref().is_some_and(is_unknown),
        _ => false,
    }
}

/// Whether a site file is that of the kernel.
fn check_image(what: &str, data: &[u8], wanted: &Wanted) -> Result<(), HubError> {
    let (theirs, is_same, is_module) = look(what, data, |file| {
        let is_same = wanted.btf.as_deref().is_none_or(|btf| file.base_btf_bytes() == Some(btf));
        (BuildId(file.build_id().to_vec()), is_same, file.module().is_some())
    })?;
    match &wanted.build_id {
        Some(ours) if theirs != *ours => Err(HubError::Foreign { what: what.to_owned(), theirs, ours: ours.clone() }),
        _ if is_module => Err(HubError::Malformed { what: what.to_owned(), why: "a module, not an image".into() }),
        _ if !is_same => Err(HubError::OtherTypes { what: what.to_owned() }),
        _ => Ok(()),
    }
}

/// Whether a file of an archive is the site file of a module of the kernel, by its own name.
fn check_module(what: &str, name: &str, data: &[u8], kernel: &BuildId) -> Result<(), HubError> {
    let bad = |why: Cause| HubError::Malformed { what: format!("{what}: {name}"), why };
    let id = name.strip_suffix(".sites").and_then(layout::parse_id);
    let id = id.ok_or_else(|| bad("not a name of a module's site file".into()))?;
    let theirs = module_kernel(data).map_err(|error| bad(error.into()))?;
    let theirs = theirs.ok_or_else(|| bad("not a module's".into()))?;
    if theirs != kernel.0 {
        let ours = kernel.clone();
        return Err(HubError::Foreign { what: format!("{what}: {name}"), theirs: BuildId(theirs.to_vec()), ours });
    }
    let own = crate::local::build_id(data).unwrap_or_default();
    if own == id { Ok(()) } else { Err(HubError::Foreign { what: format!("{what}: {name}"), theirs: own, ours: id }) }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site of a site file.

use super::ext::{Ext, NONE16, NONE24, RawContainer, RawDeclaration, from24, wide};
use super::function::FunctionRef;
use super::program;
use super::read::{FileError, SiteFile, TextSection};
use super::write::FIRST_PROGRAM;
use crate::btf::{Kind, Param, Signature, TypeId, loc};
use crate::location::{Argument, Computed, Located, Location, Missing};
use crate::site::{Marks, SiteKind, SourceLine, Unprobeable};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// A place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source<'a> {
    /// The file's name.
    pub file: &'a str,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
}

/// Stands for a location prototype: equal for two sites of one function exactly if all their arguments are at the same
/// locations, or missing for the same reasons. Sites of functions that have such locations in common, and parameters of
/// other types, may have it in common too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrototypeKey(pub u64);

/// The out-of-line symbol that contains a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRef<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its link-time address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u32,
    /// Why its first byte cannot be probed, as far as the image tells.
    pub unprobeable: Option<Unprobeable>,
}

impl<'a> ContainerRef<'a> {
    pub(super) fn read(file: &SiteFile<'a>, raw: &RawContainer) -> Option<ContainerRef<'a>> {
        Some(ContainerRef {
            name: file.string(raw.name.get())?,
            address: wide(raw.address_low, raw.address_high),
            size: from24(raw.size),
            unprobeable: match raw.unprobeable {
                0 => None,
                code => Some(Unprobeable::from_code(code)?),
            },
        })
    }
}

/// One site. All but its arguments and declaration was checked when it was read.
#[derive(Debug, Clone, Copy)]
pub struct SiteRef<'f, 'a> {
    file: &'f SiteFile<'a>,
    index: u32,
    section: usize,
    func: TypeId,
    loc_proto: TypeId,
    offset: u32,
    more: Option<More<'a>>,
    /// What all sites of the function have in common, if the site was reached through its function.
    shared: Option<Shared>,
}

/// What all sites of a function have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    /// Range of the declarations.
    pub(super) declarations: (u32, u32),
    /// The parameters; `None` if the types are damaged.
    pub(super) signature: Option<Signature>,
}

/// What the companion section says.
#[derive(Debug, Clone, Copy)]
struct More<'a> {
    prototype: u32,
    kind: SiteKind,
    marks: Marks,
    unprobeable: Option<Unprobeable>,
    moved: u8,
    container: ContainerRef<'a>,
    parent: Option<u32>,
    source: Option<Source<'a>>,
    declaration: u16,
}

impl<'f, 'a> SiteRef<'f, 'a> {
    pub(super) fn read(file: &'f SiteFile<'a>, index: u32) -> Result<Self, FileError> {
        let corrupt = || FileError::corrupt("site", index);
        let (section, entry) = file.entry(index).ok_or_else(corrupt)?;
        let more = match &file.ext {
            Some(ext) => Some(More::read(file, ext, index).ok_or_else(corrupt)?),
            None => None,
        };
        file.whole()?;
        Ok(SiteRef {
            file,
            index,
            section,
            func: entry.func(),
            loc_proto: entry.loc_proto(),
            offset: entry.offset(),
            more,
            shared: None,
        })
    }

    /// A site of a function: what the function's run and the LOCSEC say must agree.
    pub(super) fn read_of(function: &FunctionRef<'f, 'a>, shared: Shared, index: u32) -> Result<Self, FileError> {
        let site = Self::read(function.file(), index)?;
        if site.func != function.func() {
            return Err(FileError::corrupt("site", index));
        }
        Ok(SiteRef { shared: Some(shared), ..site })
    }

    /// The site's index: what stands for it.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The site data that it is of.
    pub fn file(&self) -> &'f SiteFile<'a> {
        self.file
    }

    /// The FUNC whose body starts here.
    pub fn func(&self) -> TypeId {
        self.func
    }

    /// The name of the function whose body starts here.
    pub fn function_name(&self) -> &'a str {
        self.file.btf().ty(self.func).map_or("", |ty| ty.name())
    }

    /// The text section.
    pub fn section(&self) -> &'f TextSection<'a> {
        &self.file.sections()[self.section]
    }

    /// Bytes from the start of the text section to the probe.
    pub fn section_offset(&self) -> u32 {
        self.offset
    }

    /// Address of the probe, at link time.
    pub fn address(&self) -> u64 {
        self.section().address.wrapping_add(u64::from(self.offset))
    }

    /// Address at which the body starts, at link time: the probe may be some bytes further on, or before.
    pub fn entry_address(&self) -> u64 {
        self.address().wrapping_add_signed(-i64::from(self.marks().signed_distance(self.moved())))
    }

    /// How many bytes before the probe the body starts; with [`Marks::MOVED_BACK`], how many bytes after it.
    pub fn moved(&self) -> u8 {
        self.more.map_or(0, |more| more.moved)
    }

    /// What the site is. `None` if the data do not say: then the symbols have to.
    pub fn kind(&self) -> Option<SiteKind> {
        self.more.map(|more| more.kind)
    }

    /// The out-of-line symbol that contains the site, if the data say.
    pub fn container(&self) -> Option<ContainerRef<'a>> {
        self.more.map(|more| more.container)
    }

    /// Bytes from the container's start to the probe. Negative in a container that is reported by a later part of it.
    pub fn container_offset(&self) -> Option<i64> {
        self.container().map(|container| self.address().wrapping_sub(container.address) as i64)
    }

    /// Where an inline site was called, or a body or clone was declared.
    pub fn source(&self) -> Option<Source<'a>> {
        self.more.and_then(|more| more.source)
    }

    /// Where the function was declared.
    ///
    /// # Errors
    /// If data are damaged.
    pub fn declared(&self) -> Result<Option<Source<'a>>, FileError> {
        let (Some(ext), Some(more)) = (&self.file.ext, self.more) else {
            return Ok(None);
        };
        if more.declaration == NONE16 {
            return Ok(None);
        }
        let corrupt = || FileError::corrupt("declaration of site", self.index);
        let (first, end) = match self.shared {
            Some(shared) => shared.declarations,
            None => {
                let functions = self.file.functions(self.function_name())?;
                functions.iter().find(|f| f.func() == self.func).ok_or_else(corrupt)?.declarations()
            }
        };
        let nth = first.saturating_add(u32::from(more.declaration));
        let raw = self.file.row(ext.declarations, nth as usize).filter(|_| nth < end).ok_or_else(corrupt)?;
        let declared = source_of_declaration(self.file, ext, raw).ok_or_else(corrupt)?;
        self.file.whole()?;
        Ok(declared)
    }

    /// For an inline site whose caller is itself an inlined copy: the index of that copy's site.
    pub fn parent(&self) -> Option<u32> {
        self.more.and_then(|more| more.parent)
    }

    /// Flags.
    pub fn marks(&self) -> Marks {
        self.more.map_or(Marks::default(), |more| more.marks)
    }

    /// Why no probe can be put here, as far as the image tells.
    pub fn unprobeable(&self) -> Option<Unprobeable> {
        match self.more {
            Some(more) => more.unprobeable,
            None => self.section().unprobeable,
        }
    }

    /// The LOC_PROTO.
    pub fn loc_proto(&self) -> TypeId {
        self.loc_proto
    }

    /// What stands for the site's location prototype.
    pub fn prototype_key(&self) -> PrototypeKey {
        let ours = self.more.map_or(0, |more| more.prototype);
        PrototypeKey(u64::from(self.loc_proto) << 32 | u64::from(ours))
    }

    /// What the prototype says about the parameters.
    fn signature(&self) -> Result<Signature, FileError> {
        let found = match self.shared {
            Some(shared) => shared.signature,
            None => Signature::of(self.file.btf(), self.func),
        };
        found.ok_or_else(|| FileError::corrupt("function type", self.func))
    }

    /// Each parameter's location, or why there is none.
    ///
    /// # Errors
    /// If data are damaged.
    pub fn arguments(&self) -> Result<Vec<Argument>, FileError> {
        let corrupt = || FileError::corrupt("location prototype", self.loc_proto);
        let proto = self.file.btf().ty(self.loc_proto).filter(|ty| ty.kind() == Kind::LocProto).ok_or_else(corrupt)?;
        let (ids, signature) = (proto.loc_proto(), self.signature()?);
        let matches = ids.len() == signature.vlen();
        match (&self.file.ext, self.more) {
            (Some(ext), Some(more)) if matches => self.our_arguments(ext, more, ids, signature),
            (Some(_), Some(_)) => Err(corrupt()),
            _ if matches => self.foreign_arguments(ids, signature),
            // Which of the locations belongs to which parameter is not known.
            _ => Ok(vec![Err(Missing::Malformed); signature.parameters()]),
        }
    }

    /// The location that a LOC_PARAM tells.
    fn upstream(&self, id: TypeId, nth: usize, signature: Signature) -> Result<Argument, FileError> {
        if id == 0 {
            return Ok(Err(Missing::Unknown));
        }
        let corrupt = || FileError::corrupt("location", id);
        let ty = self.file.btf().ty(id).ok_or_else(corrupt)?;
        let (flags, words) = ty.loc_param().ok_or_else(corrupt)?;
        let Some(signed) = signature.is_signed(nth) else { return Ok(Err(Missing::Unsupported)) };
        let context = loc::Context { base: self.file.known_base(), signed };
        Ok(loc::from_upstream(ty.size_or_type(), flags, words.iter().map(|word| word.get()), context))
    }

    /// The arguments of data that come without a companion section.
    fn foreign_arguments(&self, ids: &[U32], signature: Signature) -> Result<Vec<Argument>, FileError> {
        let btf = self.file.btf();
        let func = btf.ty(self.func).and_then(|ty| btf.ty(ty.size_or_type()));
        let func = func.ok_or_else(|| FileError::corrupt("function type", self.func))?;
        let argument = |((nth, param), id): ((usize, Param<'_>), &U32)| {
            let argument = self.upstream(id.get(), nth, signature)?;
            Ok(argument.and_then(|located| of_size(located, btf.size_of(param.ty))))
        };
        func.params().enumerate().zip(ids).map(argument).collect()
    }

    /// The arguments as the upstream part and the companion section have them.
    fn our_arguments(
        &self,
        ext: &Ext<'a>,
        more: More<'a>,
        ids: &[U32],
        signature: Signature,
    ) -> Result<Vec<Argument>, FileError> {
        let file = self.file;
        let damaged = || FileError::corrupt("prototype", more.prototype);
        let place = more.prototype as usize;
        let count = file.row(ext.prototypes, place).ok_or_else(damaged)?.get() as usize;
        let words = ext.prototypes.get(place + 1..).and_then(|rest| rest.get(..count));
        let words = words.filter(|words| words.len() == signature.parameters()).ok_or_else(damaged)?;
        file.touch(words.as_bytes());
        let argument = |(nth, (id, word)): (usize, (&U32, &U32))| -> Result<Argument, FileError> {
            match word.get() {
                0 => self.upstream(id.get(), nth, signature),
                code @ 1..FIRST_PROGRAM => Ok(Err(Missing::from_code(code as u8).ok_or_else(damaged)?)),
                word => {
                    let bytes = ext.programs.get((word - FIRST_PROGRAM) as usize..).ok_or_else(damaged)?;
                    let (located, len) =
                        program::decode(bytes, file.base_address(), file.machine()).ok_or_else(damaged)?;
                    file.touch(&bytes[..len.min(bytes.len())]);
                    Ok(Ok(located))
                }
            }
        };
        let arguments =
            ids.iter().zip(words).enumerate().map(argument).collect::<Result<Vec<Argument>, FileError>>()?;
        file.whole()?;
        Ok(arguments)
    }
}

/// A location that others wrote, for a parameter whose type has so many bytes. What is wider has the value in its low
/// bytes; what is narrower does not have all of it.
fn of_size(located: Located, size: Option<u64>) -> Argument {
    let size = size.and_then(|size| u32::try_from(size).ok()).filter(|&size| size > 0).ok_or(Missing::NoType)?;
    if located.size < size {
        return Err(Missing::Partial);
    }
    let at = match located.at {
        Location::Constant(value) => Location::Constant(loc::canonical_constant(value, size, located.signed)),
        Location::RegisterPair(first, _) if size <= 8 => Location::Register(first),
        Location::Computed(Computed { slots }) => {
            let mut slots = slots.into_vec();
            slots.truncate(size.div_ceil(8) as usize);
            Location::Computed(Computed { slots: slots.into() })
        }
        at => at,
    };
    Ok(Located { size, at, ..located })
}

impl<'a> More<'a> {
    fn read(file: &SiteFile<'a>, ext: &Ext<'a>, index: u32) -> Option<More<'a>> {
        let raw = file.row(ext.sites, index as usize)?;
        let details = file.row(ext.details, raw.details.get() as usize)?;
        let container = file.row(ext.containers, raw.container.get() as usize)?;
        let parent = raw.parent.get().checked_sub(1);
        if parent.is_some_and(|parent| parent >= file.site_count()) {
            return None;
        }
        let unprobeable = match details.unprobeable {
            0 => None,
            code => Some(Unprobeable::from_code(code)?),
        };
        Some(More {
            prototype: details.prototype.get(),
            kind: SiteKind::from_code(details.kind)?,
            marks: Marks(details.marks),
            unprobeable,
            moved: details.moved,
            container: ContainerRef::read(file, container)?,
            parent,
            source: source(file, ext, from24(raw.file), NONE24, from24(raw.line))?,
            declaration: raw.declaration.get(),
        })
    }
}

/// Where a declaration is; the outer `None` if the file is not in the table.
pub(super) fn source_of_declaration<'a>(
    file: &SiteFile<'a>,
    ext: &Ext<'a>,
    raw: &RawDeclaration,
) -> Option<Option<Source<'a>>> {
    source(file, ext, raw.file.get(), SourceLine::NO_FILE, raw.line.get())
}

/// A source line; the outer `None` if the file is not in the table.
fn source<'a>(file: &SiteFile<'a>, ext: &Ext<'a>, index: u32, none: u32, line: u32) -> Option<Option<Source<'a>>> {
    if index == none {
        return Some(None);
    }
    let name = file.row(ext.files, index as usize)?;
    Some(Some(Source { file: file.string(name.get())?, line }))
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A function of a site file.

use super::read::{FileError, SiteFile};
use super::site::{Shared, SiteRef, Source};
use crate::btf::{Kind, Param, Signature, TypeId};

/// A function: a name and a prototype. Those of one name and one prototype, in several source files, are one.
#[derive(Debug, Clone, Copy)]
pub struct FunctionRef<'f, 'a> {
    file: &'f SiteFile<'a>,
    nth: u32,
    name: &'a str,
    func: TypeId,
    runs: (u32, u32),
    declarations: (u32, u32),
}

/// A function's prototype. Types are numbers of [`SiteFile::btf`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype<'a> {
    /// The FUNC_PROTO.
    pub id: TypeId,
    /// Names and types of the parameters.
    pub params: Vec<Param<'a>>,
    /// What it returns; 0 for void.
    pub returns: TypeId,
    /// Whether it takes further arguments.
    pub variadic: bool,
}

impl<'f, 'a> FunctionRef<'f, 'a> {
    pub(super) fn new(
        file: &'f SiteFile<'a>,
        nth: u32,
        name: &'a str,
        func: TypeId,
        runs: (u32, u32),
        declarations: (u32, u32),
    ) -> Self {
        FunctionRef { file, nth, name, func, runs, declarations }
    }

    /// The name in the source.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The BTF FUNC.
    pub fn func(&self) -> TypeId {
        self.func
    }

    /// The place in the order of names.
    pub fn nth(&self) -> u32 {
        self.nth
    }

    /// The prototype.
    ///
    /// # Errors
    /// If the types are damaged.
    pub fn prototype(&self) -> Result<Prototype<'a>, FileError> {
        let btf = self.file.btf();
        let func = btf.ty(self.func).filter(|ty| ty.kind() == Kind::Func);
        let proto = func.and_then(|ty| btf.ty(ty.size_or_type())).filter(|ty| ty.kind() == Kind::FuncProto);
        let proto = proto.ok_or(FileError::Corrupt { what: "function type", index: self.func })?;
        self.file.whole()?;
        Ok(Prototype {
            id: proto.id(),
            params: proto.params().collect(),
            returns: proto.size_or_type(),
            variadic: proto.is_variadic(),
        })
    }

    /// How many sites it has.
    ///
    /// # Errors
    /// If data are damaged.
    pub fn site_count(&self) -> Result<u32, FileError> {
        (self.runs.0..self.runs.1).try_fold(0u32, |sum, nth| Ok(sum.saturating_add(self.file.run(nth)?.1)))
    }

    /// Its sites, section by section, by address in each.
    pub fn sites(&self) -> impl Iterator<Item = Result<SiteRef<'f, 'a>, FileError>> + use<'f, 'a> {
        let this = *self;
        let signature = Signature::of(self.file.btf(), self.func);
        let shared = Shared { declarations: self.declarations, signature };
        (this.runs.0..this.runs.1).flat_map(move |nth| {
            let run = this.file.run(nth);
            let (range, error) = match run {
                Ok((first, count)) => (first..first + count, None),
                Err(error) => (0..0, Some(Err(error))),
            };
            range.map(move |index| SiteRef::read_of(&this, shared, index)).chain(error)
        })
    }

    /// Where the functions of this name and prototype were declared, as far as is known: a place for each source file.
    pub fn declared(&self) -> impl Iterator<Item = Result<Source<'a>, FileError>> + use<'f, 'a> {
        let this = *self;
        (this.declarations.0..this.declarations.1).filter_map(move |nth| this.file.declaration(nth).transpose())
    }

    pub(super) fn file(&self) -> &'f SiteFile<'a> {
        self.file
    }

    pub(super) fn declarations(&self) -> (u32, u32) {
        self.declarations
    }
}

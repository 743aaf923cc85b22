// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a compiler did to a function, as far as a case is about it: a question to the site data.
//!
//! A case says which sites it needs as a [`Shape`], and is not exercised where the kernel's functions do not have it.
//! The question is put twice: by the case, to the running kernel; and, if the answer was "no", by the harness to the
//! image that it booted (`tests/vm.rs`), through the same plan. A case cannot leave itself out only because of what it
//! finds at run time.

use crate::guest::case::Failure;
use serde::{Deserialize, Serialize};
use siteseer::internals::function::{Candidate, Function};
use siteseer::internals::insn::Insn;
use siteseer::internals::plan::{Decision, PlanOptions, plan};
use siteseer::internals::program::{UserProgram, analyse};
use siteseer::internals::section::{Form, Kind as Section};
use siteseer::{PlanError, Policy, Target, TargetError};
use siteseer_sites::file::{FileError, SiteFile};
use siteseer_sites::site::SiteKind;
use std::fmt;

/// Where a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// The symbol that is the function itself.
    Body,
    /// A symbol made from it.
    Clone,
    /// Either of them.
    OutOfLine,
    /// In a caller.
    Inline,
    /// Any of them.
    Anywhere,
}

impl Place {
    /// Whether a site of this kind is there.
    pub fn is(self, kind: SiteKind) -> bool {
        match self {
            Place::Body => kind == SiteKind::Body,
            Place::Clone => kind == SiteKind::Clone,
            Place::OutOfLine => kind != SiteKind::Inline,
            Place::Inline => kind == SiteKind::Inline,
            Place::Anywhere => true,
        }
    }
}

impl From<SiteKind> for Place {
    fn from(kind: SiteKind) -> Place {
        match kind {
            SiteKind::Body => Place::Body,
            SiteKind::Clone => Place::Clone,
            SiteKind::Inline => Place::Inline,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Body => "body",
            Place::Clone => "clone",
            Place::OutOfLine => "out-of-line copy",
            Place::Inline => "inlined copy",
            Place::Anywhere => "site",
        })
    }
}

/// A site that is looked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sought {
    /// What it is.
    pub place: Place,
    /// The symbol that holds it.
    pub within: Option<String>,
    /// The function that calls it in the source: the innermost. This compiler may have made inlined copies of that one
    /// too.
    pub caller: Option<String>,
    /// Parameters that have a location there.
    pub has: Vec<usize>,
    /// Parameters that have none.
    pub lacks: Vec<usize>,
    /// Whether its return value is where the calling convention has it, for certain.
    pub returns: Option<bool>,
    /// Whether a program that reads nothing would be attached.
    pub attachable: bool,
}

/// A site of a kind, with a program attached to it.
pub fn site(place: Place) -> Sought {
    Sought { place, within: None, caller: None, has: vec![], lacks: vec![], returns: None, attachable: true }
}

impl Sought {
    /// In this symbol.
    #[must_use]
    pub fn within(mut self, symbol: &str) -> Sought {
        self.within = Some(symbol.to_owned());
        self
    }

    /// Called by this function of the source.
    #[must_use]
    pub fn called_by(mut self, caller: &str) -> Sought {
        self.caller = Some(caller.to_owned());
        self
    }

    /// With a location for this parameter.
    #[must_use]
    pub fn with(mut self, parameter: usize) -> Sought {
        self.has.push(parameter);
        self
    }

    /// Without one.
    #[must_use]
    pub fn without(mut self, parameter: usize) -> Sought {
        self.lacks.push(parameter);
        self
    }

    /// With a return value for certain, or without that certainty.
    #[must_use]
    pub fn returning(mut self, returns: bool) -> Sought {
        self.returns = Some(returns);
        self
    }

    /// Whether a program could be attached or not.
    #[must_use]
    pub fn attachable_or_not(mut self) -> Sought {
        self.attachable = false;
        self
    }

    fn is(&self, candidate: &Candidate, attached: bool, file: &SiteFile<'_>) -> Result<bool, FileError> {
        let has = |nth: &usize| candidate.available(*nth, false).is_ok();
        let fits = self.place.is(candidate.kind)
            && self.within.as_ref().is_none_or(|symbol| *symbol == candidate.symbol)
            && self.has.iter().all(has)
            && !self.lacks.iter().any(has)
            && self.returns.is_none_or(|returns| returns == candidate.marks.returns_value())
            && (attached || !self.attachable);
        let Some(caller) = self.caller.as_ref().filter(|_| fits) else { return Ok(fits) };
        let Some(index) = candidate.index else { return Ok(false) };
        Ok(caller_of(file, index)?.as_deref() == Some(caller.as_str()))
    }
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(symbol) = &self.within {
            write!(f, " in {symbol}()")?;
        }
        if let Some(caller) = &self.caller {
            write!(f, " called by {caller}()")?;
        }
        self.has.iter().try_for_each(|nth| write!(f, " with argument {nth}"))?;
        self.lacks.iter().try_for_each(|nth| write!(f, " without argument {nth}"))?;
        match self.returns {
            Some(true) => f.write_str(" that returns its value")?,
            Some(false) => f.write_str(" that may have lost its value")?,
            None => {}
        }
        f.write_str(if self.attachable { " that can be probed" } else { "" })
    }
}

/// The function of the source that an inlined copy is in: that of the copy around it, or of the symbol.
///
/// # Errors
/// If the site data is damaged.
pub fn caller_of(file: &SiteFile<'_>, index: u32) -> Result<Option<String>, FileError> {
    Ok(callers_of(file, index)?.into_iter().next())
}

/// The functions of the source that an inlined copy is in, from the inside out.
///
/// # Errors
/// If the site data is damaged.
pub fn callers_of(file: &SiteFile<'_>, index: u32) -> Result<Vec<String>, FileError> {
    let mut callers = Vec::new();
    let mut site = file.site(index)?;
    while let Some(parent) = site.parent() {
        site = file.site(parent)?;
        callers.push(site.function_name().to_owned());
    }
    let Some(symbol) = site.container().and_then(|holder| holder.name.split('.').next()) else { return Ok(callers) };
    // A system call without parameters is one function under several names. A symbol table may have an entry's name
    // alone (SYSCALL_DEFINE0, arch/x86/include/asm/syscall_wrapper.h). Where there are parameters, nothing is inlined
    // into an entry but by way of `__do_sys_`.
    let entry = ["__x64_sys_", "__ia32_sys_", "__arm64_sys_"].iter().find_map(|entry| symbol.strip_prefix(entry));
    callers.push(entry.map_or_else(|| symbol.to_owned(), |call| format!("__do_sys_{call}")));
    Ok(callers)
}

/// What a function must have for a case: each of these sites, and none of those.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// The function.
    pub function: String,
    /// There must be such sites.
    pub some: Vec<Sought>,
    /// There must not be such.
    pub none: Vec<Sought>,
}

impl Shape {
    /// A function with these sites.
    pub fn new(function: &str, some: impl IntoIterator<Item = Sought>) -> Shape {
        Shape { function: function.to_owned(), some: some.into_iter().collect(), none: Vec::new() }
    }

    /// And with no such site.
    #[must_use]
    pub fn and_no(mut self, sought: Sought) -> Shape {
        self.none.push(sought);
        self
    }

    /// Whether a kernel's function has it.
    ///
    /// # Errors
    /// If the kernel cannot be asked. That it has no such function is an answer.
    pub fn is_had(&self, target: &Target) -> Result<bool, Failure> {
        let function = match target.function(&self.function) {
            Ok(function) => function,
            Err(TargetError::Unknown { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let attached = attached(target, &function)?;
        let sites: Vec<(&Candidate, bool)> = function.candidates.iter().zip(attached).collect();
        Ok(target.data().read(&[self.function.as_str()], |file| -> Result<bool, FileError> {
            let any = |sought: &Sought| -> Result<bool, FileError> {
                for (site, attached) in &sites {
                    if sought.is(site, *attached, file)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            };
            for sought in &self.some {
                if !any(sought)? {
                    return Ok(false);
                }
            }
            for sought in &self.none {
                if any(sought)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })??)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}() with ", self.function)?;
        for (nth, sought) in self.some.iter().enumerate() {
            write!(f, "{}a {sought}", if nth == 0 { "" } else { ", and " })?;
        }
        for (nth, sought) in self.none.iter().enumerate() {
            write!(f, "{}no {sought}", if nth == 0 && self.some.is_empty() { "" } else { ", and " })?;
        }
        Ok(())
    }
}

/// At which of a function's sites a program that reads nothing would run.
fn attached(target: &Target, function: &Function) -> Result<Vec<bool>, Failure> {
    let insns = vec![Insn::mov_imm(0, 0), Insn::exit()];
    let program = UserProgram { name: "a program that reads nothing".to_owned(), insns, ..UserProgram::default() };
    let uses = analyse(&program).map_err(|refusal| refusal.to_string())?;
    let form = Form { kind: Section::KprobeMaybeInline, sleepable: false };
    let options = PlanOptions { policy: Some(Policy::BestEffort), form, ..PlanOptions::default() };
    let planned = match plan(std::slice::from_ref(function), &program, &uses, target.kernel(), options) {
        Err(PlanError::Nothing { .. }) => return Ok(vec![false; function.candidates.len()]),
        planned => planned?,
    };
    if planned.sites.len() != function.candidates.len() {
        return Err(format!(
            "{}: {} sites are planned of {}",
            function.name,
            planned.sites.len(),
            function.candidates.len()
        )
        .into());
    }
    Ok(planned.sites.iter().map(|site| matches!(site.decision, Decision::Attach { .. })).collect())
}

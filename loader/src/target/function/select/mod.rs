// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which of the functions of one name is meant.
//!
//! Several functions may have one name. Two things tell them apart: the prototype, which the program states (see
//! [`crate::program::declared`]), and the file that declares the function. What is shown to be another function is
//! left out, and kept in [`Function::left_out`] for the report. What cannot be shown to be either stays a candidate,
//! with the reason why it is not attached: under the policy `complete` it is in the way, since it might be the
//! function that is meant.

use super::{Candidate, Function, Place, Prototype};
use crate::program::declared::{Declared, Difference};
use crate::site::reason::Reason;
use std::collections::BTreeSet;
use std::fmt;

/// What tells the function that is meant from others of its name. The default takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The file that declares it, or the last components of its path: `kernel/capability.c`.
    pub file: Option<String>,
    /// The prototype that the program states.
    pub prototype: Option<Declared>,
}

/// A function among several of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// Its prototype, as C text.
    pub prototype: String,
    /// Where functions with it are declared.
    pub declared: Vec<Place>,
    /// What follows the program's name in `SITESEER_PROTO()` for a program that means it.
    pub statement: String,
}

impl Namesake {
    /// What a prototype says about the functions that have it.
    pub fn of(prototype: &Prototype) -> Namesake {
        Namesake {
            prototype: prototype.text.clone(),
            declared: prototype.declared.clone(),
            statement: prototype.statement.clone(),
        }
    }
}

impl fmt::Display for Namesake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prototype)?;
        for (nth, place) in self.declared.iter().enumerate() {
            write!(f, "{}{}:{}", if nth == 0 { " in " } else { ", " }, place.file, place.line)?;
        }
        Ok(())
    }
}

/// Functions of the name that are not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// What they are.
    pub namesake: Namesake,
    /// How many sites they have.
    pub sites: usize,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} site{})", self.namesake, self.sites, if self.sites == 1 { "" } else { "s" })
    }
}

/// Why no function of the name is the one that is meant.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// None has the prototype that the program states.
    #[error("no function {function} is {stated}, as the program states by SITESEER_PROTO: {}", differences(namesakes))]
    Prototype {
        /// The name.
        function: String,
        /// What the program states.
        stated: String,
        /// The functions that there are, and where each differs first from what is stated.
        namesakes: Vec<(Namesake, Difference)>,
    },
    /// None is declared in the file.
    #[error(
        "no function {function} is known to be declared in {file}{}",
        if files.is_empty() { String::new() } else { format!("; declared in {}", files.join(", ")) }
    )]
    File {
        /// The name.
        function: String,
        /// The file that was asked for.
        file: String,
        /// The files that declare functions of the name, as far as is known.
        files: Vec<String>,
    },
    /// Several files are meant.
    #[error("{file} may be any of {}: name more of the path of the one that declares {function}", files.join(", "))]
    SeveralFiles {
        /// The name.
        function: String,
        /// The file that was asked for.
        file: String,
        /// The files that declare functions of the name and have such a path.
        files: Vec<String>,
    },
}

fn differences(namesakes: &[(Namesake, Difference)]) -> String {
    if namesakes.is_empty() {
        return "the prototype of none is known".to_owned();
    }
    namesakes.iter().map(|(namesake, difference)| format!("\n  {namesake}: {difference}")).collect()
}

/// Whether a file's path ends with the given components.
fn is_path(file: &str, wanted: &str) -> bool {
    let components = |path: &str| -> Vec<String> {
        path.split('/').filter(|word| !matches!(*word, "" | ".")).map(str::to_owned).collect()
    };
    let (file, wanted) = (components(file), components(wanted));
    !wanted.is_empty() && file.ends_with(&wanted)
}

/// What is known about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Meant,
    Another,
    Unknown,
}

impl Function {
    /// Whether a program that is written for one of the known prototypes fits all of them.
    pub fn prototypes_agree(&self) -> bool {
        let sizes = |prototype: &Prototype| prototype.parameters.iter().map(|p| (p.size, p.slots)).collect::<Vec<_>>();
        let mut known = self.known_prototypes();
        let Some(first) = known.next() else { return true };
        known.all(|other| {
            let types = match (&first.signature, &other.signature) {
                (Some(one), Some(other)) => one.difference(other).is_none(),
                _ => false,
            };
            types && sizes(first) == sizes(other)
        })
    }

    /// Keeps what is meant, and what may be.
    ///
    /// # Errors
    /// [`SelectError`] if nothing is left, or several files fit.
    pub fn select(mut self, selection: &Selection) -> Result<Function, SelectError> {
        if let Some(stated) = &selection.prototype {
            self = self.select_prototype(stated)?;
        }
        if let Some(file) = &selection.file {
            self = self.select_file(file)?;
        }
        Ok(self)
    }

    fn select_prototype(self, stated: &Declared) -> Result<Function, SelectError> {
        let compared: Vec<Option<Option<Difference>>> = self
            .prototypes
            .iter()
            .map(|prototype| prototype.signature.as_ref().map(|signature| stated.signature.difference(signature)))
            .collect();
        if !compared.contains(&Some(None)) {
            let namesakes = self.prototypes.iter().zip(compared);
            return Err(SelectError::Prototype {
                function: self.name.clone(),
                stated: stated.text.clone(),
                namesakes: namesakes
                    .filter_map(|(prototype, difference)| Some((Namesake::of(prototype), difference??)))
                    .collect(),
            });
        }
        Ok(self.keep(
            |_, candidate| match compared.get(candidate.prototype) {
                Some(Some(None)) => Verdict::Meant,
                Some(Some(Some(_))) => Verdict::Another,
                Some(None) | None => Verdict::Unknown,
            },
            &Reason::PrototypeUnknown,
        ))
    }

    fn select_file(self, wanted: &str) -> Result<Function, SelectError> {
        let declared = |of: &Function| -> BTreeSet<String> {
            let places = of.prototypes.iter().flat_map(|prototype| &prototype.declared);
            places.map(|place| place.file.clone()).collect()
        };
        let files = declared(&self);
        let fitting: Vec<String> = files.iter().filter(|file| is_path(file, wanted)).cloned().collect();
        let (function, file) = (self.name.clone(), wanted.to_owned());
        match fitting.len() {
            0 => return Err(SelectError::File { function, file, files: files.into_iter().collect() }),
            1 => {}
            _ => return Err(SelectError::SeveralFiles { function, file, files: fitting }),
        }
        let verdict = |is_meant: bool| if is_meant { Verdict::Meant } else { Verdict::Another };
        Ok(self.keep(
            |function, candidate| {
                if let Some(place) = &candidate.declared {
                    return verdict(is_path(&place.file, wanted));
                }
                // A body that is not in the site data belongs to a function that is, if there is only one such
                // function.
                let places = function.prototypes.get(candidate.prototype).map_or(&[][..], |known| &known.declared);
                if !places.is_empty() && places.iter().all(|place| is_path(&place.file, wanted)) {
                    Verdict::Meant
                } else {
                    Verdict::Unknown
                }
            },
            &Reason::FileUnknown,
        ))
    }

    /// Applies a verdict to each candidate; the reason is for those about which nothing is known.
    fn keep(mut self, verdict: impl Fn(&Function, &Candidate) -> Verdict, unknown: &Reason) -> Function {
        let candidates = std::mem::take(&mut self.candidates);
        let mut kept: Vec<Candidate> = Vec::with_capacity(candidates.len());
        let mut others: Vec<Candidate> = Vec::new();
        for mut candidate in candidates {
            match verdict(&self, &candidate) {
                Verdict::Meant => kept.push(candidate),
                Verdict::Another => others.push(candidate),
                Verdict::Unknown => {
                    candidate.obstacle.get_or_insert_with(|| unknown.clone());
                    kept.push(candidate);
                }
            }
        }
        let places = |of: &[Candidate], prototype: usize| {
            let mut places: Vec<Place> = Vec::new();
            for place in of.iter().filter(|one| one.prototype == prototype).filter_map(|one| one.declared.as_ref()) {
                if !places.contains(place) {
                    places.push(place.clone());
                }
            }
            places
        };
        // Prototypes that none of the remaining candidates has are no longer the function's.
        let mut number: Vec<Option<usize>> = Vec::with_capacity(self.prototypes.len());
        let mut prototypes = Vec::new();
        for (index, prototype) in self.prototypes.iter().enumerate() {
            let sites = others.iter().filter(|other| other.prototype == index).count();
            if sites > 0 {
                let mut namesake = Namesake::of(prototype);
                namesake.declared = places(&others, index);
                self.left_out.push(LeftOut { namesake, sites });
            }
            if kept.iter().any(|candidate| candidate.prototype == index) {
                number.push(Some(prototypes.len()));
                let mut prototype = prototype.clone();
                if sites > 0 {
                    prototype.declared = places(&kept, index);
                }
                prototypes.push(prototype);
            } else {
                number.push(None);
            }
        }
        for candidate in &mut kept {
            if let Some(Some(new)) = number.get(candidate.prototype) {
                candidate.prototype = *new;
            }
        }
        self.prototypes = prototypes;
        self.candidates = kept;
        self
    }
}

#[cfg(test)]
mod tests;

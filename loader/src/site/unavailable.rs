// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a program cannot have an argument at a site.
//!
//! Either the site has no location for it, or the location is doubtful and the application did not accept doubt. The
//! two are told apart here and nowhere else: for everything that follows a doubtful argument is a missing one.

use siteseer_sites::Doubt;
use siteseer_sites::location::{Argument, Located, Missing};
use std::fmt;

/// Why a program cannot have an argument at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unavailable {
    /// The site has no location for it.
    Missing(Missing),
    /// Its location may be wrong, and doubt was not accepted
    /// ([`AttachOptions::accept_doubt`](crate::AttachOptions::accept_doubt)).
    Doubtful(Doubt),
}

impl Unavailable {
    /// A stable identifier for machines: that of the [`Missing`], or `doubtful`.
    pub fn key(self) -> &'static str {
        match self {
            Unavailable::Missing(why) => why.key(),
            Unavailable::Doubtful(_) => "doubtful",
        }
    }

    /// Whether an application that accepts doubt would have the argument.
    pub fn is_doubt(self) -> bool {
        matches!(self, Unavailable::Doubtful(_))
    }
}

impl From<Missing> for Unavailable {
    fn from(why: Missing) -> Unavailable {
        Unavailable::Missing(why)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Missing(why) => why.fmt(f),
            Unavailable::Doubtful(why) => write!(f, "doubtful: {why}"),
        }
    }
}

/// A parameter that a program reads from a doubtful location, because doubt was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DoubtfulArgument {
    /// Index of the parameter.
    pub index: usize,
    /// Its name, if the prototype has one.
    pub name: String,
    /// Why the value may be wrong.
    pub why: Doubt,
}

impl fmt::Display for DoubtfulArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "argument {} is doubtful: {}", self.index, self.why),
            name => write!(f, "{name} is doubtful: {}", self.why),
        }
    }
}

/// The location that a program may use, or why it has none.
///
/// # Errors
/// Why the argument is not available.
pub fn available(argument: &Argument, accept_doubt: bool) -> Result<&Located, Unavailable> {
    let located = argument.as_ref().map_err(|why| Unavailable::Missing(*why))?;
    match located.doubt {
        Some(doubt) if !accept_doubt => Err(Unavailable::Doubtful(doubt)),
        _ => Ok(located),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::Location;

    #[test]
    fn doubt_counts_as_missing_unless_it_is_accepted() {
        let certain = Located::certain(8, false, Location::Register(5));
        for doubt in Doubt::ALL {
            let doubtful = Ok(certain.clone().doubtful(doubt));
            assert_eq!(available(&doubtful, false), Err(Unavailable::Doubtful(doubt)));
            assert_eq!(available(&doubtful, true), doubtful.as_ref().map_err(|why| Unavailable::Missing(*why)));
        }
        for accept in [false, true] {
            assert_eq!(available(&Ok(certain.clone()), accept), Ok(&certain));
            assert_eq!(
                available(&Err(Missing::Empty), accept),
                Err(Unavailable::Missing(Missing::Empty)),
                "accepting doubt makes no location"
            );
        }
    }
}

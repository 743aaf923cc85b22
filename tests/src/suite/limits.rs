// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What stands in the way of a program, as a case's table names it, and which part has that limit.
//!
//! "Unsupported" is an answer only where it is the kernel's or the debug information's limit. This is the one place
//! that says so; what is not in the table is ours, and a failure.

use serde::{Deserialize, Serialize};
use siteseer::{AttachError, InTheWay, PlanError, Reason, Refusal, TargetError, Unavailable};
use siteseer_sites::location::Missing;
use siteseer_sites::with_causes;
use std::fmt;

/// Which part has the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The kernel cannot do it, or does not let anyone.
    Kernel,
    /// The compiler's debug information does not have it.
    DebugInformation,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Kernel => "the kernel",
            Limit::DebugInformation => "the debug information",
        })
    }
}

/// A reason for which a program is not attached, at a site or at all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InWay {
    /// Its key.
    pub key: String,
    /// Whether it is a limit of the kernel or of the debug information.
    pub is_limit: bool,
    /// In words, with the site.
    pub text: String,
}

use Limit::{DebugInformation, Kernel};

/// Every reason, and which part has that limit; none if it is ours, or no limit at all.
const REASONS: &[(&str, Option<Limit>)] = &[
    // The sentences of Unprobeable.
    ("init", Some(Kernel)),
    ("exit", Some(Kernel)),
    ("noinstr", Some(Kernel)),
    ("entry", Some(Kernel)),
    ("blacklisted", Some(Kernel)),
    ("notrace", Some(Kernel)),
    ("ends_module", Some(Kernel)),
    ("risky", Some(Kernel)),
    ("jump_label", Some(Kernel)),
    ("static_call", Some(Kernel)),
    ("bug", Some(Kernel)),
    // A probe there would be a mistake in the site data.
    ("not_an_instruction", None),
    ("cfi_preamble", None),
    ("not_text", None),
    // The kernel keeps where the section is to itself.
    ("unplaced", Some(Kernel)),
    ("unsteppable", Some(Kernel)),
    // Only where each argument is missing for a reason of `is_gone`.
    ("missing_arguments", Some(DebugInformation)),
    ("entry_uncertain", Some(DebugInformation)),
    ("may_repeat", Some(DebugInformation)),
    ("may_miss", Some(DebugInformation)),
    ("no_location_data", None),
    ("no_prototype", Some(DebugInformation)),
    ("prototype_unknown", None),
    ("file_unknown", None),
    ("symbol_mismatch", None),
    ("outside_symbol", None),
    ("code_differs", None),
    ("in_module", None),
    ("no_mechanism", Some(Kernel)),
    ("exit_of_inline", Some(DebugInformation)),
    ("no_exit", Some(Kernel)),
    ("return_removed", Some(DebugInformation)),
    ("sleepable", Some(Kernel)),
    ("tail_called", Some(Kernel)),
    ("extended", Some(Kernel)),
    ("only_tracing", Some(Kernel)),
    ("redirected", Some(Kernel)),
    ("live_patched", Some(Kernel)),
    ("kernel", Some(Kernel)),
    ("refused.no_rdonly_cast", Some(Kernel)),
    ("refused.no_rdonly_cast_of_return", Some(Kernel)),
    ("refused.foreign_type", Some(Kernel)),
    ("refused.foreign_type_of_return", Some(Kernel)),
    ("refused.no_session", Some(Kernel)),
    ("refused.helper_not_allowed", Some(Kernel)),
    // Of the program as a whole.
    ("ambiguous", None),
    ("not_selected", None),
    ("unknown_function", None),
    ("verifier", None),
];

/// Whether a key is one that a case's table may name.
pub fn is_reason(key: &str) -> bool {
    let refusal = |prefix| key.strip_prefix(prefix).is_some_and(|name: &str| !name.is_empty());
    REASONS.iter().any(|(name, _)| *name == key) || ["refused.", "program.", "prototype."].into_iter().any(refusal)
}

/// Which part can have the limit that a reason is, if it can be one.
pub fn limit(key: &str) -> Option<Limit> {
    REASONS.iter().find(|(name, _)| *name == key).and_then(|(_, limit)| *limit)
}

/// Whether a reason can be a limit of the kernel or of the debug information.
pub fn can_be_a_limit(key: &str) -> bool {
    limit(key).is_some()
}

/// Whether an argument that is missing so is one that the debug information does not have; else it is one that we
/// cannot make use of.
fn is_gone(why: Missing) -> bool {
    match why {
        Missing::NotMentioned
        | Missing::OptimisedOut
        | Missing::NotAtEntry
        | Missing::Empty
        | Missing::EntryValue
        | Missing::ImplicitPointer
        | Missing::Partial
        | Missing::NoFrame
        | Missing::AfterEntry
        | Missing::Removed
        | Missing::Unread
        | Missing::Cleared
        | Missing::Home
        | Missing::Overwritten => true,
        Missing::Reference | Missing::Unsupported | Missing::Malformed | Missing::NoType | Missing::Unknown => false,
    }
}

/// A refusal's own name: that of its variant, in small letters.
fn name_of(refusal: &Refusal) -> String {
    let debug = format!("{refusal:?}");
    let variant = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// The key of a reason, and whether it is a limit here.
pub fn of_reason(reason: &Reason) -> (String, bool) {
    let key = match reason {
        Reason::Refused(refusal) => format!("refused.{}", name_of(refusal)),
        other => other.key().to_owned(),
    };
    let is_limit = match reason {
        Reason::MissingArguments(arguments) => arguments.iter().all(|argument| match argument.why {
            Unavailable::Missing(why) => is_gone(why),
            // What the debug information gets wrong is its limit.
            Unavailable::Doubtful(_) => true,
            _ => false,
        }),
        _ => can_be_a_limit(&key),
    };
    (key, is_limit)
}

fn of_site(site: &InTheWay) -> InWay {
    let (key, is_limit) = of_reason(&site.reason);
    InWay { key, is_limit, text: site.to_string() }
}

/// What is in the way, of an attempt to attach that failed. None if it did not fail because something is in the way:
/// that is not an answer to a program, but an error.
pub fn of_error(error: &AttachError) -> Option<Vec<InWay>> {
    let whole = |key: String| Some(vec![InWay { key, is_limit: false, text: with_causes(&error) }]);
    match error {
        AttachError::Plan(PlanError::Nothing { sites, .. } | PlanError::Incomplete { sites, .. }) => {
            Some(sites.iter().map(of_site).collect())
        }
        AttachError::Plan(PlanError::Ambiguous { .. }) => whole("ambiguous".to_owned()),
        AttachError::Plan(PlanError::Program { refusal, .. }) => whole(format!("program.{}", name_of(refusal))),
        AttachError::Plan(PlanError::Prototype { refusal, .. }) => whole(format!("prototype.{}", name_of(refusal))),
        AttachError::Select(_) => whole("not_selected".to_owned()),
        AttachError::Verifier { .. } => whole("verifier".to_owned()),
        AttachError::Target(TargetError::Unknown { .. } | TargetError::UnknownInModule { .. }) => {
            whole("unknown_function".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer::MissingArgument;

    fn missing(why: Missing) -> Reason {
        Reason::MissingArguments(vec![
            MissingArgument { index: 0, name: "a".to_owned(), why: Missing::OptimisedOut.into() },
            MissingArgument { index: 1, name: "b".to_owned(), why: why.into() },
        ])
    }

    #[test]
    fn a_location_that_we_cannot_use_is_ours() {
        assert_eq!(of_reason(&missing(Missing::Removed)), ("missing_arguments".to_owned(), true));
        assert_eq!(of_reason(&missing(Missing::Unsupported)), ("missing_arguments".to_owned(), false));
    }

    #[test]
    fn doubt_is_a_limit_of_the_debug_information() {
        let argument = |why| MissingArgument { index: 0, name: "a".to_owned(), why };
        for doubt in siteseer_sites::Doubt::ALL {
            let doubtful = Reason::MissingArguments(vec![argument(Unavailable::Doubtful(doubt))]);
            assert_eq!(of_reason(&doubtful), ("missing_arguments".to_owned(), true));
        }
    }

    #[test]
    fn refusals_have_their_own_names() {
        let no_cast = Reason::Refused(Refusal::NoRdonlyCast { parameter: 1 });
        assert_eq!(of_reason(&no_cast), ("refused.no_rdonly_cast".to_owned(), true));
        let complex = Reason::Refused(Refusal::TooComplex);
        assert_eq!(of_reason(&complex), ("refused.too_complex".to_owned(), false));
    }

    #[test]
    fn the_keys_are_those_of_the_library() {
        for reason in [
            Reason::Blacklisted,
            Reason::Notrace,
            Reason::EndsModule,
            Reason::Risky("the kernel calls it"),
            Reason::EntryUncertain,
            Reason::MayRepeat,
            Reason::MayMiss,
            Reason::NoLocationData,
            Reason::NoPrototype,
            Reason::PrototypeUnknown,
            Reason::FileUnknown,
            Reason::SymbolMismatch,
            Reason::OutsideSymbol,
            Reason::CodeDiffers,
            Reason::NoMechanism,
            Reason::ExitOfInline,
            Reason::ReturnRemoved,
            Reason::Sleepable,
            Reason::OnlyTracing,
            missing(Missing::Empty),
        ] {
            assert!(is_reason(&of_reason(&reason).0), "{reason:?}");
        }
        for why in siteseer_sites::site::Unprobeable::ALL {
            assert!(is_reason(why.key()), "{}", why.key());
        }
        assert!(!is_reason("any") && !is_reason("refused.") && !can_be_a_limit("in_module"));
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the structures and numbers of `siteseer.h` are here, for the test that compares.

use crate::{argument, changes, link, options, report};

/// A structure: its name in C, its size, and its members in order with their offsets.
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

macro_rules! layout {
    ($name:literal, $structure:ty { $($member:ident),* $(,)? }) => {
        ($name, size_of::<$structure>(), &[$((stringify!($member), std::mem::offset_of!($structure, $member))),*])
    };
}
pub(crate) use layout;

/// All structures.
pub const LAYOUT: &[Layout] = &[
    options::SOURCE_OPTS,
    options::REGISTER_OPTS,
    options::ATTACH_OPTS,
    link::COST,
    changes::GONE,
    changes::TAIL_SLOT,
    report::COUNTS,
    report::SITE_INFO,
    argument::ARGUMENT_INFO,
];

/// All enumerators.
pub const CONSTANTS: &[(&str, u32)] = &[
    ("SITESEER_WARN", 0),
    ("SITESEER_INFO", 1),
    ("SITESEER_DEBUG", 2),
    ("SITESEER_POLICY_DEFAULT", 0),
    ("SITESEER_POLICY_COMPLETE", 1),
    ("SITESEER_POLICY_BEST_EFFORT", 2),
    ("SITESEER_POLICY_AT_LEAST_LIBBPF", 3),
    ("SITESEER_PAIRING_DEFAULT", 0),
    ("SITESEER_PAIRING_TOGETHER", 1),
    ("SITESEER_PAIRING_APART", 2),
    ("SITESEER_TEXT_LONG", report::LONG),
    ("SITESEER_KIND_BODY", 0),
    ("SITESEER_KIND_CLONE", 1),
    ("SITESEER_KIND_INLINE", 2),
    ("SITESEER_SITES_RETURN", 1),
    argument::LOCATIONS[0],
    argument::LOCATIONS[1],
    argument::LOCATIONS[2],
    argument::LOCATIONS[3],
    argument::LOCATIONS[4],
    argument::LOCATIONS[5],
    argument::LOCATIONS[6],
    argument::LOCATIONS[7],
];

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is in which column. The numbers are part of the format.

use super::coder::Column;
use super::types::PER_BTF;

/// The columns of the types of `.BTF`, and of `.BTF.inline`.
pub(super) const BTF: usize = 0;
pub(super) const INLINE: usize = PER_BTF;

const fn at(nth: usize) -> Column {
    Column(2 * PER_BTF + nth)
}

/// Kinds of files, and lengths.
pub(super) const CONTROL: Column = at(0);
/// What has no columns of its own: whole files, build ids, layouts.
pub(super) const RAW: Column = at(1);
/// Strings of BTF.
pub(super) const STRINGS: Column = at(2);
pub(super) const EXT_STRINGS: Column = at(3);
pub(super) const PROGRAMS: Column = at(4);
pub(super) const PROTOTYPES: Column = at(5);
pub(super) const FILES: Column = at(6);
/// Of a declaration: file, line.
pub(super) const DECLARATIONS: [Column; 2] = [at(7), at(8)];
/// Of a record of details: prototype, then the four codes as one word.
pub(super) const DETAILS: [Column; 2] = [at(9), at(10)];
/// Of a container: name, low and high half of the address, size, code.
pub(super) const CONTAINERS: [Column; 5] = [at(11), at(12), at(13), at(14), at(15)];
/// The words of a text section, and of a loaded section.
pub(super) const SECTIONS: [Column; 8] = [at(16), at(17), at(18), at(19), at(20), at(21), at(22), at(23)];
pub(super) const LOADED: [Column; 5] = [at(24), at(25), at(26), at(27), at(28)];
/// Functions that have no sites.
pub(super) const WITHOUT_SITES: Column = at(29);

/// Of a site.
pub(super) const OFFSET: Column = at(32);
pub(super) const FUNC: Column = at(33);
pub(super) const PROTO: Column = at(34);
pub(super) const PARENT: Column = at(35);
pub(super) const SITE_DETAILS: Column = at(36);
pub(super) const CONTAINER: Column = at(37);
pub(super) const LINE_IS_OTHER: Column = at(38);
pub(super) const LINE: Column = at(39);
pub(super) const FILE_IS_OTHER: Column = at(40);
pub(super) const FILE: Column = at(41);
pub(super) const DECLARATION: Column = at(42);

/// What a column is part of, in words.
pub(super) fn name(number: usize) -> &'static str {
    let is = |columns: &[Column]| columns.iter().any(|Column(column)| *column == number);
    match number {
        _ if number < INLINE => "types of .BTF",
        _ if number < 2 * PER_BTF => "types of .BTF.inline",
        _ if is(&[STRINGS, EXT_STRINGS]) => "strings",
        _ if is(&CONTAINERS) => "containers",
        _ if is(&[PROGRAMS, PROTOTYPES]) || is(&DETAILS) => "locations",
        _ if is(&[OFFSET, CONTAINER]) => "offsets",
        _ if is(&[FUNC]) => "functions",
        _ if is(&[PROTO, SITE_DETAILS]) => "prototypes",
        _ if is(&[PARENT]) => "parents",
        _ if is(&[LINE_IS_OTHER, LINE, FILE_IS_OTHER, FILE, DECLARATION]) || is(&DECLARATIONS) => "lines",
        _ => "rest",
    }
}

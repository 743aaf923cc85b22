// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Gives a section of a site file another name, as one wrong bit does.

/// Changes the last letter.
pub(crate) fn rename_section(data: &mut [u8], section: &str) {
    let name = format!("{section}\0");
    let at = data.windows(name.len()).rposition(|bytes| bytes == name.as_bytes()).expect("the section is there");
    data[at + section.len() - 1] ^= 1;
}

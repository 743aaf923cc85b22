// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Small images of kernels that the machine's compilers made when this was built: `shapes.c`, with BTF and DWARF.

/// An image, and the compiler and options that it was made by.
pub struct Image {
    /// Such as `gcc-5-O2`.
    pub name: &'static str,
    /// The ELF file.
    pub bytes: &'static [u8],
    /// Where its sections are in the file, by name.
    pub sections: &'static [(&'static str, std::ops::Range<usize>)],
}

impl Image {
    /// Where sections are in the file: those of these names that the image has.
    pub fn sections(&self, names: &[&str]) -> Vec<std::ops::Range<usize>> {
        let range =
            |name: &&str| self.sections.iter().find(|(section, _)| section == name).map(|(_, range)| range.clone());
        names.iter().filter_map(range).collect()
    }
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

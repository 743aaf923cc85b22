// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Whether a kernel has site data of its own.

use std::{fs, path::Path};

use object::Object;

use crate::{config::is_inline_option, debian::headers, record::KernelPaths};

/// How a kernel in the cache shows that it has site data of its own: CONFIG_DEBUG_INFO_BTF_INLINE in its configuration,
/// which is known if modules were built for it, or the section `.BTF.inline`. `None` if neither shows it.
pub fn own_site_data(kernel: &KernelPaths) -> Option<String> {
    let config = headers::config(kernel).unwrap_or_default();
    let option = config.lines().find(|line| is_inline_option(line)).map(str::to_owned);
    option.or_else(|| has_inline_section(&kernel.vmlinux).then(|| "section .BTF.inline".to_owned()))
}

/// Whether an image has the section with site data.
fn has_inline_section(image: &Path) -> bool {
    let Ok(file) = fs::File::open(image) else { return false };
    let cache = object::ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|image| image.section_by_name(".BTF.inline").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch::Arch, record::KernelRecord};

    #[test]
    fn site_data_of_its_own_shows_in_the_configuration_or_in_the_image() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        let image = |section: &str| {
            let (format, machine, order) =
                (object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
            let mut image = object::write::Object::new(format, machine, order);
            image.add_section(Vec::new(), section.into(), object::SectionKind::Other);
            image.write().unwrap()
        };
        let record = KernelRecord {
            name: "k".to_owned(),
            arch: Arch::X86_64,
            release: "7.4".to_owned(),
            build_id: String::new(),
            suite: "s".to_owned(),
            packages: Vec::new(),
            build: None,
        };
        let file = |name: &str| directory.path().join(name);
        let kernel = KernelPaths {
            name: "k".to_owned(),
            directory: directory.path().to_owned(),
            vmlinuz: file("vmlinuz"),
            vmlinux: file("vmlinux"),
            record,
        };
        assert_eq!(own_site_data(&kernel), None);
        write("vmlinux", &image(".BTF"));
        write("headers/headers.json", br#"{"common":"c","objects":"headers/o","packages":[]}"#);
        write("headers/o/.config", b"CONFIG_DEBUG_INFO_BTF=y\n# CONFIG_DEBUG_INFO_BTF_INLINE is not set\n");
        assert_eq!(own_site_data(&kernel), None);
        write("vmlinux", &image(".BTF.inline"));
        assert_eq!(own_site_data(&kernel).as_deref(), Some("section .BTF.inline"));
        write("headers/o/.config", b"CONFIG_DEBUG_INFO_BTF=y\nCONFIG_DEBUG_INFO_BTF_INLINE=m\n");
        assert_eq!(own_site_data(&kernel).as_deref(), Some("CONFIG_DEBUG_INFO_BTF_INLINE=m"));
    }
}

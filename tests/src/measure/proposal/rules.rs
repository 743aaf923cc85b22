// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kernel's rules ([`siteseer_sites::btf::rules`]) on what the encoder writes: of kernels' images, and of their
//! modules. And how large this is.

use object::{Object, ObjectSection};
use siteseer_encoder::{BaseKernel, Options};
use siteseer_sites::btf::{Btf, Kind, rules};
use siteseer_sites::file;
use std::error::Error;
use std::fs;
use std::path::Path;

/// The columns.
pub const HEADER: [&str; 10] = [
    "kernel",
    "site files of",
    "sites",
    "types in .BTF",
    "types in .BTF.inline",
    "bytes of .BTF.inline",
    "a site",
    "gzip -9, a site",
    "median file",
    "violations",
];

/// How many violations are told.
const TOLD: usize = 5;

/// What was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sites.
    pub sites: usize,
    /// Types of the images or modules.
    pub types: usize,
    /// Types of the sites.
    pub inline_types: usize,
    /// Bytes of each `.BTF.inline`.
    pub bytes: Vec<usize>,
    /// Bytes of all of them, compressed one by one.
    pub compressed: usize,
    /// Violations.
    pub violations: usize,
    /// The first of them, in words.
    pub told: Vec<String>,
}

impl Counts {
    /// Takes another's together with these.
    pub fn add(&mut self, other: Counts) {
        self.sites += other.sites;
        self.types += other.types;
        self.inline_types += other.inline_types;
        self.bytes.extend(other.bytes);
        self.compressed += other.compressed;
        self.violations += other.violations;
        self.told.extend(other.told);
        self.told.truncate(TOLD);
    }

    /// A row of the table.
    pub fn row(&self, kernel: &str, of: String) -> Vec<String> {
        let Counts { sites, types, inline_types, compressed, violations, .. } = self;
        let bytes: usize = self.bytes.iter().sum();
        let a_site = |bytes: usize| format!("{:.1}", bytes as f64 / (*sites).max(1) as f64);
        let mut sorted = self.bytes.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        let numbers = [*sites, *types, *inline_types, bytes].map(|number| number.to_string());
        let sizes = [a_site(bytes), a_site(*compressed), median.to_string(), violations.to_string()];
        [kernel.to_owned(), of].into_iter().chain(numbers).chain(sizes).collect()
    }

    /// Checks some BTF.
    fn check(&mut self, what: &str, data: &[u8], base: Option<&Btf<'_>>) -> Result<(), Box<dyn Error>> {
        let found = rules::check(data, base).map_err(|error| format!("{what}: {error}"))?;
        self.violations += found.len();
        self.told.extend(found.iter().take(TOLD).map(|violation| format!("{what}: {violation}")));
        self.told.truncate(TOLD);
        Ok(())
    }
}

/// Encodes an image, or a module over the types of a kernel, and checks the site file.
///
/// # Errors
/// If it cannot be read or encoded, or the site file cannot be read.
pub fn check(path: &Path, kernel: Option<BaseKernel<'_>>) -> Result<Counts, Box<dyn Error>> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let image = fs::read(path).map_err(|error| failed(&error))?;
    let (set, _) =
        siteseer_encoder::encode(&image, &Options { kernel, ..Options::default() }).map_err(|error| failed(&error))?;
    drop(image);
    let bytes = file::write(&set).map_err(|error| failed(&error))?;
    drop(set);
    check_file(&bytes, kernel.map(|kernel| kernel.types.btf())).map_err(|error| failed(&error).into())
}

/// Checks a site file: its types, over the kernel's if it is a module's, and its sites over those.
fn check_file(site_file: &[u8], base: Option<&Btf<'_>>) -> Result<Counts, Box<dyn Error>> {
    let elf = object::File::parse(site_file)?;
    let section = |name: &str| -> Result<&[u8], Box<dyn Error>> {
        Ok(elf.section_by_name(name).ok_or_else(|| format!("no section {name}"))?.data()?)
    };
    let (own, inline) = (section(".BTF")?, section(".BTF.inline")?);
    let mut counts = Counts::default();
    counts.check(".BTF", own, base)?;
    let own = match base {
        Some(base) => Btf::parse_split(own, base)?,
        None => Btf::parse(own)?,
    };
    counts.check(".BTF.inline", inline, Some(&own))?;
    let split = Btf::parse_split(inline, &own)?;
    counts.types = (own.end_id() - own.first_id()) as usize;
    counts.bytes = vec![inline.len()];
    counts.compressed = super::compressed(inline)?;
    counts.inline_types = (split.end_id() - split.first_id()) as usize;
    counts.sites = split.types().filter(|ty| ty.kind() == Kind::Locsec).map(|ty| ty.locsec().len()).sum();
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::{IntEncoding, Linkage, LocsecEntry, SplitBtf, loc_flags};

    /// An ELF file with two sections, as a site file has them.
    fn site_file(btf: &[u8], inline: &[u8]) -> Vec<u8> {
        use object::write::Object;
        let (format, machine, order) =
            (object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
        let mut file = Object::new(format, machine, order);
        for (name, data) in [(".BTF", btf), (".BTF.inline", inline)] {
            let section = file.add_section(Vec::new(), name.into(), object::SectionKind::Other);
            file.append_section_data(section, data, 8);
        }
        file.write().unwrap()
    }

    #[test]
    fn violations_are_counted_and_told() {
        let mut types = SplitBtf::standalone();
        let int = types.int("int", 4, 32, IntEncoding::SIGNED);
        let proto = types.func_proto(int, &[("only", int)], false);
        let func = types.func("foo", proto, Linkage::Static);
        let types = types.to_bytes();
        let base = Btf::parse(&types).unwrap();
        let counts = |flags| {
            let mut sites = SplitBtf::new(&base);
            let param = sites.loc_param(4, flags, &[5]);
            let proto = sites.loc_proto(&[param]);
            sites.locsec("inline.text", &[LocsecEntry::new(func, proto, 0x40), LocsecEntry::new(func, proto, 0x80)]);
            check_file(&site_file(&types, &sites.to_bytes()), None).unwrap()
        };
        let clean = counts(loc_flags::REG);
        let [bytes] = clean.bytes[..] else { panic!("{:?}", clean.bytes) };
        assert_eq!((clean.sites, clean.types, clean.inline_types, clean.violations), (2, 3, 3, 0));
        let mut wrong = counts(loc_flags::REG | loc_flags::SIGNED);
        assert_eq!(wrong.violations, 1);
        assert!(wrong.told[0].contains("btf_loc_param_check_meta"), "{:?}", wrong.told);
        wrong.add(clean);
        let row = wrong.row("k", "images".to_owned());
        assert_eq!(row[..6], ["k", "images", "4", "6", "6", &(2 * bytes).to_string()]);
        let a_site = format!("{:.1}", bytes as f64 / 2.0);
        assert_eq!((&row[6], &row[8..]), (&a_site, &[bytes.to_string(), "1".to_owned()][..]));
    }
}

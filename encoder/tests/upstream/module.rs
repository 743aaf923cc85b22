// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A module, which is compiled here: a relocatable file with BTF over the kernel's.
//!
//! Its functions are those that upstream tests its encoder with (`tests/btf_inline.sh` of dwarves): parameters in
//! registers, constants, an address, values that were computed, a function that is inlined once and one that is inlined
//! twice.

use crate::compare;
use crate::reader::Reader;
use siteseer_encoder::{BaseKernel, KernelTypes, Options, encode};
use siteseer_sites::btf::{Btf, IntEncoding, SplitBtf};
use siteseer_sites::location::Located;
use siteseer_sites::{Location, SiteKind, SiteSet, file};
use std::process::Command;

const SOURCE: &str = r#"
long offset = 10;
volatile long effect;
static inline __attribute__((always_inline)) long scale(long value, long factor)
{ effect = value * factor; return value * factor; }
static inline __attribute__((always_inline)) long add_bias(long value, int bias)
{ effect = value; return value + bias; }
static inline __attribute__((always_inline)) long add_global(const long *global, long value)
{ effect = *global; return value + *global; }
static inline __attribute__((always_inline)) long combine(long first, long second)
{ effect = second; return scale(first, 3) + add_bias(second, -7); }
long wrapper_once(long first, long second) { return combine(first, second); }
long wrapper_twice(long first) { return add_global(&offset, scale(first, 4)) + add_global(&offset, add_bias(first, 100)); }
"#;

/// The functions that are inlined, and in how many places.
const COPIES: [(&str, usize); 4] = [("add_bias", 2), ("add_global", 2), ("combine", 1), ("scale", 2)];

/// The BTF of a kernel with the types of the program, and the program as a module over it.
fn module() -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut kernel = SplitBtf::standalone();
    kernel.int("int", 4, 32, IntEncoding::SIGNED);
    kernel.int("long int", 8, 64, IntEncoding::SIGNED);
    let kernel = kernel.to_bytes();
    let own = SplitBtf::new(&Btf::parse(&kernel).unwrap()).to_bytes();
    std::fs::write(path("btf.bin"), own).unwrap();
    let included = format!(".pushsection .BTF,\\\"a\\\"\\n.incbin \\\"{}\\\"\\n.popsection", path("btf.bin").display());
    std::fs::write(path("m.c"), format!("__asm__(\"{included}\");\n{SOURCE}")).unwrap();
    let options = ["-g", "-O2", "-ffreestanding", "-fno-pic", "-fno-asynchronous-unwind-tables", "-c", "-o"];
    let status = Command::new("cc").args(options).args([path("m.ko"), path("m.c")]).status().unwrap();
    assert!(status.success());
    (kernel, std::fs::read(path("m.ko")).unwrap())
}

fn encoded() -> (Vec<u8>, SiteSet) {
    let (kernel, module) = module();
    let types = KernelTypes::new(&kernel).unwrap();
    let options = Options { kernel: Some(BaseKernel { types: &types, build_id: &[] }), ..Options::default() };
    let (set, _) = encode(&module, &options).unwrap();
    drop(types);
    (kernel, set)
}

#[test]
fn sites_of_a_module() {
    let (kernel, set) = encoded();
    for (name, copies) in COPIES {
        let is_copy = |site: &&siteseer_sites::Site| {
            site.kind == SiteKind::Inline && set.functions[site.function as usize].name == name
        };
        assert_eq!(set.sites.iter().filter(is_copy).count(), copies, "{name}");
    }
    let is_address = |located: &Located| matches!(located.at, Location::Address(_));
    let addresses =
        set.prototypes.iter().flat_map(|prototype| prototype.iter().flatten()).filter(|its| is_address(its));
    assert_eq!(addresses.count(), 2, "the first of add_global, at each of its copies");
    let counts = compare(&set, Some(&kernel));
    assert!(counts.located >= 10, "{counts:?}");
    assert_eq!(counts.only_ours, 2, "the address, at both copies: {counts:?}");
}

/// Upstream's lines for this program, as far as they follow from its source: every copy with its constants.
#[test]
fn what_upstreams_test_prints() {
    let (kernel, set) = encoded();
    let inline = file::write_raw(&set).unwrap();
    let plain = Reader::new(&[&kernel, &set.base_btf, &inline]);
    let state = crate::State { register: &|number| u64::from(number) << 32, byte: &|_| 0, base: 0 };
    let mut lines: Vec<String> = Vec::new();
    for site in plain.sites() {
        let values = plain.values(&site, &state);
        let text = |value: &Option<Vec<u64>>| match value.as_deref() {
            None => "none".to_owned(),
            // A register holds its number in its upper half; small numbers are constants.
            Some(&[value]) if (-0x8000..0x8000).contains(&(value as i64)) => (value as i64).to_string(),
            Some(_) => "value".to_owned(),
        };
        let values: Vec<String> = values.iter().map(text).collect();
        lines.push(format!("{} {}({})", site.locsec, plain.func_name(site.func), values.join(", ")));
    }
    lines.sort();
    assert_eq!(
        lines,
        [
            "inline.text add_bias(value, -7)",
            "inline.text add_bias(value, 100)",
            "inline.text add_global(none, value)",
            "inline.text add_global(none, value)",
            "inline.text combine(value, value)",
            "inline.text scale(value, 3)",
            "inline.text scale(value, 4)",
            // The module's BTF has no FUNC for the symbols, which are sites for that reason.
            "inline.text wrapper_once(value, value)",
            "inline.text wrapper_twice(value)",
        ]
    );
}

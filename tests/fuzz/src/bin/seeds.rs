// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `seeds FOLDER`: writes the inputs that the fuzzer begins with, a folder for each target. They are made from real
//! data: images that compilers made, their site files, BPF objects of the tests, and lines as the kernel and other
//! tools print them.

use object::{Object, ObjectSection};
use siteseer_encoder::{Detail, Options, encode_all};
use siteseer_fuzz::images::{IMAGES, Image, MODULES};
use siteseer_fuzz::{libfuzzer_sys as _, patch};
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::subset::SubsetWriter;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// No input is larger: fuzzers are slow with large ones.
const LARGEST: usize = 48 << 10;

struct Seeds {
    folder: PathBuf,
}

impl Seeds {
    fn add(&self, target: &str, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        if bytes.len() > LARGEST {
            return Ok(());
        }
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(name), bytes)?)
    }

    /// A seed for each line.
    fn lines(&self, target: &str, text: &str) -> Result<(), Box<dyn Error>> {
        text.lines().enumerate().try_for_each(|(nth, line)| self.add(target, &format!("line-{nth}"), line.as_bytes()))
    }
}

fn section<'i>(image: &'i Image, name: &str) -> &'i [u8] {
    let range = image.sections(&[name]).into_iter().next().unwrap_or_default();
    image.bytes.get(range).unwrap_or_default()
}

/// What the targets of the encoder read.
fn of_encoder(seeds: &Seeds, nth: u8, image: &Image) -> Result<(), Box<dyn Error>> {
    let name = image.name;
    seeds.add("image", name, image.bytes)?;
    seeds.add("cfi", name, section(image, ".debug_frame"))?;
    seeds.add("dwarf", name, &[nth])?;
    // Each number is that of a section among those that the target replaces.
    for (number, debug) in (0u8..).zip([".debug_info", ".debug_abbrev", ".debug_line"]) {
        for (chunk, bytes) in section(image, debug).chunks(100).take(24).enumerate() {
            let offset = u16::try_from(100 * chunk)?;
            let input = [&[nth][..], &patch::identity(number, offset, bytes)].concat();
            seeds.add("dwarf", &format!("{name}-{number}-{chunk}"), &input)?;
        }
    }
    let lists: Vec<&str> =
        [".debug_loclists", ".debug_loc", ".debug_rnglists", ".debug_ranges", ".debug_addr", ".debug_frame"]
            .into_iter()
            .filter(|list| !section(image, list).is_empty())
            .collect();
    for (number, list) in lists.iter().enumerate() {
        for first in (0..=u8::MAX).filter(|first| usize::from(*first) % IMAGES.len() == usize::from(nth)) {
            if usize::from(first) / IMAGES.len() % lists.len() == number && first >= 128 {
                seeds.add("lists", &format!("{name}-{number}"), &[&[first][..], section(image, list)].concat())?;
            }
        }
    }
    for (chunk, text) in section(image, ".text").chunks(400).enumerate() {
        seeds.add("text", &format!("{name}-{chunk}"), &[&[u8::try_from(chunk % 2 * 2)?, 64][..], text].concat())?;
    }
    Ok(())
}

/// What the target of modules reads.
fn of_module(seeds: &Seeds, nth: u8, image: &Image) -> Result<(), Box<dyn Error>> {
    seeds.add("module", image.name, &[nth])?;
    for (number, name) in (0u8..).zip([".rela.debug_info", ".rela.debug_addr", ".rela.text", ".symtab"]) {
        for (chunk, bytes) in section(image, name).chunks(96).take(16).enumerate() {
            let input = [&[nth][..], &patch::identity(number, u16::try_from(96 * chunk)?, bytes)].concat();
            seeds.add("module", &format!("{}-{number}-{chunk}", image.name), &input)?;
        }
    }
    for (chunk, text) in section(image, ".text").chunks(400).enumerate() {
        let input = [&[1 + u8::try_from(chunk % 2 * 2)?, 64][..], text].concat();
        seeds.add("text", &format!("{}-{chunk}", image.name), &input)?;
    }
    Ok(())
}

/// What the targets of the site file read.
fn of_sites(seeds: &Seeds, image: &Image) -> Result<(), Box<dyn Error>> {
    let name = image.name;
    let options = Options { ranges: Detail::Lines, code: true, ..Options::default() };
    let encoded = encode_all(image.bytes, &options)?;
    let set = &encoded.set;
    let mut whole = Vec::new();
    file::write_with(set, &encoded.optional(), &mut whole)?;
    seeds.add("site_file", name, &whole)?;
    seeds.add("site_file", &format!("{name}-sites"), &file::write(set)?)?;
    seeds.add("packed", name, &file::packed::pack(&[&whole, &set.base_btf], None))?;
    let ranges = whole.windows(4).rposition(|word| word == [0x53, 0x52, 1, 1]).map_or(0, |start| start);
    seeds.add("ranges", name, &[&[0][..], &whole[ranges..]].concat())?;
    let len = u16::try_from(set.base_btf.len())?;
    seeds.add("btf", name, &[&len.to_le_bytes()[..], &set.base_btf, &file::write_raw(set)?].concat())?;
    let file = SiteFile::parse(&whole)?;
    let mut subset = SubsetWriter::new(["target", "pu?"]);
    subset.add(&file, ["target", "put"])?;
    seeds.add("subset", name, &subset.finish()?)
}

/// What the targets of BPF objects read.
fn of_object(seeds: &Seeds, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    seeds.add("object", name, bytes)?;
    let file = object::File::parse(bytes)?;
    for (nth, section) in file.sections().enumerate() {
        let (section_name, data) = (section.name()?, section.data()?);
        if section_name == ".BTF" {
            seeds.add("declared", name, data)?;
        } else if section_name.contains('/') {
            seeds.add("names", &format!("{name}-{nth}"), section_name.as_bytes())?;
            // A kprobe at an inlined copy, of a function with two parameters in registers.
            let head = [8, 2, 0, 1, 8, 5, 0, 1, 0x44, 4, 0];
            seeds.add("program", &format!("{name}-{nth}"), &[&head[..], data].concat())?;
        }
    }
    Ok(())
}

/// Expressions, each for a parameter of four bytes.
const EXPRESSIONS: &[&[u8]] = &[
    // DW_OP_reg5; fbreg -20; breg7 8; call_frame_cfa.
    &[0x55],
    &[0x91, 0x6c],
    &[0x77, 8],
    &[0x9c],
    // breg5 4, deref, plus_uconst 8, stack_value; and 0xffffffff.
    &[0x75, 4, 0x06, 0x23, 8, 0x9f],
    &[0x75, 0, 0x0c, 0xff, 0xff, 0xff, 0xff, 0x1a, 0x9f],
    // Pieces: reg5 of 8 bytes, reg4 of 4, 4 without a value; bit pieces.
    &[0x55, 0x93, 8, 0x54, 0x93, 4, 0x93, 4],
    &[0x55, 0x9d, 12, 4, 0x54, 0x9d, 20, 0],
    // entry_value(reg5); implicit_value; implicit_pointer.
    &[0xa3, 1, 0x55, 0x9f],
    &[0x9e, 4, 1, 2, 3, 4],
    &[0xa0, 1, 0, 0, 0, 2],
    // addr; addrx 0; const_type, regval_type, deref_type, convert, reinterpret.
    &[0x03, 0, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff, 0x9f],
    &[0xa1, 0, 0x9f],
    &[0xa5, 5, 32, 0xa4, 32, 4, 1, 2, 3, 4, 0x1e, 0xa8, 64, 0x9f],
    &[0x75, 0, 0xa6, 4, 32, 0xa9, 32, 0xa8, 0, 0x9f],
    // lit1, breg5 0, lit0, eq, bra 3, drop, lit2, stack_value.
    &[0x31, 0x75, 0, 0x30, 0x29, 0x28, 2, 0, 0x13, 0x32, 0x9f],
    // dup, swap, rot, pick, over, xor, shl, shra, div, mod, mul, neg, not, abs.
    &[0x75, 0, 0x12, 0x16, 0x74, 1, 0x17, 0x15, 1, 0x14, 0x27, 0x24, 0x26, 0x1b, 0x9f],
    &[0x75, 0, 0x32, 0x1d, 0x33, 0x1e, 0x1f, 0x20, 0x19, 0x9f],
];

const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000010 T startup_64\nffffffff81001230 t vfs_read\n\
    ffffffff81001230 t ksys_read\nffffffff81001400 t put.isra.0\nffffffff81001480 t put.cold\nffffffff82000000 D data\n\
    ffffffffc0001000 t nf_hook\t[nf_tables]\nffffffffc0001040 T nf_exit\t[nf_tables]\nffffffffc0010000 t bpf_prog_1\t[bpf]\n";
const LOADED: &str =
    "nf_tables 376832 1 nft_chain, Live 0xffffffffc0001000 (OE)\nfuse 212992 0 - Loading 0xffffffffc0100000\n";
const FTRACE: &str = "ffffffff81001230 vfs_read\nffffffffc0001000 nf_hook [nf_tables]\n";
const NAMES: &str = "vfs_read\nnf_hook [nf_tables]\n__ftrace_invalid_address___16\n";
const BLACKLIST: &str = "0xffffffff81000010-0xffffffff81000020\tstartup_64\n";
/// A note of type 3, of GNU's, with 20 bytes.
const NOTES: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\x0001234567890123456789";

const STACKS: &str = "\t    ffffffff81234567 vfs_read+0x1f ([kernel.kallsyms])
ffffffffc0123456 nf_hook+0x7 (/lib/modules/6.1/kernel/net/nf-tables.ko.xz)
  ffffffff81234567 [unknown] ([kernel.kallsyms])
    7f1234567890 __libc_start_main+0x80 (/usr/lib/x86_64-linux-gnu/libc.so.6)
    nf_hook+31 [nf_tables]
\tffffffffb4019501 do_mmap+1
[12345.678901]  ? nf_hook+0x1/0x2 [nf_tables 0123456789abcdef]
[    1.0] RIP: 0010:vfs_read+0x1f/0x80
[    1.0] pc : vfs_read+0x1f/0x80
 [<ffffffff81234567>] vfs_read+0x1f/0x80
nf_tables:nf_hook+0x7/0x80
0xffffffff81234567";
const FILTERS: &str = "i = -2 and c = bash
not (u >= 0x15 or p ~ /etc/*) && c !~ [!a-z]*
p = \"/etc/passwd\" || !i < 017
u != NULL, p == 1";
const PATTERNS: &str = "fentry/nf_tables:nft_*
kprobe_maybe_inline/ns_capable
fexit/vfs_[rw]*
kernel/fs/*.c:put_[!a]?d
{vfs_read,vfs_write}";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("seeds FOLDER")?;
    let seeds = Seeds { folder: Path::new(&folder).to_owned() };
    for (nth, image) in (0u8..).zip(IMAGES) {
        of_encoder(&seeds, nth, image)?;
        of_sites(&seeds, image)?;
    }
    for (nth, (module, _)) in (0u8..).zip(MODULES) {
        of_module(&seeds, nth, module)?;
    }
    for (name, bytes) in siteseer_bpf_progs::CORPUS {
        of_object(&seeds, name, bytes)?;
    }
    let objects = [siteseer_bpf_progs::BAD, siteseer_bpf_progs::CONTEXT, siteseer_bpf_progs::UNNAMED];
    for (nth, bytes) in objects.into_iter().enumerate() {
        of_object(&seeds, &format!("object-{nth}"), bytes)?;
    }
    for (nth, expression) in EXPRESSIONS.iter().enumerate() {
        for choice in [0u8, 8, 32] {
            let input = [&[choice, 4, 0, 32][..], expression].concat();
            seeds.add("expression", &format!("{choice}-{nth}"), &input)?;
        }
    }
    let tables = [KALLSYMS.as_bytes(), LOADED.as_bytes(), FTRACE.as_bytes(), &[], BLACKLIST.as_bytes(), NOTES];
    seeds.add("kallsyms", "addresses", &tables.join(&0))?;
    let tables = [KALLSYMS.as_bytes(), LOADED.as_bytes(), &[], NAMES.as_bytes(), BLACKLIST.as_bytes(), NOTES];
    seeds.add("kallsyms", "names", &tables.join(&0))?;
    seeds.add("stack", "all", STACKS.as_bytes())?;
    seeds.lines("stack", STACKS)?;
    seeds.lines("filter", FILTERS)?;
    seeds.lines("names", PATTERNS)?;
    for choice in 0..32 {
        let strings = b"\0\0\0\0\x01\0\0\0vfs_read\0fs/read_write.c\0";
        seeds.add("options", &format!("all-{choice}"), &[&[48, 72, choice, 2, 8][..], strings].concat())?;
    }
    Ok(())
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Data that others wrote, and others who read ours: kinds that a reader does not know, an image with upstream's
//! section alone, the other names of LOCSECs.

mod common;

use common::{BASE, base_btf};
use object::write::elf::{FileHeader, SectionHeader, Sym, Writer};
use object::{Endianness, elf};
use siteseer_sites::btf::{Btf, BtfError, Kind, LocsecEntry, SplitBtf, loc_flags};
use siteseer_sites::file::{Image, SiteFile};
use siteseer_sites::set::Section;
use siteseer_sites::{Located, Location, Machine, Missing, Unprobeable};

/// Split BTF with two sites of `base2` in a LOCSEC of the name.
fn inline(base: &Btf<'_>, locsec: &str) -> Vec<u8> {
    let func = base.find(Kind::Func, "base2").unwrap().id();
    let mut b = SplitBtf::new(base);
    let register = b.loc_param(8, loc_flags::REG, &[5]);
    let address = b.loc_param(8, loc_flags::CONST | loc_flags::ADDR, &[0x1234, 0]);
    let frame = b.loc_param(8, loc_flags::REG | loc_flags::DEREF, &[u32::MAX]);
    let all = b.loc_proto(&[register, address]);
    let some = b.loc_proto(&[frame, 0]);
    b.locsec(locsec, &[LocsecEntry::new(func, all, 0x10), LocsecEntry::new(func, some, 0x20)]);
    b.to_bytes()
}

fn check_sites(file: &SiteFile<'_>, text: u64) {
    let functions = file.functions("base2").unwrap();
    assert_eq!(functions.len(), 1);
    let sites: Vec<_> = functions[0].sites().map(Result::unwrap).collect();
    assert_eq!(sites.iter().map(|s| s.address()).collect::<Vec<_>>(), [text + 0x10, text + 0x20]);
    let at = |at| Ok(Located::certain(8, false, at));
    assert_eq!(sites[0].arguments().unwrap(), [at(Location::Register(5)), at(Location::Address(BASE + 0x1234))]);
    assert_eq!(sites[1].arguments().unwrap(), [Err(Missing::NoFrame), Err(Missing::Unknown)]);
    assert_eq!((sites[0].kind(), sites[0].container(), sites[0].parent()), (None, None, None));
    assert_ne!(sites[0].prototype_key(), sites[1].prototype_key());
}

#[test]
fn both_names_of_a_locsec() {
    let (base_bytes, _) = base_btf();
    let base = Btf::parse(&base_bytes).unwrap();
    for (name, there) in [
        (".text", None),
        ("inline.text", None),
        ("inlinetext", Some(Unprobeable::Unplaced)),
        ("inline.other.text", Some(Unprobeable::Unplaced)),
        (".init.text", Some(Unprobeable::Init)),
        ("inline.exit.text", Some(Unprobeable::Exit)),
    ] {
        let data = inline(&base, name);
        let sections = vec![Section { name: ".text".into(), address: BASE + 0x1000, size: 0x100 }];
        let image = Image { machine: Machine::X86_64, build_id: vec![], base_address: Some(BASE), sections };
        let file = SiteFile::from_inline(&data, &base, image).unwrap();
        assert!(!file.is_complete());
        let why: Vec<_> = file.sites().map(|site| site.unwrap().unprobeable()).collect();
        assert_eq!(why, [there; 2], "{name}");
        if there.is_none() {
            check_sites(&file, BASE + 0x1000);
        }
    }
}

/// An image as a kernel build could make it: text, `_text`, BTF and the sites, nothing of ours.
fn image(btf: &[u8], inline: &[u8], text: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(Endianness::Little, true, &mut out);
    w.reserve_file_header();
    let contents = [(".text", &[0x90u8; 64][..]), (".BTF", btf), (".BTF.inline", inline)];
    let placed: Vec<_> = contents
        .iter()
        .map(|(name, data)| {
            let id = w.add_section_name(name.as_bytes());
            let index = w.reserve_section_index();
            (id, index, w.reserve(data.len() as u64, 8), *data)
        })
        .collect();
    let name = w.add_string(b"_text");
    w.reserve_symbol_index(Some(placed[0].1));
    w.reserve_symtab_section_index();
    w.reserve_symtab();
    w.reserve_strtab_section_index();
    w.reserve_strtab().unwrap();
    w.reserve_shstrtab_section_index();
    w.reserve_shstrtab().unwrap();
    w.reserve_section_headers();
    let header = FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_EXEC,
        e_machine: elf::EM_X86_64,
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    };
    w.write_file_header(&header).unwrap();
    for (_, _, offset, data) in &placed {
        w.pad_until(*offset);
        w.write(data);
    }
    w.write_null_symbol();
    let st_name = w.string_offset(Some(name));
    w.write_symbol(&Sym {
        section: Some(placed[0].1.0),
        st_name,
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_NOTYPE),
        st_other: elf::SymbolOther(0),
        st_shndx: elf::SymbolSection(0),
        st_value: BASE,
        st_size: 0,
    });
    w.write_strtab();
    w.write_shstrtab();
    w.write_null_section_header();
    for (id, _, offset, data) in placed {
        let is_text = data.len() == 64;
        let sh_name = w.section_name_offset(Some(id));
        w.write_section_header(&SectionHeader {
            sh_name,
            sh_type: elf::SHT_PROGBITS,
            sh_flags: if is_text { elf::SHF_ALLOC | elf::SHF_EXECINSTR } else { elf::SectionFlags(0) },
            sh_addr: if is_text { text } else { 0 },
            sh_offset: offset,
            sh_size: data.len() as u64,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 8,
            sh_entsize: 0,
        });
    }
    w.write_symtab_section_header(1);
    w.write_strtab_section_header();
    w.write_shstrtab_section_header();
    out
}

#[test]
fn an_image_with_upstreams_section_alone() {
    let (base_bytes, _) = base_btf();
    let base = Btf::parse(&base_bytes).unwrap();
    let data = image(&base_bytes, &inline(&base, ".text"), BASE + 0x2000);
    let file = SiteFile::parse(&data).unwrap();
    assert_eq!((file.machine(), file.base_address()), (Machine::X86_64, BASE));
    check_sites(&file, BASE + 0x2000);
}

/// Counts types by the layout section alone, knowing no kind.
fn count_by_layout(data: &[u8]) -> (u32, Vec<u8>) {
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
    let header = word(4) as usize;
    assert!(header >= 32);
    let layout = &data[header + word(24) as usize..][..word(28) as usize];
    let mut at = header + word(8) as usize;
    let end = at + word(12) as usize;
    let (mut count, mut kinds) = (0, Vec::new());
    while at < end {
        let info = word(at + 4);
        let (kind, vlen) = ((info >> 24 & 0x7f) as u8, (info & 0xff_ffff) as usize);
        let line = &layout[usize::from(kind) * 4..][..4];
        at += 12 + usize::from(line[0]) + usize::from(line[1]) * vlen;
        kinds.push(kind);
        count += 1;
    }
    assert_eq!(at, end);
    (count, kinds)
}

#[test]
fn a_reader_of_layouts_steps_over_our_kinds() {
    let (base_bytes, _) = base_btf();
    let base = Btf::parse(&base_bytes).unwrap();
    let data = inline(&base, ".text");
    let btf = Btf::parse_split(&data, &base).unwrap();
    let (count, kinds) = count_by_layout(&data);
    assert_eq!(count, btf.end_id() - btf.first_id());
    assert_eq!(kinds, [20, 20, 20, 21, 21, 22]);
    let (count, _) = count_by_layout(&base_bytes);
    assert_eq!(count, base.end_id() - 1);
}

/// BTF of an int, a type of kind 23 with a word and two elements of 8 bytes, and another int; `layout` describes it.
fn newer(layout: Option<&[u8]>) -> Vec<u8> {
    let int = [1u32, 1 << 24, 4, 32];
    let new = [3u32, 23 << 24 | 2, 0, 7, 1, 2, 3, 4];
    let types: Vec<u8> = [&int[..], &new, &int].concat().iter().flat_map(|word| word.to_le_bytes()).collect();
    let strings = b"\0a\0new\0\0";
    let header_len = if layout.is_some() { 32u32 } else { 24 };
    let types_len = types.len() as u32;
    let mut data = vec![0x9f, 0xeb, 1, 0];
    let mut words = vec![header_len, 0, types_len, types_len, strings.len() as u32];
    if let Some(layout) = layout {
        words.extend([types_len + strings.len() as u32, layout.len() as u32]);
    }
    words.iter().for_each(|word| data.extend_from_slice(&word.to_le_bytes()));
    data.extend_from_slice(&types);
    data.extend_from_slice(strings);
    data.extend_from_slice(layout.unwrap_or_default());
    data
}

#[test]
fn we_step_over_newer_kinds() {
    let mut layout = vec![0; 24 * 4];
    layout[23 * 4..].copy_from_slice(&[4, 8, 0, 0]);
    let data = newer(Some(&layout));
    let btf = Btf::parse(&data).unwrap();
    assert_eq!(btf.end_id(), 4);
    let new = btf.ty(2).unwrap();
    assert_eq!((new.kind(), new.name(), new.tail().len()), (Kind::Other(23), "new", 20));
    assert_eq!(btf.ty(3).unwrap().int().unwrap().bits, 32);

    let unknown = Err(BtfError::UnknownKind { id: 2, kind: 23, offset: 16 });
    assert_eq!(Btf::parse(&newer(None)).map(|_| ()), unknown);
    // A layout that ends before the kind.
    assert_eq!(Btf::parse(&newer(Some(&layout[..92]))).map(|_| ()), unknown);
}

#[test]
fn another_layout_of_a_location_kind_is_refused() {
    // The LOCSEC entries of the first proposal had 16 bytes.
    let mut layout = vec![0; 24 * 4];
    layout[22 * 4..23 * 4].copy_from_slice(&[0, 16, 0, 0]);
    layout[23 * 4..].copy_from_slice(&[4, 8, 0, 0]);
    let error = Btf::parse(&newer(Some(&layout))).unwrap_err();
    assert_eq!(error, BtfError::ForeignLayout { kind: Kind::Locsec, found: (0, 16), expected: (0, 12) });
}

#[test]
fn three_levels_of_split_btf() {
    // A module's sites: over the module's BTF, which is over the kernel's.
    let (kernel_bytes, _) = base_btf();
    let kernel = Btf::parse(&kernel_bytes).unwrap();
    let mut module = SplitBtf::new(&kernel);
    let proto = module.func_proto(1, &[("only", 2)], false);
    let func = module.func("in_module", proto, siteseer_sites::btf::Linkage::Static);
    let module_bytes = module.to_bytes();
    let module = Btf::parse_split(&module_bytes, &kernel).unwrap();
    let mut sites = SplitBtf::new(&module);
    let param = sites.loc_param(4, loc_flags::REG, &[3]);
    let loc_proto = sites.loc_proto(&[param]);
    sites.locsec(".text", &[LocsecEntry::new(func, loc_proto, 8)]);
    let sites_bytes = sites.to_bytes();
    let sections = vec![Section { name: ".text".into(), address: 0, size: 64 }];
    let image = Image { machine: Machine::Aarch64, build_id: vec![], base_address: Some(0), sections };
    let file = SiteFile::from_inline(&sites_bytes, &module, image).unwrap();
    let function = file.functions("in_module").unwrap()[0];
    assert_eq!(function.prototype().unwrap().params[0].name, "only");
    assert_eq!(function.sites().next().unwrap().unwrap().address(), 8);
    assert_eq!(file.btf().ty(1).unwrap().name(), "int");
}

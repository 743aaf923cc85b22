// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

use super::*;
use crate::elf::test_image::{A, AX, TEXT, TestImage, relative};
use proptest::prelude::*;

fn error(bytes: &[u8]) -> String {
    Image::parse(bytes).map(|_| ()).expect_err("must be refused").to_string()
}

fn kernel() -> TestImage {
    let mut image = TestImage::kernel(Machine::X86_64, &[0x90; 64]);
    image.function("beta", TEXT + 16, 8);
    image.function("__alpha", TEXT + 16, 8);
    image.symbol("alpha_weak", TEXT + 16, 8, 0x22, 1);
    image.function("gamma", TEXT + 32, 16);
    image.symbol("source.c", 0, 0, 0x04, 0xfff1);
    image.symbol(".Llocal", TEXT + 20, 0, 0, 1);
    image
}

#[test]
fn files_that_are_not_for_us() {
    let good = kernel().build();
    assert_eq!(error(b"#!/bin/sh"), "not an ELF file");
    assert_eq!(error(b"\x7fELF"), "not an ELF file");
    let patched = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert!(error(&patched(4, 1)).contains("32-bit"));
    assert!(error(&patched(5, 2)).contains("big-endian"));
    assert!(error(&patched(18, 243)).contains("e_machine 243"));
    assert!(error(&patched(16, 4)).contains("e_type 4"));
    assert!(error(&good[..good.len() / 2]).starts_with("truncated"));
    assert!(error(&TestImage::new(Machine::X86_64, elf::ET_EXEC).build()).contains(".symtab"));
    let mut no_text = TestImage::new(Machine::X86_64, elf::ET_EXEC);
    no_text.label("_stext", TEXT, 0);
    assert!(error(&no_text.build()).contains("_text"));
}

#[test]
fn a_section_past_the_end_is_named() {
    let mut bytes = kernel().build();
    // The size in the header of section 1.
    let headers = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes")) as usize;
    bytes[headers + 64 + 32..][..8].copy_from_slice(&0x10_0000u64.to_le_bytes());
    assert!(error(&bytes).starts_with("truncated: section .text ends at"));
}

#[test]
fn missing_debug_information_is_reported_when_asked_for() {
    let bytes = kernel().build();
    let image = Image::parse(&bytes).expect("a kernel");
    assert!(matches!(image.btf(), Err(ImageError::NoBtf)));
    assert!(matches!(image.debug_section(".debug_info"), Err(ImageError::NoDebugInfo)));
    assert!(image.debug_section(".debug_line").expect("absent is empty").is_empty());
}

#[test]
fn symbols_are_those_of_kallsyms() {
    let bytes = kernel().build();
    let image = Image::parse(&bytes).expect("a kernel");
    let names = |address| image.symbol_at(address).iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(TEXT + 16), ["beta", "__alpha", "alpha_weak"]);
    assert!(names(TEXT + 20).is_empty());
    assert_eq!(image.container(TEXT + 31), Some(Container { name: "beta", address: TEXT + 16, size: 16 }));
    assert_eq!(image.container(TEXT + 63), Some(Container { name: "gamma", address: TEXT + 32, size: 32 }));
    assert_eq!(image.container(TEXT + 64), None);
    assert_eq!(image.container(TEXT - 1), None);
    assert_eq!(image.symbols_named("gamma").map(|s| s.address).collect::<Vec<_>>(), [TEXT + 32]);
    assert_eq!(image.symbols_named("delta").count(), 0);
    assert_eq!(image.base(), TEXT);
    assert_eq!(image.section_at(TEXT + 63), Some(0));
    assert_eq!(image.section_at(TEXT + 64), None);
}

#[test]
fn tables_are_read() {
    let mut test = kernel();
    let table = TEXT + 0x1000;
    let code = TEXT + 34;
    let jump = [&relative(table, code)[..], &relative(table + 4, TEXT + 40), &[0; 8]].concat();
    test.table("__jump_table", "__start___jump_table", "__stop___jump_table", table, &jump);
    let table = TEXT + 0x2000;
    // Two entries of 12 bytes: a BUG and a WARN.
    let bug = |n: u64, target: u64, flags: u8| {
        let place = table + 12 * n;
        [&relative(place, target)[..], &relative(place + 4, TEXT + 0x9000), &[7, 0, flags, 9]].concat()
    };
    let bugs = [bug(0, TEXT + 50, 0), bug(1, TEXT + 36, 1)].concat();
    test.table("__bug_table", "__start___bug_table", "__stop___bug_table", table, &bugs);
    let table = TEXT + 0x3000;
    test.table("blacklist", "__start_kprobe_blacklist", "__stop_kprobe_blacklist", table, &(TEXT + 32).to_le_bytes());
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    let tables = image.tables();
    assert_eq!(tables.jump_labels, [crate::elf::tables::JumpLabel { code, target: TEXT + 40, size: 5 }]);
    assert!(tables.jump_label_at(code + 4).is_some());
    assert!(tables.jump_label_at(code + 5).is_none());
    let bugs: Vec<_> = tables.bugs.iter().map(|b| (b.address - TEXT, b.resumes)).collect();
    assert_eq!(bugs, [(36, true), (50, false)]);
    assert_eq!(tables.blacklist, std::slice::from_ref(&(TEXT + 32..TEXT + 64)));
}

/// zlib's container around stored blocks.
fn zlib(data: &[u8]) -> Vec<u8> {
    let len = data.len() as u16;
    let mut bytes = vec![0x78, 0x01, 0x01];
    bytes.extend(len.to_le_bytes());
    bytes.extend((!len).to_le_bytes());
    bytes.extend(data);
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in data {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

#[test]
fn compressed_sections_are_decompressed_with_care() {
    const COMPRESSED: u64 = 0x800;
    let chdr = |size: u64| [&1u32.to_le_bytes()[..], &[0; 4], &size.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let mut test = kernel();
    let data = b"debug information";
    let good = [chdr(data.len() as u64), zlib(data)].concat();
    test.section(".debug_info", COMPRESSED, 0, &good);
    test.section(".debug_str", COMPRESSED, 0, &[chdr(17), vec![0xff; 40]].concat());
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    assert_eq!(&*image.debug_section(".debug_info").expect("good"), data);
    assert!(matches!(image.debug_section(".debug_str"), Err(ImageError::Compressed { .. })));
    // Each by itself is possible, together they are not.
    let mut test = kernel();
    for name in [".debug_info", ".debug_line"] {
        test.section(name, COMPRESSED, 0, &[chdr(40 << 20), zlib(data)].concat());
    }
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    for name in [".debug_info", ".debug_line"] {
        assert!(matches!(image.debug_section(name), Err(ImageError::CompressionRatio { .. })), "{name}");
    }
}

#[test]
fn a_module_is_laid_out_and_relocated() {
    let mut test = TestImage::new(Machine::X86_64, elf::ET_REL);
    // call rel32; ret, and a section that contains the text that the first section calls.
    let text = test.section(".text", AX, 0, &[0xe8, 0, 0, 0, 0, 0xc3]);
    let other = test.section(".text.unlikely", AX, 0, &[0x90, 0xc3]);
    let info = test.section(".debug_info", 0, 0, &[0; 8]);
    let import = test.symbol("__x86_indirect_thunk_rax", 0, 0, 0x10, 0);
    let cold = test.symbol("f.cold", 1, 1, 0x02, other);
    test.symbol("f", 0, 6, 0x02, text);
    let rela = |offset: u64, symbol: u32, kind: u32, addend: i64| {
        [&offset.to_le_bytes()[..], &kind.to_le_bytes(), &symbol.to_le_bytes(), &addend.to_le_bytes()].concat()
    };
    // .symtab comes after the relocations.
    let symtab = u32::from(info) + 3;
    test.section_of(4, ".rela.text", 0x40, 0, &rela(1, cold, 4, -4), symtab, text.into());
    test.section_of(4, ".rela.debug_info", 0x40, 0, &rela(0, cold, 1, 0), symtab, info.into());
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a module");
    assert!(image.is_relocatable());
    let address = |name: &str| image.symbols_named(name).next().map(|s| s.address).expect(name);
    let (f, cold) = (address("f"), address("f.cold"));
    assert_ne!(image.section_at(f), image.section_at(cold));
    let relative = (cold.wrapping_sub(f + 5) as u32).to_le_bytes();
    assert_eq!(image.bytes(f..f + 5), Some(&[&[0xe8][..], &relative].concat()[..]));
    assert_eq!(&*image.debug_section(".debug_info").expect("present"), cold.to_le_bytes());
    assert!(image.has_retpolines());
    assert!(!image.loaded().contains(&image.thunks[0]));
    assert_eq!(import, 1);
}

/// Asks everything.
fn ask(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes) else { return };
    for address in [0, TEXT - 1, TEXT, TEXT + 17, TEXT + 63, u64::MAX] {
        image.container(address);
        image.symbol_at(address);
        image.section_at(address);
        image.section_end(address);
        image.bytes(address..address.saturating_add(4));
        image.bytes(address..0);
    }
    for name in [".debug_info", ".debug_frame", ".text"] {
        let _ = image.debug_section(name);
    }
    let _ = image.btf();
    image.symbols_named("beta").count();
}

proptest! {
    #[test]
    fn garbage_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 64..512)) {
        bytes[..18].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0");
        bytes[18] = 62;
        bytes[19] = 0;
        ask(&bytes);
    }

    #[test]
    fn flipped_bits_do_not_panic(
        relocatable: bool,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut test = kernel();
        if relocatable {
            test.e_type = 1;
        }
        test.section(".debug_info", 0, 0, b"1234");
        let text = [&relative(TEXT + 0x1000, TEXT + 34)[..], &[1; 12]].concat();
        for (number, name) in ["jump_table", "bug_table", "ex_table"].into_iter().enumerate() {
            let address = TEXT + 0x1000 * (number as u64 + 1);
            test.table(name, &format!("__start___{name}"), &format!("__stop___{name}"), address, &text);
        }
        test.section_of(4, ".rela.text", A, 0, &[1; 48], 9, 1);
        let mut bytes = test.build();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        ask(&bytes);
    }
}

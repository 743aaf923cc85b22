// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions of one name, told apart.

use super::*;
use crate::kernel::symbols::Symbols;
use crate::source::placement::Placement;
use crate::target::function::DataSite;
use crate::target::function::{Holder, Sources};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf, TypeId};
use siteseer_sites::site::{Marks, SiteKind};

const TEXT: u64 = 0xffff_ffff_8100_0000;

/// The functions `int foo(struct device *dev)`, `int foo(long a)` and `long foo(const long a)`.
fn types() -> (Vec<u8>, [TypeId; 3]) {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let long = types.int("long", 8, 64, IntEncoding::SIGNED);
    let constant = types.modifier(siteseer_sites::btf::Kind::Const, long);
    let device = types.composite(siteseer_sites::btf::Kind::Struct, "device", 64, &[]);
    let pointer = types.modifier(siteseer_sites::btf::Kind::Ptr, device);
    let mut func = |returns, name, ty| {
        let proto = types.func_proto(returns, &[(name, ty)], false);
        types.func("foo", proto, Linkage::Static)
    };
    let functions = [func(int, "dev", pointer), func(int, "a", long), func(int, "b", constant)];
    (types.to_bytes(), functions)
}

/// Inline sites of the functions (by index) declared in the files, and two symbols of the name that they do not
/// describe.
fn foo(sites: &[(usize, Option<&str>)], undescribed: bool) -> Function {
    let (bytes, functions) = types();
    let btf = Btf::parse(&bytes).unwrap();
    let mut text = format!("{TEXT:x} t _text\n{:x} t caller\n", TEXT + 0x1000);
    if undescribed {
        text.push_str(&format!("{:x} t foo\n{:x} t foo.isra.0\n", TEXT + 0x2000, TEXT + 0x3000));
    }
    text.push_str(&format!("{:x} t _end\n", TEXT + 0x9000));
    let symbols = Symbols::parse(text);
    let data = sites.iter().enumerate().map(|(nth, (function, file))| DataSite {
        index: nth as u32,
        func: functions[*function],
        kind: SiteKind::Inline,
        address: TEXT + 0x1000 + 16 * nth as u64,
        moved: 0,
        arguments: Vec::new(),
        holder: Some(Holder { name: "caller".to_owned(), address: TEXT + 0x1000, size: 0 }),
        source: None,
        declared: file.map(|file| Place { file: file.to_owned(), line: 7 }),
        marks: Marks::default(),
        unprobeable: None,
        code: siteseer_sites::CodeSum::NONE,
    });
    let sources = Sources {
        module: None,
        machine: Machine::X86_64,
        btf: &btf,
        kernel_types: btf.end_id(),
        running_types: btf.end_id(),
        symbols: &symbols,
        placement: &Placement::Whole(0),
        outlines: &[],
    };
    Function::join("foo", data.collect(), &[], sources).unwrap()
}

/// What a program states that means the function of that number.
fn stated(function: usize) -> Selection {
    let (bytes, functions) = types();
    let btf = Btf::parse(&bytes).unwrap();
    let signature =
        btf.ty(functions[function]).and_then(|ty| crate::program::declared::Signature::of(&btf, ty.target()?));
    Selection { file: None, prototype: Some(Declared { text: "int (...)".to_owned(), signature: signature.unwrap() }) }
}

fn in_file(file: &str) -> Selection {
    Selection { file: Some(file.to_owned()), prototype: None }
}

const THREE: [(usize, Option<&str>); 4] =
    [(0, Some("drivers/a/core.c")), (1, Some("kernel/core.c")), (1, Some("kernel/core.c")), (0, Some("lib/b.c"))];

#[test]
fn what_is_stated_chooses_and_the_others_are_told_of() {
    let function = foo(&THREE, false);
    assert!(!function.prototypes_agree());
    let chosen = function.clone().select(&stated(0)).unwrap();
    assert_eq!(chosen.candidates.iter().map(|c| c.index).collect::<Vec<_>>(), [Some(0), Some(3)]);
    assert!(chosen.candidates.iter().all(|candidate| candidate.obstacle.is_none()));
    assert!(chosen.prototypes_agree());
    let [left_out] = &chosen.left_out[..] else { panic!("{:?}", chosen.left_out) };
    assert_eq!(left_out.to_string(), "int foo(long) in kernel/core.c:7 (2 sites)");
    // The numbers of prototypes follow.
    let other = function.select(&stated(1)).unwrap();
    assert_eq!(other.prototypes.len(), 1);
    assert!(other.candidates.iter().all(|candidate| candidate.prototype == 0));
    assert_eq!(other.prototypes[0].statement, "int, long a");
}

#[test]
fn nothing_stated_takes_all() {
    let function = foo(&THREE, true).select(&Selection::default()).unwrap();
    assert_eq!((function.candidates.len(), function.left_out.len()), (6, 0));
}

// Proves S13.12.
#[test]
fn what_cannot_be_shown_to_match_is_in_the_way() {
    let function = foo(&THREE, true).select(&stated(0)).unwrap();
    let reasons: Vec<_> = function.candidates.iter().map(|candidate| candidate.obstacle.clone()).collect();
    assert_eq!(reasons[..2], [Some(Reason::PrototypeUnknown), Some(Reason::PrototypeUnknown)], "body and clone");
    assert_eq!(reasons[2..], [None, None]);
    assert!(function.prototypes.iter().any(|prototype| prototype.func.is_none()), "theirs stays");
}

#[test]
fn a_statement_that_fits_none_is_refused_with_the_list() {
    let error = foo(&[(1, Some("kernel/core.c"))], false).select(&stated(0)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("int foo(long) in kernel/core.c:7: parameter 0 is of another type"), "{text}");
    let text = foo(&[], true).select(&stated(0)).unwrap_err().to_string();
    assert!(text.contains("the prototype of none is known"), "{text}");
}

#[test]
fn prototypes_that_differ_in_words_only_agree() {
    let function = foo(&[(1, None), (2, None)], false);
    assert_eq!(function.prototypes.len(), 2);
    assert!(function.prototypes_agree());
    assert_eq!(function.select(&stated(2)).unwrap().candidates.len(), 2);
}

#[test]
fn a_file_chooses_by_the_end_of_its_path() {
    let chosen = foo(&THREE, false).select(&in_file("kernel/core.c")).unwrap();
    assert_eq!(chosen.candidates.len(), 2);
    assert_eq!(chosen.left_out.len(), 1, "two files, one prototype: {:?}", chosen.left_out);
    assert_eq!(chosen.left_out[0].namesake.declared.len(), 2);
    let error = foo(&THREE, false).select(&in_file("core.c")).unwrap_err();
    assert!(matches!(&error, SelectError::SeveralFiles { files, .. } if files.len() == 2), "{error}");
    let error = foo(&THREE, false).select(&in_file("ore.c")).unwrap_err();
    assert!(error.to_string().contains("declared in drivers/a/core.c, kernel/core.c, lib/b.c"), "{error}");
    assert!(is_path("./kernel//core.c", "/kernel/core.c") && !is_path("kernel/core.c", ""));
}

#[test]
fn where_the_file_is_not_known_it_is_in_the_way() {
    let sites = [(0, Some("a.c")), (1, None), (0, Some("b.c"))];
    let chosen = foo(&sites, false).select(&in_file("a.c")).unwrap();
    let told: Vec<_> = chosen.candidates.iter().map(|c| (c.index, c.obstacle.clone())).collect();
    assert_eq!(told, [(Some(0), None), (Some(1), Some(Reason::FileUnknown))]);
    // With one file for all that has the prototype, what has it is from there.
    let chosen = foo(&[(0, Some("a.c")), (0, None)], false).select(&in_file("a.c")).unwrap();
    assert!(chosen.candidates.iter().all(|candidate| candidate.obstacle.is_none()));
}

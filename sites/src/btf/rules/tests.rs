// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Each rule broken by hand, and nothing else broken.

use super::*;
use std::collections::BTreeSet;

const INT: u32 = 1;
const FUNC_PROTO: u32 = 2;
const FUNC: u32 = 3;
const LOC_PARAM: u32 = 4;
const LOC_PROTO: u32 = 5;
/// The type that a case is about.
const CASE: u32 = 6;
const NOWHERE: u32 = 99;

/// Offsets of names: `int`, `foo`, one that is not an identifier, one that is not even a section's.
const STRINGS: &[u8] = b"\0int\0foo\x002x\0\x01\0";
const INT_NAME: u32 = 1;
const FOO: u32 = 5;
const NO_IDENTIFIER: u32 = 9;
const NO_SECTION: u32 = 12;

fn info(kind: Kind, vlen: u32) -> u32 {
    u32::from(kind.code()) << 24 | vlen
}

const FLAG: u32 = 1 << 31;

/// BTF of the types and of one more.
fn with(case: &[u32]) -> Vec<u8> {
    let int = [INT_NAME, info(Kind::Int, 0), 4, 1 << 24 | 32];
    let func_proto = [0, info(Kind::FuncProto, 2), INT, FOO, INT, FOO, INT];
    let func = [FOO, info(Kind::Func, 0), FUNC_PROTO];
    let loc_param = [0, info(Kind::LocParam, 1), 4, loc_flags::REG, 5];
    let loc_proto = [0, info(Kind::LocProto, 2), 0, LOC_PARAM, 0];
    let words = [&int[..], &func_proto, &func, &loc_param, &loc_proto, case].concat();
    let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = types.len() as u32;
    let mut data = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, len, len, STRINGS.len() as u32] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    data.extend_from_slice(&types);
    data.extend_from_slice(STRINGS);
    data
}

fn type_(rule: Rule, refused_by: &'static str) -> (Option<usize>, Rule, &'static str) {
    (None, rule, refused_by)
}

fn element(nth: usize, rule: Rule, refused_by: &'static str) -> (Option<usize>, Rule, &'static str) {
    (Some(nth), rule, refused_by)
}

fn not_identifier() -> Rule {
    Rule::NotIdentifier("2x".to_owned())
}

/// The words of a type; where it breaks a rule, which one, and who refuses it.
type Refused = (Vec<u32>, (Option<usize>, Rule, &'static str));

/// A type each, what is wrong with it, and who refuses it.
fn cases() -> Vec<Refused> {
    use loc_flags::{ADDR, CONST, DEREF, OFFSET, REG, SIGNED};
    let mut cases = Vec::new();
    let mut case = |words: &[u32], broken| cases.push((words.to_vec(), broken));
    let int = "btf_int_check_meta";
    case(&[INT_NAME, info(Kind::Int, 1), 4, 32], type_(Rule::Vlen(1), int));
    case(&[INT_NAME, info(Kind::Int, 0) | FLAG, 4, 32], type_(Rule::KindFlag, int));
    case(&[INT_NAME, info(Kind::Int, 0), 4, 33], type_(Rule::Int, int));
    case(&[INT_NAME, info(Kind::Int, 0), 4, 3 << 24 | 32], type_(Rule::Int, int));
    case(&[INT_NAME, info(Kind::Int, 0), 32, 129], type_(Rule::Int, int));
    let reference = "btf_ref_type_check_meta";
    case(&[FOO, info(Kind::Ptr, 0), INT], type_(Rule::Named, reference));
    case(&[0, info(Kind::Const, 2), INT], type_(Rule::Vlen(2), reference));
    case(&[0, info(Kind::Ptr, 0), NOWHERE], type_(Rule::Reference(NOWHERE), reference));
    case(&[0, info(Kind::Typedef, 0), INT], type_(Rule::Unnamed, reference));
    case(&[NO_IDENTIFIER, info(Kind::Typedef, 0), INT], type_(not_identifier(), reference));
    case(&[0, info(Kind::TypeTag, 0), INT], type_(Rule::Unnamed, reference));
    let array = "btf_array_check_meta";
    case(&[0, info(Kind::Array, 0), 8, INT, INT, 2], type_(Rule::Size(8), array));
    case(&[0, info(Kind::Array, 0), 0, 0, INT, 2], type_(Rule::Reference(0), array));
    let composite = "btf_struct_check_meta";
    case(&[FOO, info(Kind::Struct, 1), 4, FOO, 0, 0], element(0, Rule::Reference(0), composite));
    case(&[FOO, info(Kind::Struct, 1), 4, NO_IDENTIFIER, INT, 0], element(0, not_identifier(), composite));
    case(&[FOO, info(Kind::Struct, 1), 4, FOO, INT, 40], element(0, Rule::Offset(40), composite));
    case(&[FOO, info(Kind::Struct, 2), 8, FOO, INT, 32, FOO, INT, 0], element(1, Rule::Offset(0), composite));
    case(&[FOO, info(Kind::Union, 1), 8, FOO, INT, 32], element(0, Rule::Offset(32), composite));
    case(&[FOO, info(Kind::Enum, 0), 3], type_(Rule::Size(3), "btf_enum_check_meta"));
    case(&[FOO, info(Kind::Enum, 1), 4, 0, 1], element(0, Rule::Unnamed, "btf_enum_check_meta"));
    case(&[FOO, info(Kind::Enum64, 1), 8, 0, 1, 0], element(0, Rule::Unnamed, "btf_enum64_check_meta"));
    case(&[0, info(Kind::Fwd, 0), 0], type_(Rule::Unnamed, "btf_fwd_check_meta"));
    case(&[FOO, info(Kind::Fwd, 0), INT], type_(Rule::Reference(INT), "btf_fwd_check_meta"));
    let func = "btf_func_check_meta";
    case(&[0, info(Kind::Func, 0), FUNC_PROTO], type_(Rule::Unnamed, func));
    case(&[FOO, info(Kind::Func, 2), FUNC_PROTO], type_(Rule::Linkage(2), func));
    case(&[FOO, info(Kind::Func, 0) | FLAG, FUNC_PROTO], type_(Rule::KindFlag, func));
    case(&[FOO, info(Kind::Func, 0), INT], type_(Rule::Kind(INT), "btf_func_check"));
    case(&[FOO, info(Kind::Func, 0), NOWHERE], type_(Rule::Reference(NOWHERE), "btf_func_check"));
    case(&[FOO, info(Kind::FuncProto, 0), 0], type_(Rule::Named, "btf_func_proto_check_meta"));
    let parameter = element(0, Rule::Reference(NOWHERE), "btf_func_proto_check");
    case(&[0, info(Kind::FuncProto, 1), 0, FOO, NOWHERE], parameter);
    case(&[FOO, info(Kind::Var, 0), INT, 2], type_(Rule::Linkage(2), "btf_var_check_meta"));
    let datasec = "btf_datasec_check_meta";
    case(&[NO_SECTION, info(Kind::Datasec, 0), 4], type_(Rule::NotSection("\u{1}".to_owned()), datasec));
    case(&[FOO, info(Kind::Datasec, 1), 4, INT, 2, 4], element(0, Rule::Offset(2), datasec));
    case(&[FOO, info(Kind::Datasec, 1), 4, INT, 0, 0], element(0, Rule::Size(0), datasec));
    case(&[FOO, info(Kind::Float, 0), 5], type_(Rule::Size(5), "btf_float_check_meta"));
    let tag = "btf_decl_tag_check_meta";
    case(&[FOO, info(Kind::DeclTag, 0), INT, -2i32 as u32], type_(Rule::Component(-2), tag));
    case(&[0, info(Kind::DeclTag, 0), INT, 0], type_(Rule::Unnamed, tag));

    let param = "btf_loc_param_check_meta";
    case(&[FOO, info(Kind::LocParam, 1), 4, REG, 5], type_(Rule::Named, param));
    case(&[0, info(Kind::LocParam, 1) | FLAG, 4, REG, 5], type_(Rule::KindFlag, param));
    case(&[0, info(Kind::LocParam, 1), 0, REG, 5], type_(Rule::Size(0), param));
    case(&[0, info(Kind::LocParam, 1), 17, REG | DEREF, 5], type_(Rule::Size(17), param));
    let flags = [
        0,
        SIGNED,
        ADDR,
        REG | SIGNED,
        REG | DEREF | SIGNED,
        REG | CONST,
        DEREF,
        OFFSET,
        REG | ADDR,
        CONST | OFFSET,
        0x40,
        REG | 0x40,
    ];
    for flags in flags {
        case(&[0, info(Kind::LocParam, 1), 4, flags, 5], type_(Rule::LocFlags(flags), param));
    }
    for (flags, size, words) in [
        (CONST, 4, 0),
        (CONST, 5, 1),
        (CONST | SIGNED, 8, 1),
        (CONST | ADDR, 8, 1),
        (CONST, 8, 3),
        (CONST, 9, 2),
        (REG, 8, 0),
        (REG, 8, 3),
        (REG | DEREF, 8, 2),
        (REG | OFFSET, 8, 1),
        (REG | OFFSET | SIGNED, 8, 4),
        (REG | DEREF | OFFSET, 8, 1),
    ] {
        let mut type_words = vec![0, info(Kind::LocParam, words), size, flags];
        type_words.extend((0..words).map(|word| word + 1));
        case(&type_words, type_(Rule::LocWords { flags, size, words }, param));
    }
    let (meta, resolve) = ("btf_loc_proto_check_meta", "btf_loc_proto_resolve");
    case(&[FOO, info(Kind::LocProto, 0), 0], type_(Rule::Named, meta));
    case(&[0, info(Kind::LocProto, 0) | FLAG, 0], type_(Rule::KindFlag, meta));
    case(&[0, info(Kind::LocProto, 0), INT], type_(Rule::TypeSet(INT), resolve));
    case(&[0, info(Kind::LocProto, 2), 0, 0, INT], element(1, Rule::Kind(INT), resolve));
    case(&[0, info(Kind::LocProto, 1), 0, NOWHERE], element(0, Rule::Reference(NOWHERE), resolve));
    let (meta, resolve) = ("btf_locsec_check_meta", "btf_locsec_resolve");
    case(&[0, info(Kind::Locsec, 0), 0], type_(Rule::Unnamed, meta));
    case(&[NO_SECTION, info(Kind::Locsec, 0), 0], type_(Rule::NotSection("\u{1}".to_owned()), meta));
    case(&[FOO, info(Kind::Locsec, 0) | FLAG, 0], type_(Rule::KindFlag, meta));
    case(&[FOO, info(Kind::Locsec, 0), INT], type_(Rule::TypeSet(INT), resolve));
    let mut entry = |func, proto, rule, by| {
        let words = [FOO, info(Kind::Locsec, 2), 0, FUNC, LOC_PROTO, 0, func, proto, 4];
        case(&words, element(1, rule, by));
    };
    entry(0, LOC_PROTO, Rule::Reference(0), meta);
    entry(NOWHERE, LOC_PROTO, Rule::Reference(NOWHERE), resolve);
    entry(MAX_TYPE + 1, LOC_PROTO, Rule::Reference(MAX_TYPE + 1), meta);
    entry(INT, LOC_PROTO, Rule::Kind(INT), resolve);
    entry(FUNC, 0, Rule::Reference(0), meta);
    entry(FUNC, INT, Rule::Kind(INT), resolve);
    cases
}

#[test]
fn each_rule_of_types() {
    for (words, (nth, rule, refused_by)) in cases() {
        let kind = Kind::from_code((words[1] >> 24 & 0x7f) as u8);
        let data = with(&words);
        let place = match nth {
            None => Place::Type { id: CASE, kind },
            Some(nth) => Place::Element { id: CASE, kind, nth },
        };
        let found = check(&data, None).unwrap();
        assert_eq!(found, [Violation { place, rule }], "{words:x?}");
        assert_eq!(found[0].refused_by(), refused_by, "{}", found[0]);
        let text = found[0].to_string();
        assert!(text.starts_with("type 6 (") && text.ends_with(&format!("[{refused_by}]")), "{text}");
    }
}

#[test]
fn nothing_is_wrong_with_what_is_right() {
    use loc_flags::{ADDR, CONST, DEREF, OFFSET, REG, SIGNED};
    for (flags, size, words) in [
        (CONST, 1, 1),
        (CONST, 4, 2),
        (CONST | SIGNED, 8, 2),
        (CONST | ADDR, 4, 1),
        (CONST | ADDR | SIGNED, 8, 2),
        (REG, 16, 1),
        (REG, 16, 2),
        (REG | DEREF, 16, 1),
        (REG | OFFSET, 8, 2),
        (REG | OFFSET | SIGNED, 8, 3),
        (REG | DEREF | OFFSET, 16, 3),
        (REG | DEREF | OFFSET | SIGNED, 1, 2),
    ] {
        let mut type_words = vec![0, info(Kind::LocParam, words), size, flags];
        type_words.extend((0..words).map(|word| word + 1));
        assert_eq!(check(&with(&type_words), None).unwrap(), [], "{flags:#x} {size} {words}");
    }
    let site = [FOO, info(Kind::Locsec, 1), 0, FUNC, LOC_PROTO, 0];
    assert_eq!(check(&with(&site), None).unwrap(), []);
}

#[test]
fn a_loc_proto_goes_with_the_prototype() {
    // The LOC_PROTO after it has three elements, the prototype two.
    let words = [0, info(Kind::LocProto, 3), 0, 0, 0, 0, FOO, info(Kind::Locsec, 1), 0, FUNC, CASE, 8];
    let found = check(&with(&words), None).unwrap();
    let place = Place::Element { id: CASE + 1, kind: Kind::Locsec, nth: 0 };
    assert_eq!(found, [Violation { place, rule: Rule::Parameters { func_proto: 2, loc_proto: 3 } }]);
    assert_eq!(found[0].refused_by(), "btf_locsec_resolve");
}

#[test]
fn each_rule_of_the_header() {
    let right = with(&[FOO, info(Kind::Fwd, 0), 0]);
    assert_eq!(check(&right, None).unwrap(), []);
    let header = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut data = right.clone();
        change(&mut data);
        let found = check(&data, None).unwrap();
        assert!(found.iter().all(|violation| violation.place == Place::Header), "{found:?}");
        found.into_iter().map(|violation| (violation.refused_by(), violation.rule)).collect::<Vec<_>>()
    };
    assert_eq!(header(&|data| data[3] = 1), [("btf_parse_hdr", Rule::Flags(1))]);
    assert_eq!(header(&|data| data.push(0)), [("btf_check_sec_info", Rule::Gap)]);
    // Two bytes before the types.
    let shifted = header(&|data| {
        let text = u32::from_le_bytes(data[16..20].try_into().unwrap());
        data.splice(24..24, [0, 0]);
        data[8] = 2;
        data[16..20].copy_from_slice(&(text + 2).to_le_bytes());
    });
    assert_eq!(shifted, [("btf_parse_type_sec", Rule::Unaligned(2)), ("btf_check_sec_info", Rule::Gap)]);
    // The strings before the types, with one more byte for their alignment.
    let turned = header(&|data| {
        let mut strings = STRINGS.to_vec();
        strings.resize(strings.len().next_multiple_of(4), 0);
        let types = data[24..data.len() - STRINGS.len()].to_vec();
        let (of_strings, of_types) = (strings.len() as u32, types.len() as u32);
        data.truncate(8);
        for word in [of_strings, of_types, 0, of_strings] {
            data.extend_from_slice(&word.to_le_bytes());
        }
        data.extend(strings);
        data.extend(types);
    });
    assert_eq!(turned, [("btf_parse_str_sec", Rule::StringsNotLast)]);
}

#[test]
fn a_kind_that_only_the_layout_knows() {
    let new = Kind::Other(23);
    let mut data = with(&[FOO, info(new, 0), 0]);
    assert!(matches!(check(&data, None), Err(BtfError::UnknownKind { kind: 23, .. })));
    // The same with a layout, between the types and the strings, that says that nothing follows.
    let (layout, strings) = (24 * 4, data.split_off(data.len() - STRINGS.len()));
    let types = data.split_off(24);
    data.truncate(4);
    let of_types = types.len() as u32;
    for word in [32, 0, of_types, of_types + layout, strings.len() as u32, of_types, layout] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    data.extend(types);
    data.resize(data.len() + layout as usize, 0);
    data.extend(strings);
    let found = check(&data, None).unwrap();
    assert_eq!(found, [Violation { place: Place::Type { id: CASE, kind: new }, rule: Rule::UnknownKind(23) }]);
    assert_eq!(found[0].refused_by(), "btf_check_meta");
}

#[test]
fn what_is_too_much() {
    let base = with(&[FOO, info(Kind::Fwd, 0), 0]);
    let base = Btf::parse(&base).unwrap();
    let build = |types: usize, strings: usize| {
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let len = 12 * types as u32;
        for word in [24, 0, len, len, strings as u32] {
            data.extend_from_slice(&word.to_le_bytes());
        }
        for _ in 0..types {
            for word in [0, info(Kind::Ptr, 0), 0] {
                data.extend_from_slice(&word.to_le_bytes());
            }
        }
        data.resize(data.len() + strings, 0);
        data
    };
    let of = |data: &[u8]| {
        let found = check(data, Some(&base)).unwrap();
        found.into_iter().map(|violation| (violation.refused_by(), violation.rule)).collect::<Vec<_>>()
    };
    // The base has six types.
    let most = MAX_TYPE as usize - 6;
    assert_eq!(of(&build(most, 1)), []);
    assert_eq!(of(&build(most + 1, 1)), [("btf_add_type", Rule::TooManyTypes(MAX_TYPE + 1))]);
    let most = MAX_NAME_OFFSET as usize + 1 - STRINGS.len();
    assert_eq!(of(&build(1, most)), []);
    let end = u64::from(MAX_NAME_OFFSET) + 2;
    assert_eq!(of(&build(1, most + 1)), [("btf_parse_str_sec", Rule::TooManyStrings(end))]);
}

#[test]
fn long_names() {
    let of = |len: usize, kind: Kind| {
        let mut b = super::super::SplitBtf::standalone();
        let name = "n".repeat(len);
        let proto = b.func_proto::<&str>(0, &[], false);
        match kind {
            Kind::Func => b.func(&name, proto, super::super::Linkage::Static),
            _ => b.locsec(&name, &[]),
        };
        check(&b.to_bytes(), None).unwrap().into_iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert_eq!((of(NAME_LEN - 1, Kind::Func), of(NAME_LEN - 1, Kind::Locsec)), (vec![], vec![]));
    let name = "n".repeat(NAME_LEN);
    assert_eq!(of(NAME_LEN, Kind::Func), [Rule::NotIdentifier(name.clone())]);
    assert_eq!(of(NAME_LEN, Kind::Locsec), [Rule::NotSection(name)]);
}

/// That no rule was left out: a new one must be given a name here, and a case above.
#[test]
fn every_rule_has_a_case() {
    let name = |rule: &Rule| match rule {
        Rule::Flags(_) | Rule::Unaligned(_) | Rule::Gap | Rule::StringsNotLast => "header",
        Rule::TooManyStrings(_) | Rule::TooManyTypes(_) => "too much",
        Rule::Parameters { .. } => "parameters",
        Rule::UnknownKind(_) => "kind",
        Rule::Named => "Named",
        Rule::Unnamed => "Unnamed",
        Rule::NotIdentifier(_) => "NotIdentifier",
        Rule::NotSection(_) => "NotSection",
        Rule::Vlen(_) => "Vlen",
        Rule::KindFlag => "KindFlag",
        Rule::Size(_) => "Size",
        Rule::Int => "Int",
        Rule::Reference(_) => "Reference",
        Rule::Kind(_) => "Kind",
        Rule::Offset(_) => "Offset",
        Rule::Linkage(_) => "Linkage",
        Rule::Component(_) => "Component",
        Rule::LocFlags(_) => "LocFlags",
        Rule::LocWords { .. } => "LocWords",
        Rule::TypeSet(_) => "TypeSet",
    };
    let told: BTreeSet<&str> = cases().iter().map(|(_, (_, rule, _))| name(rule)).collect();
    assert_eq!(told.len(), 16, "{told:?}");
}

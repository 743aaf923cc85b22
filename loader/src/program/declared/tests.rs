// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prototypes of made-up programs against those of made-up kernels.

use super::*;
use siteseer_sites::btf::{Enumerator, IntEncoding, Linkage, SplitBtf, Variable};

/// Types of one side; the other has them in another order, so that no number means the same in both.
struct Side {
    btf: SplitBtf,
    is_program: bool,
}

impl Side {
    fn new(is_program: bool) -> Side {
        let mut btf = SplitBtf::standalone();
        if is_program {
            btf.int("unrelated", 4, 32, IntEncoding::SIGNED);
            btf.composite(Kind::Struct, "unrelated", 4, &[]);
        }
        Side { btf, is_program }
    }

    fn int(&mut self, name: &str, size: u32, encoding: IntEncoding) -> TypeId {
        self.btf.int(name, size, size * 8, encoding)
    }

    fn structure(&mut self, name: &str) -> TypeId {
        self.btf.composite(Kind::Struct, name, 8, &[])
    }

    fn pointer(&mut self, to: TypeId) -> TypeId {
        self.btf.modifier(Kind::Ptr, to)
    }

    fn constant(&mut self, of: TypeId) -> TypeId {
        self.btf.modifier(Kind::Const, of)
    }

    fn signature(self, returns: TypeId, parameters: &[TypeId], variadic: bool) -> Signature {
        let Side { mut btf, is_program } = self;
        let parameters: Vec<(&str, TypeId)> =
            parameters.iter().map(|ty| (if is_program { "" } else { "named" }, *ty)).collect();
        let proto = btf.func_proto(returns, &parameters, variadic);
        Signature::of(&Btf::parse(&btf.to_bytes()).unwrap(), proto).unwrap()
    }
}

/// How a parameter that the program states differs from one of the kernel's.
fn compare(stated: impl FnOnce(&mut Side) -> TypeId, kernels: impl FnOnce(&mut Side) -> TypeId) -> bool {
    let (mut program, mut kernel) = (Side::new(true), Side::new(false));
    let (one, other) = (stated(&mut program), kernels(&mut kernel));
    let (one, other) = (program.signature(0, &[one], false), kernel.signature(0, &[other], false));
    let difference = one.difference(&other);
    assert_eq!(difference.is_none(), other.difference(&one).is_none(), "either way round");
    assert!(matches!(difference, None | Some(Difference::Parameter(0))));
    difference.is_none()
}

#[test]
fn structures_go_by_kind_and_name() {
    let pointer = |name: &'static str| {
        move |side: &mut Side| {
            let to = side.structure(name);
            side.pointer(to)
        }
    };
    assert!(compare(pointer("file"), pointer("file")));
    assert!(compare(pointer("file___old"), pointer("file")), "a flavour is for CO-RE");
    assert!(!compare(pointer("file___old___2"), pointer("file")), "one flavour, the last");
    assert!(!compare(pointer("file"), pointer("inode")));
    assert!(!compare(pointer("___file"), pointer("file")), "there must be something before it");
    let forward = |is_union: bool| {
        move |side: &mut Side| {
            let to = side.btf.fwd("file", is_union);
            side.pointer(to)
        }
    };
    assert!(compare(forward(false), pointer("file")), "a declaration is enough");
    assert!(!compare(forward(true), pointer("file")));
    let enumeration = |name: &'static str, value: i64| {
        move |side: &mut Side| side.btf.enumeration(name, 4, false, &[Enumerator { name: "A", value }])
    };
    assert!(compare(enumeration("mode", 1), enumeration("mode", 2)));
    assert!(!compare(enumeration("mode", 1), enumeration("other", 1)));
    assert!(!compare(enumeration("mode", 1), |side| side.int("unsigned int", 4, IntEncoding::UNSIGNED)));
}

#[test]
fn anonymous_types_go_by_their_typedef() {
    let typedef = |names: &'static [&'static str]| {
        move |side: &mut Side| {
            let inner = side.structure("");
            names.iter().fold(inner, |ty, name| side.btf.typedef(name, ty))
        }
    };
    // bpfptr_t is sockptr_t, and that an anonymous structure.
    assert!(compare(typedef(&["sockptr_t"]), typedef(&["sockptr_t", "bpfptr_t"])));
    assert!(!compare(typedef(&["kuid_t"]), typedef(&["kgid_t"])));
    assert!(!compare(typedef(&[]), typedef(&[])), "nothing tells that they are the same");
}

#[test]
fn integers_go_by_size_and_signedness() {
    let int = |name: &'static str, size, encoding| move |side: &mut Side| side.int(name, size, encoding);
    let signed = IntEncoding::SIGNED;
    let unsigned = IntEncoding::UNSIGNED;
    assert!(compare(int("long", 8, signed), int("long long", 8, signed)));
    assert!(!compare(int("int", 4, signed), int("unsigned int", 4, unsigned)));
    assert!(!compare(int("int", 4, signed), int("long", 8, signed)));
    assert!(compare(int("char", 1, signed), int("char", 1, unsigned)), "the kernel has unsigned ones");
    assert!(!compare(int("char", 1, signed), int("signed char", 1, signed)));
    assert!(!compare(int("_Bool", 1, IntEncoding::BOOL), int("unsigned char", 1, unsigned)));
    let typedef = |side: &mut Side| {
        let int = side.int("unsigned int", 4, unsigned);
        let inner = side.btf.typedef("__u32", int);
        side.btf.typedef("u32", inner)
    };
    assert!(compare(typedef, int("unsigned int", 4, unsigned)));
}

#[test]
fn qualifiers_count_behind_pointers_only() {
    let int = |side: &mut Side| side.int("int", 4, IntEncoding::SIGNED);
    let const_int = |side: &mut Side| {
        let ty = side.int("int", 4, IntEncoding::SIGNED);
        side.constant(ty)
    };
    assert!(compare(int, const_int));
    let to = |make: fn(&mut Side) -> TypeId| {
        move |side: &mut Side| {
            let ty = make(side);
            side.pointer(ty)
        }
    };
    assert!(!compare(to(int), to(const_int)));
    assert!(compare(to(const_int), to(const_int)));
    let tagged = |side: &mut Side| {
        let ty = side.int("int", 4, IntEncoding::SIGNED);
        let ty = side.btf.type_tag("user", ty);
        side.pointer(ty)
    };
    assert!(compare(to(int), tagged), "__user is not C");
    let restrict = |side: &mut Side| {
        let ty = to(int)(side);
        side.btf.modifier(Kind::Restrict, ty)
    };
    assert!(compare(restrict, to(int)));
}

#[test]
fn arrays_and_functions_are_pointers() {
    let array = |count| {
        move |side: &mut Side| {
            let int = side.int("int", 4, IntEncoding::SIGNED);
            side.btf.array(int, int, count)
        }
    };
    let pointer = |side: &mut Side| {
        let int = side.int("int", 4, IntEncoding::SIGNED);
        side.pointer(int)
    };
    assert!(compare(array(4), pointer) && compare(array(4), array(8)));
    let to_array = |count| {
        move |side: &mut Side| {
            let ty = array(count)(side);
            side.pointer(ty)
        }
    };
    assert!(compare(to_array(0), to_array(4)) && !compare(to_array(3), to_array(4)) && !compare(to_array(4), pointer));
    let function = |size: u32, pointed: bool| {
        move |side: &mut Side| {
            let parameter = side.int("int", size, IntEncoding::SIGNED);
            let proto = side.btf.func_proto(0, &[("", parameter)], false);
            if pointed { side.pointer(proto) } else { proto }
        }
    };
    assert!(compare(function(4, true), function(4, true)) && compare(function(4, false), function(4, true)));
    assert!(!compare(function(4, true), function(8, true)));
    let void = |side: &mut Side| side.pointer(0);
    assert!(compare(void, void) && !compare(void, pointer));
}

// Proves S13.10.
#[test]
fn prototypes_differ_where_it_says() {
    let make = |count: usize, variadic: bool, returns_int: bool| {
        let mut side = Side::new(count.is_multiple_of(2));
        let int = side.int("int", 4, IntEncoding::SIGNED);
        side.signature(if returns_int { int } else { 0 }, &vec![int; count], variadic)
    };
    let one = make(2, false, true);
    assert_eq!(one.difference(&make(2, false, true)), None);
    assert_eq!(one.difference(&make(3, false, true)), Some(Difference::Count(2, 3)));
    assert_eq!(one.difference(&make(2, true, true)), Some(Difference::Variadic));
    assert_eq!(one.difference(&make(2, false, false)), Some(Difference::Returns));
    assert_eq!(Difference::Count(2, 3).to_string(), "3 parameters, not 2");
}

#[test]
fn tangles_end() {
    let mut side = Side::new(false);
    // Deeper than any that a compiler makes: it is not told, and compatible with nothing, itself included.
    let mut ty = side.int("int", 4, IntEncoding::SIGNED);
    for _ in 0..200 {
        ty = side.pointer(ty);
    }
    let deep = side.signature(0, &[ty], false);
    assert_eq!(deep.difference(&deep), Some(Difference::Parameter(0)));
    let missing = Side::new(false).signature(4711, &[], false);
    assert_eq!(missing.difference(&missing), Some(Difference::Returns));
}

/// An object as SITESEER_PROTO makes it: programs, and whether the variable is what it should be.
fn object(section: &str, programs: &[(&str, bool)]) -> Vec<u8> {
    let mut btf = SplitBtf::standalone();
    let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
    let ns = btf.fwd("user_namespace", false);
    let pointer = btf.modifier(Kind::Ptr, ns);
    let mut variables = Vec::new();
    for (nth, (name, good)) in (0u32..).zip(programs) {
        let proto = btf.func_proto(int, &[("", pointer), ("", int)], nth == 1);
        let ty = if *good { btf.modifier(Kind::Ptr, proto) } else { int };
        let ty = btf.modifier(Kind::Const, ty);
        let ty = btf.var(&format!("__siteseer_proto_{name}"), ty, Linkage::Static);
        variables.push(Variable { ty, offset: nth * 8, size: 8 });
    }
    btf.datasec(section, variables.len() as u32 * 8, &variables);
    btf.to_bytes()
}

#[test]
fn what_a_program_states_is_found_by_its_name() {
    let object = object(".siteseer.proto", &[("one", true), ("two", true), ("bad", false)]);
    let find = |name: &str| Declared::find(&object, name);
    assert_eq!(find("one").unwrap().unwrap().text, "int (struct user_namespace *, int)");
    assert_eq!(find("two").unwrap().unwrap().text, "int (struct user_namespace *, int, ...)");
    assert_eq!(find("three").unwrap(), None);
    assert_eq!(find("on").unwrap(), None);
    assert!(matches!(find("bad"), Err(DeclaredError::NotAPrototype { .. })));
    assert!(matches!(Declared::find(b"no BTF", "one"), Err(DeclaredError::Btf { .. })));
}

#[test]
fn other_sections_say_nothing() {
    assert_eq!(Declared::find(&object(".data", &[("one", true)]), "one").unwrap(), None);
}

/// An object as SITESEER_POLICY makes it: programs, and the names of the structures; no structure without a name.
fn with_policies(programs: &[(&str, &str)]) -> Vec<u8> {
    let mut btf = SplitBtf::standalone();
    let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
    let mut variables = Vec::new();
    for (nth, (name, structure)) in (0u32..).zip(programs) {
        let to = if structure.is_empty() {
            int
        } else {
            let forward = btf.fwd(structure, false);
            btf.typedef(structure, forward)
        };
        let ty = btf.modifier(Kind::Ptr, to);
        let ty = btf.modifier(Kind::Const, ty);
        let ty = btf.var(&format!("__siteseer_policy_{name}"), ty, Linkage::Static);
        variables.push(Variable { ty, offset: nth * 8, size: 8 });
    }
    btf.datasec(".siteseer.policy", variables.len() as u32 * 8, &variables);
    btf.to_bytes()
}

// Proves S8.12.
#[test]
fn the_policy_that_a_program_states() {
    let object = with_policies(&[
        ("one", "siteseer_policy_complete"),
        ("two", "siteseer_policy_at_least_libbpf"),
        ("three", "siteseer_policy_best_effort"),
        ("later", "siteseer_policy_something_new"),
        ("bad", ""),
    ]);
    let find = |name: &str| Stated::find(Some(&object), name).map(|stated| stated.policy);
    assert_eq!(find("one").unwrap(), Some(Policy::Complete));
    assert_eq!(find("two").unwrap(), Some(Policy::AtLeastLibbpf));
    assert_eq!(find("three").unwrap(), Some(Policy::BestEffort));
    assert_eq!(find("four").unwrap(), None);
    // Never a weaker policy in place of one that is not known.
    let error = find("later").unwrap_err();
    assert!(
        matches!(&error, DeclaredError::NotAPolicy { .. }) && error.to_string().contains("something_new"),
        "{error}"
    );
    assert!(matches!(find("bad"), Err(DeclaredError::NotAPolicy { .. })));
    assert_eq!(Stated::find(None, "one").unwrap(), Stated::default());
}

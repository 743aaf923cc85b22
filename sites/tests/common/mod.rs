// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Random site sets, and the walk over everything that a file offers.

// Each test binary uses its part of this.
#![allow(dead_code)]

pub(crate) mod exercise;
pub(crate) mod rename;
pub(crate) mod reseal;

use proptest::prelude::*;
use siteseer_sites::btf::{Btf, IntEncoding, Kind, Linkage, SplitBtf, TypeId};
use siteseer_sites::ranges::{Copy, Named, Piece, Ranges, Run, Tree};
use siteseer_sites::set::{Container, Function, Section};
use siteseer_sites::site::SourceLine;
use siteseer_sites::*;

pub(crate) const BASE: u64 = 0xffff_ffff_8100_0000;

/// A base with a few types and 8 FUNCs named `base0` and so on, with so many parameters, which are pointers.
pub(crate) fn base_btf() -> (Vec<u8>, Vec<(String, TypeId)>) {
    let mut b = SplitBtf::standalone();
    let int = b.int("int", 4, 32, IntEncoding::SIGNED);
    let ptr = b.modifier(Kind::Ptr, int);
    let mut funcs = Vec::new();
    for n in 0..8 {
        let params: Vec<(String, TypeId)> = (0..n).map(|i| (format!("arg{i}"), ptr)).collect();
        let proto = b.func_proto(int, &params, false);
        let name = format!("base{n}");
        let func = b.func(&name, proto, Linkage::Static);
        funcs.push((name, func));
    }
    (b.to_bytes(), funcs)
}

fn op(choice: u8, value: u64) -> Op {
    match choice % 25 {
        0 => Op::Constant(value),
        1 => Op::Address(BASE.wrapping_add(value & 0xffff_ffff)),
        2 => Op::Register((value % 17) as u16),
        3 => Op::Load([1, 2, 4, 8][(value % 4) as usize]),
        4 => Op::ZeroExtend((value % 63 + 1) as u8),
        5 => Op::SignExtend((value % 63 + 1) as u8),
        6 => Op::Neg,
        7 => Op::Not,
        8 => Op::Add,
        9 => Op::Sub,
        10 => Op::Mul,
        11 => Op::DivU,
        12 => Op::ModU,
        13 => Op::And,
        14 => Op::Or,
        15 => Op::Xor,
        16 => Op::Shl,
        17 => Op::Shr,
        18 => Op::Sar,
        19 => Op::Eq,
        20 => Op::Ne,
        21 => Op::LtS,
        22 => Op::LeS,
        23 => Op::LtU,
        _ => Op::LeU,
    }
}

/// A well-formed program of what the choices allow.
fn program(choices: &[(u8, u64)]) -> Box<[Op]> {
    let mut program = vec![Op::Register(1)];
    let mut depth = 1;
    for (choice, value) in choices {
        let op = op(*choice, *value);
        if depth >= op.arity() && depth - op.arity() < Op::MAX_DEPTH {
            depth = depth - op.arity() + 1;
            program.push(op);
        }
    }
    program.extend(std::iter::repeat_n(Op::Xor, depth - 1));
    assert!(Op::check(&program, Machine::X86_64));
    program.into()
}

fn located() -> BoxedStrategy<Located> {
    let sizes = prop_oneof![Just(1u32), Just(2), Just(4), Just(8), Just(16), 0u32..40];
    let register = 0u16..40;
    let location = prop_oneof![
        any::<u64>().prop_map(Location::Constant),
        (0u64..300).prop_map(Location::Constant),
        any::<i8>().prop_map(|v| Location::Constant(v as u64)),
        any::<u32>().prop_map(|v| Location::Address(BASE.wrapping_add(u64::from(v)))),
        register.clone().prop_map(Location::Register),
        (register.clone(), register.clone()).prop_map(|(a, b)| Location::RegisterPair(a, b)),
        (register.clone(), any::<i32>()).prop_map(|(r, o)| Location::RegisterOffset(r, o)),
        (register, -64i32..64).prop_map(|(r, o)| Location::Memory(r, o)),
    ];
    let plain =
        (sizes.clone(), any::<bool>(), location).prop_map(|(size, signed, at)| Located::certain(size, signed, at));
    let steps = prop::collection::vec((any::<u8>(), any::<u64>()), 0..12);
    let computed = (sizes, any::<bool>(), prop::collection::vec(steps, 5)).prop_map(|(size, signed, steps)| {
        let slots = size.div_ceil(8).max(1) as usize;
        let slots = steps.iter().take(slots).map(|s| program(s)).collect();
        Located::certain(size, signed, Location::Computed(Computed { slots }))
    });
    let doubt = prop::option::weighted(0.3, prop::sample::select(&Doubt::ALL[..]));
    let certain = prop_oneof![3 => plain, 1 => computed];
    (certain, doubt).prop_map(|(located, doubt)| Located { doubt, ..located }).boxed()
}

/// A parameter's type: its size, and whether it is signed.
struct ParamType(u32, bool);

/// Types of all sizes that locations of each kind can have.
const TYPES: [ParamType; 9] = [
    ParamType(1, false),
    ParamType(2, true),
    ParamType(4, false),
    ParamType(4, true),
    ParamType(8, false),
    ParamType(8, true),
    ParamType(12, false),
    ParamType(16, false),
    ParamType(24, false),
];

impl ParamType {
    fn add(&self, types: &mut SplitBtf) -> TypeId {
        match *self {
            ParamType(size @ 9.., _) => types.composite(Kind::Struct, &format!("of_{size}"), size, &[]),
            ParamType(size, true) => types.int(&format!("s{size}"), size, 8 * size, IntEncoding::SIGNED),
            ParamType(size, false) => types.int(&format!("u{size}"), size, 8 * size, IntEncoding::UNSIGNED),
        }
    }

    /// The argument as a value of the type. A value that is computed has as many slots as the type.
    fn value(&self, argument: Argument) -> Argument {
        let ParamType(size, signed) = *self;
        let mut located = Located { size, signed, ..argument? };
        if let Location::Computed(computed) = &mut located.at {
            let mut slots = computed.slots.to_vec();
            slots.resize(size.div_ceil(8) as usize, Box::new([Op::Register(1)]));
            computed.slots = slots.into();
        }
        Ok(located)
    }
}

fn argument() -> BoxedStrategy<Argument> {
    prop_oneof![
        3 => located().prop_map(Ok),
        1 => prop::sample::select(&Missing::ALL[..]).prop_map(Err),
    ]
    .boxed()
}

/// The numbers of a site, before they are bent to what there is.
type SiteNumbers = ((u32, u8, u32, u8), (u16, u32, u32), [u32; 4], (Option<u32>, u8, u8));

fn site_numbers() -> impl Strategy<Value = SiteNumbers> {
    (
        (any::<u32>(), 0u8..3, 0u32..0x1000, any::<u8>()),
        (any::<u16>(), any::<u32>(), any::<u32>()),
        [0..u32::MAX, 0..200_000, 0..u32::MAX, 0..3000],
        (any::<Option<u32>>(), 0u8..16, 0u8..13),
    )
}

/// A random set of sites that does not contradict itself.
pub(crate) fn site_set() -> impl Strategy<Value = SiteSet> {
    let prototypes = prop::collection::vec(prop::collection::vec((argument(), 0..TYPES.len()), 0..5), 1..8);
    let new_functions = prop::collection::vec((0u8..6, 0usize..4), 0..6);
    let containers = prop::collection::vec((0u8..8, 0u64..0x3000, 0u64..0x1_0000), 1..6);
    let sites = prop::collection::vec(site_numbers(), 0..50);
    let parts = (prototypes, new_functions, containers, sites, 1usize..4, 1usize..5);
    parts.prop_map(|(prototypes, new_functions, containers, sites, sections, files)| {
        let (base_btf, base_functions) = base_btf();
        let mut types = SplitBtf::new(&Btf::parse(&base_btf).unwrap());
        let mut functions: Vec<Function> = (0..)
            .zip(base_functions)
            .map(|(parameters, (name, func))| Function { name, func, parameters, variadic: false })
            .collect();
        for (name, params) in new_functions {
            // Some have a name of the base's, some each other's.
            let name = if name < 2 { format!("base{name}") } else { format!("new{name}") };
            let params: Vec<(String, TypeId)> = (0..params).map(|i| (format!("p{i}"), 1)).collect();
            let (parameters, variadic) = (params.len() as u32, params.len() == 3);
            let proto = types.func_proto(2, &params, variadic);
            let func = types.func(&name, proto, Linkage::Static);
            functions.push(Function { name, func, parameters, variadic });
        }
        // Each prototype has a function of its own, with the types that its arguments are values of.
        let first_own = functions.len() as u32;
        let mut arguments: Vec<Box<[Argument]>> = Vec::new();
        for (nth, prototype) in prototypes.into_iter().enumerate() {
            let ids: Vec<TypeId> = prototype.iter().map(|&(_, ty)| TYPES[ty].add(&mut types)).collect();
            let params: Vec<(&str, TypeId)> = ids.iter().map(|&id| ("p", id)).collect();
            let variadic = nth % 3 == 2;
            let proto = types.func_proto(2, &params, variadic);
            let name = format!("own{nth}");
            let func = types.func(&name, proto, Linkage::Global);
            functions.push(Function { name, func, parameters: ids.len() as u32, variadic });
            arguments.push(prototype.into_iter().map(|(argument, ty)| TYPES[ty].value(argument)).collect());
        }
        // Nothing is known about the others.
        let first_empty = arguments.len() as u32;
        arguments.extend((0..8).map(|count| vec![Err(Missing::EntryValue); count].into()));
        let sections: Vec<Section> = [".text", ".init.text", ".text.unlikely"][..sections]
            .iter()
            .enumerate()
            .map(|(i, name)| Section { name: (*name).into(), address: BASE + 0x1000 * i as u64, size: 0x1000 })
            .collect();
        let containers: Vec<Container> = containers
            .into_iter()
            .map(|(name, offset, size)| Container {
                // Three functions' symbols, those made from them, and what sorts between.
                name: ["base0", "base1", "base1.isra.0", "base1.cold", "base1$x", "base10", "base1x", "base"]
                    [usize::from(name)]
                .to_owned(),
                address: BASE + offset,
                size,
                unprobeable: Unprobeable::from_code((size % 16) as u8),
            })
            .collect();
        let files: Vec<String> = (0..files).map(|i| format!("kernel/file{i}.c")).collect();
        let count = sites.len() as u32;
        let sites = sites
            .into_iter()
            .map(|((function, kind, offset, moved), (section, prototype, container), lines, (parent, marks, why))| {
                let section = section % sections.len() as u16;
                let line = |file: u32, line| match file as usize % (files.len() + 1) {
                    0 => SourceLine::UNKNOWN,
                    n => SourceLine { file: n as u32 - 1, line },
                };
                let function = function % functions.len() as u32;
                let of_own = |nth| prototype % 8 != 0 || functions[first_own as usize + nth as usize].parameters > 7;
                let prototype = match function.checked_sub(first_own) {
                    Some(nth) if of_own(nth) => nth,
                    _ => first_empty + functions[function as usize].parameters,
                };
                Site {
                    function,
                    kind: SiteKind::from_code(kind).unwrap(),
                    address: sections[usize::from(section)].address + u64::from(offset),
                    moved,
                    section,
                    prototype,
                    container: container % containers.len() as u32,
                    source: line(lines[0], lines[1]),
                    declared: line(lines[2], lines[3]),
                    parent: parent.map(|p| p % count),
                    marks: Marks(marks),
                    unprobeable: Unprobeable::from_code(why),
                }
            })
            .collect();
        SiteSet {
            module: None,
            machine: Machine::X86_64,
            build_id: (0..20).collect(),
            base: BASE,
            base_btf,
            types,
            sections,
            functions,
            prototypes: arguments,
            containers,
            files,
            sites,
        }
    })
}

/// Random ranges of copies that do not contradict each other, in the first 0x4000 bytes.
pub(crate) fn ranges() -> impl Strategy<Value = Ranges> {
    let place = || (0u32..4, 0u32..3000).prop_map(|(file, line)| (file, line));
    let named = prop::collection::vec((0u8..8, place()), 1..6);
    let copies = prop::collection::vec((any::<u32>(), any::<u32>(), place()), 0..12);
    let trees = prop::collection::vec((prop::option::weighted(0.8, any::<u32>()), copies), 1..6);
    let runs = prop::collection::vec((0u32..90, any::<u32>(), place()), 1..12);
    let pieces = prop::collection::vec((0u64..200, any::<u32>(), runs), 0..12);
    let big = prop_oneof![9 => Just(0u64), 1 => Just(0x12_3456u64)];
    (named, trees, pieces, any::<bool>(), big).prop_map(|(named, trees, pieces, has_lines, big)| {
        let files: Vec<String> = ["a.c", "b.c", "kernel/file0.c"].map(str::to_owned).into();
        let line = |(file, line): (u32, u32)| match file {
            3 => SourceLine { file: SourceLine::NO_FILE, line },
            file => SourceLine { file, line },
        };
        let functions: Vec<Named> = named
            .into_iter()
            .map(|(name, declared)| Named { name: format!("base{name}"), declared: line(declared) })
            .collect();
        let count = functions.len() as u32;
        let mut ranges = Ranges { functions, files, has_lines, ..Ranges::default() };
        for (function, copies) in trees {
            let first = ranges.copies.len() as u32;
            for (before, (function, up, call)) in (0u32..).zip(copies) {
                // The copy before, or one around it.
                let around = std::iter::successors(Some(before), |&at| {
                    Some(ranges.copies[(first + at.checked_sub(1)?) as usize].parent)
                });
                let around: Vec<u32> = around.collect();
                let parent = around[up as usize % around.len()];
                ranges.copies.push(Copy { function: function % count, parent, call: line(call) });
            }
            let copies = first..ranges.copies.len() as u32;
            ranges.trees.push(Tree { function: function.map(|function| function % count), copies });
        }
        let mut here = BASE;
        for (gap, tree, runs) in pieces {
            here += gap + big;
            let tree = tree % ranges.trees.len() as u32;
            let copies = ranges.trees[tree as usize].copies.len() as u32;
            let (address, first) = (here, ranges.runs.len() as u32);
            for (size, copy, at) in runs {
                here += u64::from(size);
                let line = if has_lines { line(at) } else { SourceLine::UNKNOWN };
                ranges.runs.push(Run { size, copy: copy % (copies + 1), line });
            }
            ranges.pieces.push(Piece { address, tree, runs: first..ranges.runs.len() as u32 });
        }
        ranges
    })
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer plan`: the sites of functions for other loaders: where and how to put probes, and where the arguments are
//! there.

use crate::Failure;
use crate::check::machine;
use crate::target::{self, About};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use siteseer::Unavailable;
use siteseer::internals::function::{Candidate, Parameter, Prototype};
use siteseer::internals::outline::{self, Outline};
use siteseer::internals::pattern::Pattern;
use siteseer::internals::section::Kind;
use siteseer_sites::Machine;
use siteseer_sites::location::{Argument, Located, Location, Op};
use siteseer_sites::site::Marks;
use std::io::{self, Write};

/// Print for other loaders where to put probes: sites as symbol and offset, the mechanism, and where the arguments are
///
/// Attaches nothing. Without --vmlinux and --sites, the kernel is the running one (which requires root). docs/plan.md
/// describes the format.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Names of functions in the source, or patterns as for `siteseer list`
    #[arg(required = true, value_name = "NAME", add = crate::complete::functions())]
    functions: Vec<Pattern>,
    /// At which end of the function
    #[arg(long, value_enum, value_name = "END", default_value = "entry")]
    at: End,
    #[command(flatten)]
    about: About,
    /// Print JSON, which is the only form. `siteseer explain` says it in words
    #[arg(long, required = true)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum End {
    /// Where the body starts
    Entry,
    /// Where it returns
    Return,
}

/// How many functions are printed at once.
const MOST: usize = 4096;
/// The name of the format, with its version.
const SCHEMA: &str = "siteseer-plan/1";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = arguments.about.target(&arguments.functions)?;
    let chosen = target::choose(&target, &arguments.functions, MOST)?;
    let kind = match arguments.at {
        End::Entry => Kind::Fentry,
        End::Return => Kind::Fexit,
    };
    let (mut functions, mut id) = (Vec::new(), 0);
    for function in target::functions(&target, &chosen)? {
        for outline in outline::outline(&target, &function, kind)? {
            functions.push(one(&outline, target.machine(), &mut id));
        }
    }
    let all = json!({
        "schema": SCHEMA,
        "build_id": target.kernel().build_id.to_string(),
        "machine": machine(target.machine()),
        "at": if kind.is_exit() { "return" } else { "entry" },
        "functions": functions,
    });
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}

fn one(outline: &Outline, machine: Machine, id: &mut u64) -> Value {
    let function = &outline.function;
    let prototype = function.prototypes.first();
    let mut sites = Vec::new();
    for (nth, site) in function.candidates.iter().enumerate() {
        let reached = outline.reached.get(nth).and_then(|reached| reached.as_ref().ok());
        let obstacle = outline.reached.get(nth).and_then(|reached| reached.as_ref().err());
        let in_the_way = outline.in_the_way.get(nth).and_then(Option::as_ref);
        sites.push(json!({
            "id": *id,
            "kind": site.kind.word(),
            "module": site.module.as_deref(),
            "symbol": site.symbol,
            "offset": site.offset(),
            // What a module's addresses are at link time is made up.
            "address": site.module.is_none().then(|| format!("{:#x}", site.link_address)),
            "moved": site.marks.signed_distance(site.moved),
            "file": site.source.as_ref().map(|place| &place.file),
            "line": site.source.as_ref().map(|place| place.line),
            "marks": marks(site),
            "mechanism": reached.map(|mechanism| mechanism.word()),
            "reason": obstacle.map(|reason| reason.key()),
            "why": obstacle.map(ToString::to_string),
            "in_the_way": in_the_way.map(|reason| json!({ "reason": reason.key(), "why": reason.to_string() })),
            "arguments": arguments(prototype, site, machine),
        }));
        *id += 1;
    }
    json!({
        "function": function.name,
        "prototype": prototype.filter(|prototype| prototype.func.is_some()).map(|prototype| &prototype.text),
        "parameters": prototype.map_or_else(Vec::new, |prototype| prototype.parameters.iter().map(parameter).collect()),
        "returns": prototype.and_then(|prototype| prototype.result.as_ref()).map(parameter),
        "variadic": prototype.is_some_and(|prototype| prototype.variadic),
        "sites": sites,
    })
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "type": parameter.type_name,
        "size": parameter.size,
        "signed": parameter.signed,
        "slots": parameter.slots,
    })
}

/// The marks of a site, by name.
fn marks(site: &Candidate) -> Vec<&'static str> {
    const NAMES: [(Marks, &str); 6] = [
        (Marks::MAY_REPEAT, "may_repeat"),
        (Marks::ENTRY_UNCERTAIN, "entry_uncertain"),
        (Marks::SIGNATURE_CHANGED, "signature_changed"),
        (Marks::LATE_VIEW, "late_view"),
        (Marks::RETURN_KEPT, "return_kept"),
        (Marks::MAY_MISS, "may_miss"),
    ];
    NAMES.iter().filter(|(mark, _)| site.marks.contains(*mark)).map(|(_, name)| *name).collect()
}

fn arguments(prototype: Option<&Prototype>, site: &Candidate, machine: Machine) -> Vec<Value> {
    let count = prototype.map_or(0, |prototype| prototype.parameters.len());
    (0..count).map(|nth| argument(site.arguments.get(nth), site.available(nth, true).err(), machine)).collect()
}

fn argument(argument: Option<&Argument>, missing: Option<Unavailable>, machine: Machine) -> Value {
    let located = argument.and_then(|argument| argument.as_ref().ok());
    json!({
        "location": located.map(|located| location(located, machine)),
        "text": located.map(|located| located.display(machine).to_string()),
        "certain": located.is_some_and(Located::is_certain),
        "doubt": located.and_then(|located| located.doubt).map(|doubt| json!({ "key": doubt.key(), "why": doubt.to_string() })),
        "missing": missing.map(|why| json!({ "key": why.key(), "why": why.to_string() })),
    })
}

/// A location for machines. Values of 64 bits are text in hexadecimal: JSON's numbers do not hold them.
fn location(located: &Located, machine: Machine) -> Value {
    let register = |number| register(number, machine);
    let (size, signed) = (located.size, located.signed);
    let at = match &located.at {
        Location::Constant(value) => json!({ "value": format!("{value:#x}") }),
        Location::Address(address) => json!({ "address": format!("{address:#x}") }),
        Location::Register(number) => json!({ "register": register(*number) }),
        Location::RegisterPair(first, second) => json!({ "registers": [register(*first), register(*second)] }),
        Location::RegisterOffset(number, offset) | Location::Memory(number, offset) => {
            json!({ "register": register(*number), "offset": offset })
        }
        Location::Computed(computed) => {
            let slot = |slot: &[Op]| slot.iter().map(|op| operation(*op, machine)).collect::<Vec<_>>();
            json!({ "slots": computed.slots.iter().map(|ops| slot(ops)).collect::<Vec<_>>() })
        }
    };
    let mut all = json!({ "kind": located.at.kind().key(), "size": size, "signed": signed });
    if let (Some(all), Value::Object(at)) = (all.as_object_mut(), at) {
        all.extend(at);
    }
    all
}

fn register(number: siteseer_sites::machine::Register, machine: Machine) -> String {
    machine.register_name(number).map_or_else(|| format!("reg{number}"), str::to_owned)
}

/// A step of a stack machine.
fn operation(op: Op, machine: Machine) -> Value {
    let plain = |word: &str| json!({ "op": word });
    match op {
        Op::Constant(value) => json!({ "op": "constant", "value": format!("{value:#x}") }),
        Op::Address(address) => json!({ "op": "address", "address": format!("{address:#x}") }),
        Op::Register(number) => json!({ "op": "register", "register": register(number, machine) }),
        Op::Load(bytes) => json!({ "op": "load", "bytes": bytes }),
        Op::ZeroExtend(bits) => json!({ "op": "zero_extend", "bits": bits }),
        Op::SignExtend(bits) => json!({ "op": "sign_extend", "bits": bits }),
        Op::Neg => plain("neg"),
        Op::Not => plain("not"),
        Op::Add => plain("add"),
        Op::Sub => plain("sub"),
        Op::Mul => plain("mul"),
        Op::DivU => plain("div_u"),
        Op::ModU => plain("mod_u"),
        Op::And => plain("and"),
        Op::Or => plain("or"),
        Op::Xor => plain("xor"),
        Op::Shl => plain("shl"),
        Op::Shr => plain("shr"),
        Op::Sar => plain("sar"),
        Op::Eq => plain("eq"),
        Op::Ne => plain("ne"),
        Op::LtS => plain("lt_s"),
        Op::LeS => plain("le_s"),
        Op::LtU => plain("lt_u"),
        Op::LeU => plain("le_u"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_structured() {
        let of = |at| location(&Located::certain(4, true, at), Machine::X86_64);
        let all = |rest: Value| {
            let mut all = json!({ "size": 4, "signed": true });
            all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            all
        };
        // DWARF's numbers: 5 is rdi, 4 is rsi, 7 is rsp.
        assert_eq!(of(Location::Register(5)), all(json!({ "kind": "register", "register": "rdi" })));
        assert_eq!(of(Location::Memory(7, -8)), all(json!({ "kind": "memory", "register": "rsp", "offset": -8 })));
        assert_eq!(
            of(Location::RegisterPair(5, 4)),
            all(json!({ "kind": "register_pair", "registers": ["rdi", "rsi"] }))
        );
        assert_eq!(of(Location::Constant(u64::MAX)), all(json!({ "kind": "constant", "value": "0xffffffffffffffff" })));
        let slots = Box::from([Box::from([Op::Register(5), Op::Load(8), Op::Constant(255), Op::And])]);
        let computed = Location::Computed(siteseer_sites::location::Computed { slots });
        let steps = json!([
            { "op": "register", "register": "rdi" },
            { "op": "load", "bytes": 8 },
            { "op": "constant", "value": "0xff" },
            { "op": "and" },
        ]);
        assert_eq!(of(computed), all(json!({ "kind": "computed", "slots": [steps] })));
    }
}

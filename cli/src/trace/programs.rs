// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loading the embedded programs: one object for each set of constants that the functions need, all with the same maps.

use super::members::{self, Member};
use crate::Failure;
use crate::filter::Filter;
use crate::filter::kernel::{self, Calls, compile};
use libbpf_rs::{Map, MapCore, Object, ObjectBuilder, ProgramMut};
use siteseer::internals::function::Function;
use siteseer::internals::target::Types;
use siteseer_bpf_progs::{set_constant, set_constant_bytes};
use std::os::fd::AsFd;

/// An embedded object, and the program of it that is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Embedded {
    pub(super) elf: &'static [u8],
    pub(super) program: &'static str,
}

/// Constants of a program by name.
pub(super) type Constants = Vec<(&'static str, Vec<u8>)>;

/// A constant of four bytes.
pub(super) fn word(name: &'static str, value: u32) -> (&'static str, Vec<u8>) {
    (name, value.to_ne_bytes().to_vec())
}

/// The constants that hold a filter for a function, and why the program cannot decide all of it. `returns` is whether
/// the filter is also that of a program at returns: at a beginning, a condition on what is returned is neither true nor
/// false.
pub(super) fn filter_constants(
    filter: Option<&Filter>,
    function: &Function,
    members: &[Member],
    types: &Types<'_>,
    returns: bool,
) -> (Constants, Option<String>) {
    let Some(filter) = filter else { return (Constants::new(), None) };
    let compiled = compile(filter, &Calls { returns, ..calls(function, members, types) });
    let (operations, texts) = compiled.constants;
    (vec![("filter", operations), ("filter_texts", texts)], compiled.left)
}

/// The constant by which a program reads members of structures; none if there are none.
pub(super) fn member_constants(members: &[Member]) -> Result<Constants, Failure> {
    Ok(if members.is_empty() { Constants::new() } else { vec![("fields", members::constants(members)?)] })
}

/// A function as far as filters look at it.
pub(super) fn calls<'f, 'b>(function: &'f Function, members: &'f [Member], types: &'f Types<'b>) -> Calls<'f, 'b> {
    let prototypes = function.prototypes.iter();
    let compared = |member: &'f Member| {
        member.is_there().then(|| kernel::Member { name: &member.name, ty: &member.ty, is_text: member.is_text() })
    };
    Calls {
        prototypes: prototypes.map(|known| (known, types.of(known.module.as_deref()))).collect(),
        members: members.iter().map(compared).collect(),
        returns: false,
    }
}

/// The objects that are loaded.
pub(super) struct Programs {
    /// Only this process, and never that one.
    tgids: [u32; 2],
    /// How many functions there are.
    functions: u32,
    loaded: Vec<(Embedded, Constants, Object)>,
}

impl Programs {
    pub(super) fn new(only: u32, functions: usize) -> Programs {
        Programs { tgids: [only, std::process::id()], functions: functions as u32, loaded: Vec::new() }
    }

    /// The object of these constants, loaded if it is not yet; its number.
    pub(super) fn load(&mut self, embedded: Embedded, constants: Constants) -> Result<usize, Failure> {
        let same = |known: &(Embedded, Constants, Object)| known.0.program == embedded.program && known.1 == constants;
        if let Some(known) = self.loaded.iter().position(same) {
            return Ok(known);
        }
        let Embedded { elf, program } = embedded;
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(elf)?;
        set_constant(&mut open, elf, "only_tgid", self.tgids[0])?;
        set_constant(&mut open, elf, "except_tgid", self.tgids[1])?;
        for (name, value) in &constants {
            set_constant_bytes(&mut open, elf, name, value)?;
        }
        for mut other in open.progs_mut() {
            if other.name() != program {
                other.set_autoload(false);
            }
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            // It takes four megabytes.
            if name == "stacks" && program != "count_stacks" {
                map.set_autocreate(false)?;
                continue;
            }
            if name == "functions" || name == "latencies" {
                map.set_max_entries(self.functions.max(1))?;
            }
            // Constants are each object's own.
            if let Some(shared) = self.map(&name).filter(|_| !name.contains('.')) {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        self.loaded.push((embedded, constants, open.load()?));
        Ok(self.loaded.len() - 1)
    }

    /// The program of an object.
    pub(super) fn program(&self, nth: usize) -> Result<ProgramMut<'_>, Failure> {
        let (embedded, _, object) = self.loaded.get(nth).ok_or("an embedded program is not loaded")?;
        let mut programs = object.progs_mut();
        let program = programs.find(|program| program.name() == embedded.program);
        Ok(program.ok_or("the embedded program is missing")?)
    }

    fn map(&self, name: &str) -> Option<Map<'_>> {
        self.loaded.iter().find_map(|(_, _, object)| object.maps().find(|map| map.name() == name))
    }

    /// A map that the objects share.
    pub(super) fn shared_map(&self, name: &str) -> Result<Map<'_>, Failure> {
        Ok(self.map(name).ok_or("the embedded program lacks a map")?)
    }

    /// What a counter for each processor comes to.
    pub(super) fn sum(&self, map: &str) -> Result<u64, Failure> {
        self.sum_of(map, 0)
    }

    /// The same of one of several counters.
    pub(super) fn sum_of(&self, map: &str, nth: u32) -> Result<u64, Failure> {
        let per_cpu = self.shared_map(map)?.lookup_percpu(&nth.to_ne_bytes(), libbpf_rs::MapFlags::ANY)?;
        Ok(per_cpu.unwrap_or_default().iter().map(|value| counter(value)).sum())
    }
}

/// A counter of one processor.
pub(super) fn counter(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use siteseer::internals::object_file::read_all;
    use siteseer::internals::program::analyse;

    /// A program that reads an argument in the ordinary way is not attached where the argument is missing.
    #[test]
    fn the_programs_require_no_argument() {
        use siteseer_bpf_progs::{
            COUNT, LATENCY, TRACE, TRACE_FIELDS, TRACE_FIELDS_RETURN, TRACE_FILTERED, TRACE_RETURN, TRACE_STACK,
            TRACE_TIMED, TRACE_TREE,
        };
        let mut count = 0;
        let traces = [TRACE, TRACE_FILTERED, TRACE_RETURN, TRACE_FIELDS, TRACE_FIELDS_RETURN, TRACE_TIMED, TRACE_STACK];
        for elf in traces.into_iter().chain([COUNT, LATENCY, TRACE_TREE]) {
            for program in read_all(elf).unwrap().0 {
                let uses = analyse(&program.program).unwrap();
                let name = &program.program.name;
                assert!(uses.slots.is_empty() && uses.indexed.is_empty(), "{name} requires arguments");
                count += 1;
            }
        }
        assert_eq!(count, 15, "one object has two of them, and two have three");
    }
}

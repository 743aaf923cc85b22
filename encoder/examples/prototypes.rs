// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compares prototypes found from DWARF with those that pahole has given the functions in the image's BTF.
//!
//! For every function that is defined once and is one FUNC in the BTF, the types of its parameters and of what it
//! returns are found again from its DWARF, and must be the numbers that its FUNC_PROTO has. Prints the rate and the
//! first mismatches, and fails if less than 99% agree.
//!
//! Usage: `cargo run --release --example prototypes -- VMLINUX`

use gimli::{AttributeValue, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader, UnitOffset};
use object::{Object, ObjectSection};
use rayon::prelude::*;
use siteseer_encoder::types::{BaseIndex, TypeRef, UnitTypes};
use siteseer_sites::btf::{Btf, Kind, declaration};
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A function's prototype as found from DWARF.
struct Found {
    name: Vec<u8>,
    ret: TypeRef,
    params: Vec<TypeRef>,
    variadic: bool,
}

fn functions<'a>(
    base: &BaseIndex<'a>,
    dwarf: &Dwarf<Slice<'a>>,
    headers: &[UnitHeader<Slice<'a>>],
    header: UnitHeader<Slice<'a>>,
) -> Result<Vec<Found>, gimli::Error> {
    let unit = dwarf.unit(header)?;
    let mut types = UnitTypes::new(base, dwarf, headers, &unit);
    let mut found = Vec::new();
    let mut definitions = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() == gimli::DW_TAG_subprogram
            && (entry.has_attr(gimli::DW_AT_low_pc) || entry.has_attr(gimli::DW_AT_ranges))
        {
            let origin = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
                .into_iter()
                .find_map(|name| entry.attr_value(name));
            match origin {
                None => definitions.push(entry.offset()),
                Some(AttributeValue::UnitRef(offset)) => definitions.push(offset),
                Some(_) => {}
            }
        }
    }
    for definition in definitions {
        if let Some(function) = prototype(dwarf, &unit, &mut types, definition)? {
            found.push(function);
        }
    }
    Ok(found)
}

fn prototype<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    types: &mut UnitTypes<'_, 'a>,
    at: UnitOffset,
) -> Result<Option<Found>, gimli::Error> {
    let mut tree = unit.entries_tree(Some(at))?;
    let root = tree.root()?;
    let Some(name) = root.entry().attr_value(gimli::DW_AT_name) else { return Ok(None) };
    let name = dwarf.attr_string(unit, name)?.to_vec();
    let start = unit.header.debug_info_offset().map_or(0, |offset| offset.0);
    let mut resolve = |value: Option<AttributeValue<Slice<'a>>>| match value {
        None => TypeRef::Void,
        Some(AttributeValue::UnitRef(offset)) => types.resolve(start + offset.0),
        Some(AttributeValue::DebugInfoRef(offset)) => types.resolve(offset.0),
        Some(_) => TypeRef::Void,
    };
    let ret = resolve(root.entry().attr_value(gimli::DW_AT_type));
    let (mut params, mut variadic) = (Vec::new(), false);
    let mut children = root.children();
    while let Some(child) = children.next()? {
        match child.entry().tag() {
            gimli::DW_TAG_formal_parameter => params.push(resolve(child.entry().attr_value(gimli::DW_AT_type))),
            gimli::DW_TAG_unspecified_parameters => variadic = true,
            _ => {}
        }
    }
    Ok(Some(Found { name, ret, params, variadic }))
}

fn compare(path: &str) -> Result<bool, Box<dyn Error>> {
    let image = std::fs::read(path)?;
    let file = object::File::parse(&*image)?;
    let section = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
    let dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(Slice::new(section(id.name()), LittleEndian)))?;
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        headers.push(header);
    }
    let btf = Btf::parse(section(".BTF"))?;
    let start = Instant::now();
    let base = BaseIndex::new(&btf);
    println!("index of {} types: {:?}", btf.end_id(), start.elapsed());
    let start = Instant::now();
    let found: Vec<Vec<Found>> =
        headers.par_iter().map(|header| functions(&base, &dwarf, &headers, *header)).collect::<Result<_, _>>()?;
    println!("{} units: {:?}", headers.len(), start.elapsed());

    let mut by_name: HashMap<&[u8], Vec<&Found>> = HashMap::new();
    for function in found.iter().flatten() {
        by_name.entry(&function.name).or_default().push(function);
    }
    let (mut equal, mut different, mut ambiguous, mut absent, mut with_new) = (0u32, 0u32, 0u32, 0u32, 0u32);
    for (name, definitions) in by_name {
        let ids = base.named(Kind::Func, name);
        match (ids, &definitions[..]) {
            ([], _) => absent += 1,
            ([id], [function]) => {
                let is_new = |ty: &TypeRef| matches!(ty, TypeRef::New(_));
                with_new += u32::from(is_new(&function.ret) || function.params.iter().any(is_new));
                if base.function(name, &function.ret, &function.params, function.variadic) == Some(*id) {
                    equal += 1;
                } else {
                    different += 1;
                    if different <= 40 {
                        let proto = btf.ty(*id).and_then(|func| func.target()).unwrap_or(0);
                        println!("{}", declaration(&btf, proto, &String::from_utf8_lossy(name)));
                        println!("    {:?} {:?}", function.ret, function.params);
                    }
                }
            }
            _ => ambiguous += 1,
        }
    }
    let rate = f64::from(equal) / f64::from((equal + different).max(1));
    println!("equal {equal}, different {different} ({with_new} with new types): {:.3}%", rate * 100.0);
    println!("not compared: {ambiguous} names with several definitions, {absent} without a FUNC");
    Ok(rate >= 0.99)
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: prototypes VMLINUX");
        return ExitCode::from(2);
    };
    match compare(&path) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

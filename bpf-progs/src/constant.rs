// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Setting a program's constants (`const volatile` variables) before it is loaded.

use libbpf_rs::{OpenMapMut, OpenObject};
use object::{Object, ObjectSection, ObjectSymbol};

/// Why a constant cannot be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot set the constant {name} of an embedded program: {why}")]
pub struct ConstantError {
    name: String,
    why: String,
}

/// Sets a constant of an opened object to a value. `elf` is what the object was opened from.
///
/// # Errors
/// If the object has no such constant of four bytes.
pub fn set_constant(open: &mut OpenObject, elf: &[u8], name: &str, value: u32) -> Result<(), ConstantError> {
    set_constant_bytes(open, elf, name, &value.to_ne_bytes())
}

/// Sets a constant of any type: a structure, an array.
///
/// # Errors
/// If the object has no such constant of so many bytes.
pub fn set_constant_bytes(open: &mut OpenObject, elf: &[u8], name: &str, value: &[u8]) -> Result<(), ConstantError> {
    let error = |why: &str| ConstantError { name: name.to_owned(), why: why.to_owned() };
    let file = object::File::parse(elf).map_err(|why| error(&why.to_string()))?;
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).ok_or_else(|| error("there is none"))?;
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    if section.and_then(|section| section.name().ok().map(str::to_owned)).as_deref() != Some(".rodata") {
        return Err(error("it is not in .rodata"));
    }
    if symbol.size() != value.len() as u64 {
        return Err(error(&format!("it is of {} bytes, not {}", symbol.size(), value.len())));
    }
    let is_rodata = |map: &OpenMapMut<'_>| map.name().to_string_lossy().ends_with(".rodata");
    let mut map = open.maps_mut().find(is_rodata).ok_or_else(|| error("the object has no .rodata"))?;
    let data = map.initial_value_mut().ok_or_else(|| error(".rodata has no content"))?;
    let at = usize::try_from(symbol.address()).unwrap_or(usize::MAX);
    let bytes = data.get_mut(at..at.saturating_add(value.len())).ok_or_else(|| error("it is outside .rodata"))?;
    bytes.copy_from_slice(value);
    Ok(())
}

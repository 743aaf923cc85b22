// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The walk over the DIEs.

use super::{Call, Evidence, Instance, Presence, Reader};
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, Expression, Operation, RawLocListEntry, Reader as _, Unit,
    UnitRef, constants as dw,
};

/// How far after the entry a location still counts as near it: clang often begins one an instruction or two later.
pub(super) const NEAR: u64 = 16;
/// How many origins are followed: an abstract instance, its declaration, and room to spare.
const ORIGINS: usize = 8;

type Die<'a> = DebuggingInformationEntry<Reader<'a>>;

/// Looks at all units.
pub(super) fn collect<'a>(dwarf: &Dwarf<Reader<'a>>, evidence: &mut Evidence) -> Result<(), gimli::Error> {
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    let walk = Walk { dwarf, units: &units };
    for unit in &units {
        walk.unit(unit, evidence)?;
    }
    evidence.instances.sort_by(|a, b| (&a.function, a.entry).cmp(&(&b.function, b.entry)));
    Ok(())
}

struct Walk<'w, 'a> {
    dwarf: &'w Dwarf<Reader<'a>>,
    units: &'w [Unit<Reader<'a>>],
}

/// What an open DIE is to those below it.
enum Scope {
    /// An instance: index into the evidence.
    Instance(usize),
    /// A function with declared parameters.
    Function(String),
    /// Neither.
    Other,
}

impl<'a> Walk<'_, 'a> {
    fn unit(&self, unit: &Unit<Reader<'a>>, evidence: &mut Evidence) -> Result<(), gimli::Error> {
        let mut open: Vec<(isize, Scope)> = Vec::new();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            while open.last().is_some_and(|(at, _)| *at >= depth) {
                open.pop();
            }
            let scope = match entry.tag() {
                dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine => self.function(unit, entry, evidence)?,
                dw::DW_TAG_formal_parameter => {
                    match open.last() {
                        Some((_, Scope::Instance(index))) => self.parameter(unit, entry, *index, evidence)?,
                        Some((_, Scope::Function(function))) => {
                            if let Some(name) = self.name(unit, entry)? {
                                evidence.parameters.entry(function.clone()).or_default().insert(name);
                            }
                        }
                        _ => {}
                    }
                    Scope::Other
                }
                dw::DW_TAG_call_site | dw::DW_TAG_GNU_call_site => {
                    self.call(unit, entry, evidence)?;
                    Scope::Other
                }
                _ => Scope::Other,
            };
            open.push((depth, scope));
        }
        Ok(())
    }

    fn function(
        &self,
        unit: &Unit<Reader<'a>>,
        entry: &Die<'a>,
        evidence: &mut Evidence,
    ) -> Result<Scope, gimli::Error> {
        let Some(function) = self.name(unit, entry)? else { return Ok(Scope::Other) };
        if let Some(AttributeValue::CallingConvention(dw::DW_CC_nocall)) =
            entry.attr_value(dw::DW_AT_calling_convention)
        {
            evidence.changed.insert(function.clone());
        }
        let Some(start) = self.entry_address(unit, entry)? else { return Ok(Scope::Function(function)) };
        let Some(holder) = evidence.holder(start).map(|symbol| symbol.name.clone()) else { return Ok(Scope::Other) };
        evidence.instances.push(Instance {
            function,
            inlined: entry.tag() == dw::DW_TAG_inlined_subroutine,
            entry: start,
            holder,
            parameters: Default::default(),
        });
        Ok(Scope::Instance(evidence.instances.len() - 1))
    }

    fn parameter(
        &self,
        unit: &Unit<Reader<'a>>,
        entry: &Die<'a>,
        instance: usize,
        evidence: &mut Evidence,
    ) -> Result<(), gimli::Error> {
        let Some(name) = self.name(unit, entry)? else { return Ok(()) };
        let Some(instance) = evidence.instances.get_mut(instance) else { return Ok(()) };
        let presence = self.presence(unit, entry, instance.entry)?;
        evidence.parameters.entry(instance.function.clone()).or_default().insert(name.clone());
        instance.parameters.insert(name, presence);
        Ok(())
    }

    fn call(&self, unit: &Unit<Reader<'a>>, entry: &Die<'a>, evidence: &mut Evidence) -> Result<(), gimli::Error> {
        let origin = [dw::DW_AT_call_origin, dw::DW_AT_abstract_origin];
        let Some(origin) = origin.into_iter().find_map(|name| entry.attr_value(name)) else { return Ok(()) };
        let Some(function) = self.name_of(unit, origin, ORIGINS)? else { return Ok(()) };
        // The address after the call, or that of a tail call.
        let after = [dw::DW_AT_call_return_pc, dw::DW_AT_low_pc].into_iter().find_map(|name| entry.attr_value(name));
        let at = match (after, entry.attr_value(dw::DW_AT_call_pc)) {
            (Some(after), _) => self.dwarf.attr_address(unit, after)?.map(|address| address.wrapping_sub(1)),
            (None, Some(at)) => self.dwarf.attr_address(unit, at)?,
            (None, None) => None,
        };
        if let Some(holder) = at.and_then(|at| evidence.holder(at)).map(|symbol| symbol.name.clone()) {
            evidence.calls.push(Call { function, holder });
        }
        Ok(())
    }

    /// Where what a DIE describes begins.
    fn entry_address(&self, unit: &Unit<Reader<'a>>, entry: &Die<'a>) -> Result<Option<u64>, gimli::Error> {
        let low = match entry.attr_value(dw::DW_AT_low_pc) {
            Some(low) => self.dwarf.attr_address(unit, low)?,
            None => None,
        };
        if let Some(value) = entry.attr_value(dw::DW_AT_entry_pc) {
            if let Some(offset) = value.udata_value() {
                // DWARF 5: a constant is an offset from the base address.
                return Ok(low.map(|low| low.wrapping_add(offset)));
            }
            return self.dwarf.attr_address(unit, value);
        }
        if low.is_some() {
            return Ok(low);
        }
        let mut ranges = self.dwarf.die_ranges(unit, entry)?;
        Ok(ranges.next()?.map(|range| range.begin))
    }

    /// The name of a DIE, or of what it comes from.
    fn name(&self, unit: &Unit<Reader<'a>>, entry: &Die<'a>) -> Result<Option<String>, gimli::Error> {
        self.name_within(unit, entry, ORIGINS)
    }

    fn name_within(
        &self,
        unit: &Unit<Reader<'a>>,
        entry: &Die<'a>,
        left: usize,
    ) -> Result<Option<String>, gimli::Error> {
        if let Some(name) = entry.attr_value(dw::DW_AT_name) {
            let name = self.dwarf.attr_string(unit, name)?;
            return Ok(Some(name.to_string_lossy()?.into_owned()));
        }
        for origin in [dw::DW_AT_abstract_origin, dw::DW_AT_specification] {
            if let Some(origin) = entry.attr_value(origin) {
                return self.name_of(unit, origin, left);
            }
        }
        Ok(None)
    }

    /// The name of what a reference leads to, in this unit or, with LTO, in another.
    fn name_of(
        &self,
        unit: &Unit<Reader<'a>>,
        reference: AttributeValue<Reader<'a>>,
        left: usize,
    ) -> Result<Option<String>, gimli::Error> {
        let Some(left) = left.checked_sub(1) else { return Ok(None) };
        match reference {
            AttributeValue::UnitRef(offset) => self.name_within(unit, &unit.entry(offset)?, left),
            AttributeValue::DebugInfoRef(offset) => {
                for unit in self.units {
                    if let Some(inside) = offset.to_unit_offset(&unit.header) {
                        return self.name_within(unit, &unit.entry(inside)?, left);
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Whether a parameter has a constant or a location where its function's copy begins.
    fn presence(&self, unit: &Unit<Reader<'a>>, entry: &Die<'a>, pc: u64) -> Result<Presence, gimli::Error> {
        const EVERYWHERE: Presence = Presence { at_entry: true, near: true };
        if entry.attr_value(dw::DW_AT_const_value).is_some() {
            return Ok(EVERYWHERE);
        }
        let Some(value) = entry.attr_value(dw::DW_AT_location) else { return Ok(Presence::default()) };
        if let AttributeValue::Exprloc(expression) = &value {
            return Ok(if is_value(expression, unit)? { EVERYWHERE } else { Presence::default() });
        }
        let Some(list) = self.dwarf.attr_locations_offset(unit, value)? else { return Ok(Presence::default()) };
        let unit_ref = UnitRef::new(self.dwarf, unit);
        let mut raw = self.dwarf.raw_locations(unit, list)?;
        let mut base = unit.low_pc;
        let mut presence = Presence::default();
        // Not gimli's own iterator: it passes over entries of no width, which hold between two views of one address.
        while let Some(entry) = raw.next()? {
            let (begin, end, data) = match entry {
                RawLocListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawLocListEntry::BaseAddressx { addr } => {
                    base = unit_ref.address(addr)?;
                    continue;
                }
                RawLocListEntry::StartxEndx { begin, end, data } => {
                    (unit_ref.address(begin)?, unit_ref.address(end)?, data)
                }
                RawLocListEntry::StartxLength { begin, length, data } => {
                    let begin = unit_ref.address(begin)?;
                    (begin, begin.wrapping_add(length), data)
                }
                RawLocListEntry::DefaultLocation { data } => (0, u64::MAX, data),
                RawLocListEntry::AddressOrOffsetPair { begin, end, data }
                | RawLocListEntry::OffsetPair { begin, end, data } => {
                    (base.wrapping_add(begin), base.wrapping_add(end), data)
                }
                RawLocListEntry::StartEnd { begin, end, data } => (begin, end, data),
                RawLocListEntry::StartLength { begin, length, data } => (begin, begin.wrapping_add(length), data),
            };
            if !is_value(&data, unit)? {
                continue;
            }
            presence.at_entry |= begin == pc || (begin..end).contains(&pc);
            presence.near |= presence.at_entry || (pc..pc.saturating_add(NEAR)).contains(&begin);
        }
        Ok(presence)
    }
}

/// Whether an expression says where a value is. One that goes by a value at another moment, or by another function's
/// parameter, does not: that is what is written of a parameter that is gone.
fn is_value<'a>(expression: &Expression<Reader<'a>>, unit: &Unit<Reader<'a>>) -> Result<bool, gimli::Error> {
    let mut operations = expression.clone().operations(unit.encoding());
    let mut any = false;
    while let Some(operation) = operations.next()? {
        any = true;
        if matches!(
            operation,
            Operation::EntryValue { .. }
                | Operation::ParameterRef { .. }
                | Operation::VariableValue { .. }
                | Operation::ImplicitPointer { .. }
                | Operation::Call { .. }
        ) {
            return Ok(false);
        }
    }
    Ok(any)
}

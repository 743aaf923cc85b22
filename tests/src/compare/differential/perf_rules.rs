// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What perf's rules make of DWARF.
//!
//! To say why perf prints what it prints, its rules are followed here: where they lead to what it printed, they explain
//! it.

use super::evidence::{Evidence, Holding, Instance, Point, Variable};
use super::perf::PerfLocation;
use gimli::{Expression, Operation};

impl<'a> Evidence<'a> {
    /// What perf makes of a variable (`convert_variable_location()` in tools/perf/util/probe-finder.c): the constant,
    /// or the first operation of the first entry that covers the address.
    pub fn as_perf_reads(
        &self,
        instance: &Instance<'a>,
        variable: &Variable<'a>,
        address: u64,
    ) -> Option<PerfReading<'a>> {
        if let Some(constant) = &variable.constant {
            let fill = if constant.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
            let mut bytes = [fill; 8];
            for (to, from) in bytes.iter_mut().zip(constant) {
                *to = *from;
            }
            let location = PerfLocation::Constant(u64::from_le_bytes(bytes));
            return Some(PerfReading { location, entry: None, more: false, further_on: false });
        }
        let covering = variable.covering(address);
        // At the entry of an out-of-line function perf goes on until it finds one.
        let further_on = covering.is_none() && address == instance.around.0;
        let further =
            || variable.entries.iter().find(|entry| entry.begin.0 < instance.around.1 && entry.end.0 > address);
        let entry = covering.or_else(|| if further_on { further() } else { None })?;
        let unit = self.dwarf.unit(instance.header).ok()?;
        let mut operations = Expression(entry.expression).operations(unit.encoding());
        let memory =
            |register: u16, offset: i64| PerfLocation::Memory(Box::new(PerfLocation::Register(register)), offset);
        let location = match operations.next().ok()?? {
            Operation::Register { register } => PerfLocation::Register(register.0),
            Operation::RegisterOffset { register, offset, base_type } if base_type.0 == 0 => memory(register.0, offset),
            Operation::FrameOffset { offset } => match instance.frame_base?.slice() {
                [op] if *op == gimli::DW_OP_call_frame_cfa.0 => {
                    let cfa = self.cfa(address)?;
                    memory(cfa.register, cfa.offset.wrapping_add(offset))
                }
                [op] => memory(u16::from(op.checked_sub(gimli::DW_OP_reg0.0)?), offset),
                _ => return None,
            },
            Operation::Address { address } => PerfLocation::At(format!("{address:#x}")),
            _ => return None,
        };
        let more = operations.next().ok()?.is_some();
        Some(PerfReading { location, entry: Some(*entry), more, further_on })
    }

    /// What perf finds in place of a parameter that has no location: a variable of its name further inside.
    pub fn inner_readings(&self, instance: &Instance<'a>, name: &str, address: u64) -> Vec<PerfLocation> {
        let same = instance.inner.iter().filter(|(inner, _)| inner == name);
        let read = |(_, variable): &(String, Variable<'a>)| self.as_perf_reads(instance, variable, address);
        same.filter_map(read).map(|reading| reading.location).collect()
    }
}

/// What perf makes of a variable.
#[derive(Debug, Clone)]
pub struct PerfReading<'a> {
    /// The location.
    pub location: PerfLocation,
    /// The entry that it is from, if it is not a constant.
    entry: Option<Holding<'a>>,
    /// Whether the entry's expression has more than the one operation that perf looks at.
    pub more: bool,
    /// Whether the entry does not hold at the address but further on.
    pub further_on: bool,
}

impl PerfReading<'_> {
    /// Whether the entry holds at the point.
    pub fn holds_at(&self, point: Point) -> bool {
        self.entry.is_none_or(|entry| entry.begin <= point && point < entry.end)
    }
}

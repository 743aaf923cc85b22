// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A location expression for a parameter of a type and an environment that the first bytes choose. What is located has
//! the form that the site file's rules ask for.
#![no_main]

use gimli::{AttributeValue, Encoding, EndianSlice, Expression, Format, LittleEndian};
use siteseer_encoder::lower::{BaseType, Environment, Meaning, ParamType, lower, lower_const};
use siteseer_sites::Machine;
use siteseer_sites::location::{Location, Missing, Op};
use siteseer_sites::machine::Register;

const IMAGE: u64 = 0xffff_ffff_8100_0000;

struct Probe {
    choice: u8,
}

impl Environment for Probe {
    fn machine(&self) -> Machine {
        if self.choice & 1 == 0 { Machine::X86_64 } else { Machine::Aarch64 }
    }
    fn frame_base(&self) -> Result<(Register, i64), Missing> {
        if self.choice & 2 == 0 { Ok((6, 16)) } else { Err(Missing::NoFrame) }
    }
    fn cfa(&self) -> Result<(Register, i64), Missing> {
        if self.choice & 4 == 0 { Ok((7, 8)) } else { Ok((7, i64::MAX)) }
    }
    fn base_type(&self, offset: gimli::UnitOffset) -> Option<BaseType> {
        let offset = u32::try_from(offset.0).ok()?;
        (offset < 140).then_some(BaseType { bits: offset, signed: offset % 2 == 0, float: offset == 64 })
    }
    fn address(&self, index: gimli::DebugAddrIndex) -> Option<u64> {
        [IMAGE + 0x40, 0x1000, u64::MAX].get(index.0).copied()
    }
    fn entry_value(&self, register: Register) -> Option<Register> {
        (register == 5).then_some(3)
    }
    fn meaning(&self, address: u64) -> Meaning {
        if address >= IMAGE { Meaning::Image } else { Meaning::Absolute }
    }
}

siteseer_fuzz::target!(|data| {
    let Some(([choice, size, low, high], bytes)) = data.split_first_chunk() else { return };
    let is_composite = choice & 8 != 0;
    let data = u32::from(*low)..u32::from(*low) + u32::from(*high);
    let ty = ParamType {
        is_composite,
        data: if is_composite && *high != 0 { vec![data] } else { Vec::new() },
        ..ParamType::scalar(u32::from(*size), choice & 16 != 0)
    };
    let version = if choice & 32 == 0 { 5 } else { 4 };
    let encoding = Encoding { format: Format::Dwarf32, version, address_size: 8 };
    let probe = Probe { choice: *choice };
    let slice = EndianSlice::new(bytes, LittleEndian);
    let arguments =
        [lower(Expression(slice), encoding, &ty, &probe), lower_const(&AttributeValue::Block(slice), &ty, &probe)];
    for located in arguments.into_iter().flatten() {
        assert_eq!(located.size, ty.size, "as large as its type");
        if let Location::Computed(computed) = located.at {
            assert!(
                computed.slots.iter().all(|slot| Op::check(slot, probe.machine())),
                "a program that the file can hold"
            );
        }
    }
});

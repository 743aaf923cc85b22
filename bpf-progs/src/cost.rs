// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `cost.bpf.c` takes from its loader: `cost.h` in Rust.

/// Words of the context that stand in the by-hand programs for those of the site's registers.
pub const PLACES: [usize; 3] = [1, 2, 3];

/// Arguments of a specification.
const ARGUMENTS: usize = 12;

/// An argument that is in a register.
pub const KIND_REGISTER: u32 = 1;

/// One argument of a specification.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// A kind.
    pub kind: u32,
    /// The constant, or what is added to the register's value before memory is read.
    pub offset: u64,
    /// Bytes into `struct pt_regs`.
    pub place: u16,
    /// Whether the value is sign-extended.
    pub signed: bool,
    /// Its width.
    pub bits: u8,
}

/// `struct cost_spec`, a value of the map `specs`.
pub fn spec(arguments: &[Argument]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 * ARGUMENTS + 16);
    for nth in 0..ARGUMENTS {
        let Some(argument) = arguments.get(nth) else {
            bytes.extend([0; 16]);
            continue;
        };
        bytes.extend(argument.offset.to_ne_bytes());
        bytes.extend(argument.kind.to_ne_bytes());
        bytes.extend(argument.place.to_ne_bytes());
        bytes.extend([u8::from(argument.signed), 64u8.saturating_sub(argument.bits)]);
    }
    bytes.extend(0u64.to_ne_bytes());
    bytes.extend((arguments.len().min(ARGUMENTS) as u64).to_ne_bytes());
    bytes
}

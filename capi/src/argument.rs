// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `struct siteseer_argument_info`: where an argument of a site is.

use crate::layout::{Layout, layout};
use crate::options::{Versioned, members};
use crate::text::c_string;
use siteseer::internals::function::Parameter;
use siteseer_sites::location::{Argument, Location};
use siteseer_sites::machine::{Machine, Register};
use std::ffi::{CString, c_char};
use std::ptr;

/// The numbers of `enum siteseer_location`.
pub(crate) const LOCATIONS: [(&str, u32); 8] = [
    ("SITESEER_LOCATION_NONE", 0),
    ("SITESEER_LOCATION_CONSTANT", 1),
    ("SITESEER_LOCATION_ADDRESS", 2),
    ("SITESEER_LOCATION_REGISTER", 3),
    ("SITESEER_LOCATION_REGISTER_PAIR", 4),
    ("SITESEER_LOCATION_REGISTER_OFFSET", 5),
    ("SITESEER_LOCATION_MEMORY", 6),
    ("SITESEER_LOCATION_COMPUTED", 7),
];

/// `struct siteseer_argument_info`
#[repr(C)]
pub struct ArgumentInfo {
    sz: usize,
    name: *const c_char,
    type_name: *const c_char,
    location: u32,
    size: u32,
    is_signed: u8,
    certain: u8,
    reg: *const c_char,
    reg2: *const c_char,
    offset: i64,
    value: u64,
    text: *const c_char,
    missing: *const c_char,
    missing_text: *const c_char,
}

pub(crate) const ARGUMENT_INFO: Layout = layout!(
    "siteseer_argument_info",
    ArgumentInfo {
        sz,
        name,
        type_name,
        location,
        size,
        is_signed,
        certain,
        reg,
        reg2,
        offset,
        value,
        text,
        missing,
        missing_text,
    }
);

// SAFETY: numbers and raw pointers only, the size first.
unsafe impl Versioned for ArgumentInfo {
    const NAME: &'static str = "struct siteseer_argument_info";
    const MEMBERS: &'static [(usize, usize)] = members!(ArgumentInfo {
        sz,
        name,
        type_name,
        location,
        size,
        is_signed,
        certain,
        reg,
        reg2,
        offset,
        value,
        text,
        missing,
        missing_text,
    });
}

/// An argument, with its strings as C has them.
pub(crate) struct Described {
    pub(crate) info: ArgumentInfo,
    /// What `info` points into.
    _strings: Vec<CString>,
}

// SAFETY: the pointers are to the strings beside them, which nobody changes.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

impl Described {
    /// An argument of a machine's function. `parameter` is not known if the function's prototype is not.
    pub(crate) fn of(argument: &Argument, parameter: Option<&Parameter>, machine: Machine) -> Described {
        let mut strings = Vec::new();
        let mut keep = |text: Option<String>| match text {
            None => ptr::null(),
            Some(text) => {
                // A string's bytes stay where they are when the list of strings grows.
                strings.push(c_string(&text));
                strings.last().map_or(ptr::null(), |string| string.as_ptr())
            }
        };
        let register = |number: Register| {
            Some(machine.register_name(number).map_or_else(|| format!("reg{number}"), str::to_owned))
        };
        let (mut reg, mut reg2, mut offset, mut value) = (None, None, 0, 0);
        let location = match argument.as_ref().map(|located| &located.at) {
            Err(_) => 0,
            Ok(Location::Constant(constant)) => {
                value = *constant;
                1
            }
            Ok(Location::Address(address)) => {
                value = *address;
                2
            }
            Ok(Location::Register(number)) => {
                reg = register(*number);
                3
            }
            Ok(Location::RegisterPair(first, second)) => {
                (reg, reg2) = (register(*first), register(*second));
                4
            }
            Ok(Location::RegisterOffset(number, distance)) => {
                (reg, offset) = (register(*number), i64::from(*distance));
                5
            }
            Ok(Location::Memory(number, distance)) => {
                (reg, offset) = (register(*number), i64::from(*distance));
                6
            }
            Ok(Location::Computed(_)) => 7,
        };
        let located = argument.as_ref().ok();
        let missing = argument.as_ref().err();
        let doubt = located.and_then(|located| located.doubt);
        let info = ArgumentInfo {
            sz: size_of::<ArgumentInfo>(),
            name: keep(parameter.map(|parameter| parameter.name.clone()).filter(|name| !name.is_empty())),
            type_name: keep(parameter.map(|parameter| parameter.type_name.clone())),
            location,
            size: located.map_or(0, |located| located.size),
            is_signed: u8::from(located.is_some_and(|located| located.signed)),
            certain: u8::from(located.is_some_and(|located| located.doubt.is_none())),
            reg: keep(reg),
            reg2: keep(reg2),
            offset,
            value,
            text: keep(located.map(|located| located.display(machine).to_string())),
            missing: keep(missing.map(|why| why.key()).or(doubt.map(|doubt| doubt.key())).map(str::to_owned)),
            missing_text: keep(missing.map(ToString::to_string).or(doubt.map(|doubt| doubt.to_string()))),
        };
        Described { info, _strings: strings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::{Doubt, Located, Missing};
    use std::ffi::CStr;

    fn text<'a>(text: *const c_char) -> Option<&'a str> {
        // SAFETY: the strings are those of a description that lives.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap())
    }

    #[test]
    fn each_location_says_what_it_has() {
        let of = |argument: &Argument| Described::of(argument, None, Machine::X86_64);
        // DWARF's numbers: 5 is rdi, 4 is rsi, 7 is rsp.
        let memory = of(&Ok(Located::certain(4, true, Location::Memory(7, -8))));
        let info = &memory.info;
        assert_eq!((info.location, info.size, info.is_signed, info.certain, info.offset), (6, 4, 1, 1, -8));
        assert_eq!((text(info.reg), text(info.reg2), text(info.missing)), (Some("rsp"), None, None));
        let pair = of(&Ok(Located::certain(16, false, Location::RegisterPair(5, 4))));
        assert_eq!((pair.info.location, text(pair.info.reg), text(pair.info.reg2)), (4, Some("rdi"), Some("rsi")));
        let constant = of(&Ok(Located::certain(8, false, Location::Constant(u64::MAX)).doubtful(Doubt::ALL[0])));
        assert_eq!((constant.info.location, constant.info.value, constant.info.certain), (1, u64::MAX, 0));
        assert_eq!(text(constant.info.missing), Some(Doubt::ALL[0].key()));
        let address = of(&Ok(Located::certain(8, false, Location::Address(0x1000))));
        assert_eq!((address.info.location, address.info.value), (2, 0x1000));
        let gone = of(&Err(Missing::OptimisedOut));
        assert_eq!((gone.info.location, text(gone.info.text)), (0, None));
        assert_eq!(text(gone.info.missing), Some(Missing::OptimisedOut.key()));
    }
}

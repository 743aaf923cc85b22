// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a function stores to a variable with a fixed address.
//!
//! The compiler removes or moves stores that the debug information still relies on. It removes a store to a variable if
//! another one in the same function comes after it, which is still there. So a function that neither stores to the
//! variable nor has an address from which it can be reached does not change it, and what other functions stored was
//! there before.

use super::{Effects, FunctionText, arm64};
use crate::elf::image::Image;
use std::ops::Range;

impl FunctionText<'_, '_> {
    /// Whether an instruction of the function may store to these bytes: it names them and does not only read them, or
    /// it has the address of some data, which may be that of the object, or array, that they are in.
    pub(crate) fn may_store_to(&self, bytes: &Range<u64>) -> bool {
        // The addresses in a module's instructions are known when it is loaded.
        if self.image.is_relocatable() {
            return true;
        }
        let mut effects = Effects::new(self.image.machine());
        self.addresses().any(|address| match &mut effects {
            Effects::X86(effects) => effects.may_store_to(self.image, address, bytes),
            Effects::Arm64 => arm64::may_lead_to(self.image, address, bytes),
        })
    }
}

/// Whether an address is of the image, and not of its text.
pub(super) fn is_data(image: &Image<'_>, address: u64) -> bool {
    image.loaded().contains(&address) && image.section_at(address).is_none()
}

#[cfg(test)]
mod tests {
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};

    #[test]
    fn x86_64() {
        // A variable of 8 bytes at TEXT + 0x100: incl variable(%rip); mov variable(%rip),%eax; lea variable(%rip),%rax;
        // mov $variable,%rax
        let may_store = |code: &[u8]| x86(code, |text| text.may_store_to(&(TEXT + 0x100..TEXT + 0x108)));
        let named = |opcode: &[u8], offset: u32| {
            let next = opcode.len() as u32 + 4;
            [opcode, &(0x100 + offset - next).to_le_bytes()[..], &[0xc3]].concat()
        };
        assert!(may_store(&named(&[0xff, 0x05], 0)));
        assert!(may_store(&named(&[0xff, 0x05], 7)), "its last byte");
        assert!(!may_store(&named(&[0xff, 0x05], 8)), "what is after it");
        assert!(!may_store(&named(&[0x8b, 0x05], 0)), "a load");
        assert!(may_store(&named(&[0x48, 0x8d, 0x05], 0)), "its address is taken");
        let mut immediate = vec![0x48, 0xb8];
        immediate.extend((TEXT + 0x100).to_le_bytes());
        immediate.push(0xc3);
        assert!(may_store(&immediate), "its address as a constant");
        // mov %eax,TEXT + 0x100(,%rcx,4), as far as a displacement of 32 bits goes
        let mut element = vec![0x89, 0x04, 0x8d];
        element.extend(((TEXT + 0x100) as u32).to_le_bytes());
        element.push(0xc3);
        let is_near = i64::from((TEXT + 0x100) as u32 as i32) as u64 == TEXT + 0x100;
        assert_eq!(may_store(&element), is_near, "an element of an array");
        assert!(!may_store(&[0x89, 0x07, 0xc3]), "where a register points: its address is taken by nobody here");
    }

    #[test]
    fn aarch64() {
        // A page that is not the image's.
        let page = (TEXT & !0xfff) + (1 << 30);
        let may_store = |code: &[u32], bytes| arm64(code, |text| text.may_store_to(&bytes));
        // adrp x0, page; ret
        let code = [0x9020_0000, 0xd65f_03c0];
        assert!(may_store(&code, page + 8..page + 16));
        assert!(may_store(&code, page - 4..page + 4), "a part of it is on the page");
        assert!(!may_store(&code, page + 0x1000..page + 0x1008));
        // adrp x0, TEXT + 4096; ret
        let code = [0xb000_0000, 0xd65f_03c0];
        assert!(may_store(&code, page..page + 8), "some data of the image, which may go on there");
        // ldr x0, .+8; ret
        assert!(may_store(&[0x5800_0040, 0xd65f_03c0], page..page + 8), "a literal");
        // adr x0, .+8; ret
        let code = [0x1000_0040, 0xd65f_03c0];
        assert!(may_store(&code, TEXT + 8..TEXT + 16));
        // adr x0, .; ret
        assert!(!may_store(&[0x1000_0000, 0xd65f_03c0], page..page + 8), "of the function's own text");
    }
}

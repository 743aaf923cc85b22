// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a function stores to a variable with a fixed address.
//!
//! The compiler removes or moves stores that the debug information still relies on. It removes a store to a variable if
//! another one in the same function comes after it, which is still there. So in a function that neither stores to the
//! variable nor takes its address, the variable has at each place what it had when the function was called.

use super::{Effects, FunctionText, arm64};
use std::ops::Range;

impl FunctionText<'_, '_> {
    /// Whether an instruction of the function may store to these bytes: it names them and does not only read them, or
    /// it takes an address among them. On arm64, an address is computed from that of its page, so each instruction that
    /// makes this counts.
    pub(crate) fn may_store_to(&self, bytes: &Range<u64>) -> bool {
        // The addresses in a module's instructions are known when it is loaded.
        if self.image.is_relocatable() {
            return true;
        }
        let mut effects = Effects::new(self.image.machine());
        self.addresses().any(|address| match &mut effects {
            Effects::X86(effects) => effects.may_store_to(self.image, address, bytes),
            Effects::Arm64 => arm64::names_page_of(self.image, address, bytes),
        })
    }
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
        assert!(!may_store(&[0x89, 0x07, 0xc3]), "where a register points: its address is taken by nobody here");
    }

    #[test]
    fn aarch64() {
        let page = TEXT & !0xfff;
        let may_store = |code: &[u32], bytes| arm64(code, |text| text.may_store_to(&bytes));
        // adrp x0, page + 4096; ret
        let code = [0xb000_0000, 0xd65f_03c0];
        assert!(may_store(&code, page + 0x1008..page + 0x1010));
        assert!(may_store(&code, page + 0xffc..page + 0x1004), "a part of it is on the page");
        assert!(!may_store(&code, page + 0x2000..page + 0x2008));
        // adr x0, .+8; ret
        let code = [0x1000_0040, 0xd65f_03c0];
        assert!(may_store(&code, TEXT + 8..TEXT + 16));
        assert!(!may_store(&code, TEXT + 16..TEXT + 24));
    }
}

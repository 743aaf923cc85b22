// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Expressions and the outcome of lowering them.

use super::*;

#[test]
fn plain_places() {
    check(code().reg(5), &u(8), "rdi");
    check(code().op(DW_OP_regx).uleb(5), &u(4), "rdi");
    check(code().op(DW_OP_regx).uleb(17), &u(4), "unsupported");
    check(code().reg(17), &u(8), "unsupported");
    check(code().reg(5), &composite(12, &[]), "unsupported");
    check(code().breg(5, 0).value(), &u(8), "rdi");
    check(code().breg(5, 8).value(), &u(4), "rdi+8");
    check(code().breg(5, 8), &u(4), "*(rdi+8)");
    check(code().breg(5, -8), &composite(40, &[]), "*(rdi-8)");
    check(code().op(DW_OP_bregx).uleb(3).sleb(2), &u(3), "*(rbx+2)");
    check(code().breg(5, 1 << 40).value(), &u(8), "rdi + 0x10000000000");
    check(code().breg(5, 1 << 40), &u(8), "*(rdi + 0x10000000000)");
    check(code().op(DW_OP_fbreg).sleb(-24), &u(8), "*(rbp-8)");
    check(code().op(DW_OP_call_frame_cfa), &u(8), "*(rsp+8)");
    check(code().op(DW_OP_call_frame_cfa).value(), &u(8), "rsp+8");
    check(code(), &u(8), "empty");
    check(code().reg(5), &u(0), "no_type");
}

#[test]
fn constants_and_addresses() {
    check(code().constant(7).value(), &u(8), "7");
    check(code().op(DW_OP_const1s).u8(0xff).value(), &s(4), "-1");
    check(code().op(DW_OP_const1s).u8(0xff).value(), &u(4), "0xffffffff");
    check(code().constant(0x1_00).value(), &u(1), "0");
    check(code().address(IMAGE).value(), &u(8), "&0xffffffff81000000");
    check(code().address(IMAGE).op(DW_OP_plus_uconst).uleb(4).value(), &u(8), "&0xffffffff81000004");
    check(code().address(0x1000).value(), &u(8), "4096");
    check(code().address(IMAGE), &u(4), "*(u32 *)(&0xffffffff81000000)");
    check(code().op(DW_OP_addrx).uleb(0).value(), &u(8), "&0xffffffff81000040");
    check(code().op(DW_OP_constx).uleb(0).value(), &u(8), "0xffffffff81000040");
    check(code().op(DW_OP_addrx).uleb(9).value(), &u(8), "malformed");
    check(code().address(IMAGE + 8).address(IMAGE).op(DW_OP_minus).value(), &u(8), "8");
    check(code().implicit(&[1, 2, 3, 4]), &u(4), "0x4030201");
    check(code().implicit(&[0xff, 0xff]), &s(2), "-1");
    check(code().implicit(&[1, 2]), &u(4), "malformed");
    check(code().implicit(&[1; 12]), &composite(12, &[]), "{0x101010101010101, 0x1010101}");
}

#[test]
fn extensions_that_the_size_makes_redundant() {
    let mask = || code().breg(5, 0).constant(0xffff_ffff).op(DW_OP_and).value();
    check(mask(), &u(4), "rdi");
    check(mask(), &s(4), "rdi");
    check(mask(), &u(8), "(u32)(rdi)");
    let signed = || code().breg(0, 0).constant(32).op(DW_OP_shl).constant(32).op(DW_OP_shra).value();
    check(signed(), &s(4), "rax");
    check(signed(), &s(8), "(s32)(rax)");
    let unsigned = || code().breg(0, 0).constant(56).op(DW_OP_shl).constant(56).op(DW_OP_shr).value();
    check(unsigned(), &u(1), "rax");
    check(unsigned(), &u(4), "(u8)(rax)");
    check(code().breg(0, 0).convert(6).convert(8).value(), &u(8), "(u32)(rax)");
    check(code().breg(0, 0).convert(5).convert(7).value(), &s(8), "(s32)(rax)");
    check(code().breg(0, 0).convert(5).convert(7).value(), &s(4), "rax");
    check(code().breg(0, 0).convert(11).convert(6).value(), &u(4), "(u1)(rax)");
    check(code().breg(0, 0).convert(12).convert(5).value(), &u(4), "(s1)(rax)");
    // clang: a constant of the generic type where one of the other operand's is meant.
    let with = |ty, constant, op| code().breg(0, 0).convert(ty).constant(constant).op(op).value();
    check(with(6, 0x8000, DW_OP_or), &u(4), "rax | 32768");
    check(with(6, 0x8000, DW_OP_or), &u(8), "(u32)(rax) | 32768");
    check(with(5, 3, DW_OP_plus), &s(8), "(s32)(rax + 3)");
    check(with(6, u64::MAX, DW_OP_eq), &u(4), "(u32)(rax) == 0xffffffff");
    check(with(5, 0xffff_ffff, DW_OP_ne), &u(4), "(s32)(rax) != -1");
    let constant_first = code().constant(u64::MAX).breg(0, 0).convert(4).op(DW_OP_eq).value();
    check(constant_first, &u(4), "(u16)(rax) == 65535");
    check(with(6, 3, DW_OP_lt), &u(4), "unsupported");
    // Shifts to the right look at the bits of the type, not at what its signedness puts above them.
    let shifted = |ty, op| code().breg(0, 0).convert(ty).constant(4).op(op).convert(0).value();
    check(shifted(5, DW_OP_shr), &u(8), "(u28)(rax >> 4)");
    check(shifted(6, DW_OP_shr), &u(8), "(u28)(rax >> 4)");
    check(shifted(5, DW_OP_shra), &s(8), "(s28)(rax >> 4)");
    check(shifted(6, DW_OP_shra), &u(8), "(u32)((s28)(rax >> 4))");
    check(code().op(DW_OP_regval_type).uleb(0).uleb(6).convert(0).value(), &u(8), "(u32)(rax)");
    check(code().breg(5, 8).op(DW_OP_deref).constant(0xff).op(DW_OP_and).value(), &u(8), "*(u8 *)(rdi + 8)");
    check(code().breg(5, 8).op(DW_OP_deref).constant(0xff).op(DW_OP_and).value(), &u(1), "*(rdi+8)");
    check(code().breg(5, 8).op(DW_OP_deref_size).u8(4).value(), &u(4), "*(rdi+8)");
    check(code().breg(5, 8).op(DW_OP_deref_type).u8(4).uleb(5).convert(7).value(), &s(8), "(s32)(*(u32 *)(rdi + 8))");
    check(code().breg(5, -4).constant(0xffff_ffff).op(DW_OP_and).value(), &u(4), "rdi-4");
}

#[test]
fn sums_and_other_arithmetic() {
    check(code().breg(0, 4).breg(1, -1).op(DW_OP_plus).value(), &u(8), "(rax + rdx) + 3");
    check(code().breg(0, 4).breg(0, 1).op(DW_OP_minus).value(), &u(8), "3");
    check(code().constant(5).breg(0, 1).op(DW_OP_minus).value(), &u(8), "4 - rax");
    check(code().breg(0, 0).op(DW_OP_dup).op(DW_OP_xor).value(), &u(8), "0");
    check(code().breg(0, 0).op(DW_OP_not).value(), &u(8), "~rax");
    check(code().breg(0, 0).op(DW_OP_neg).op(DW_OP_neg).value(), &u(8), "rax");
    check(code().breg(0, 0).constant(8).op(DW_OP_mul).value(), &u(8), "rax << 3");
    check(code().breg(0, 3).constant(2).op(DW_OP_shl).value(), &u(8), "(rax << 2) + 12");
    check(code().breg(0, 0).constant(12).op(DW_OP_mod).value(), &u(8), "rax % 12");
    check(code().breg(0, 0).constant(16).op(DW_OP_mod).value(), &u(8), "(u4)(rax)");
    check(code().breg(0, 0).constant(0xff).op(DW_OP_and).constant(16).op(DW_OP_div).value(), &u(8), "(u4)(rax >> 4)");
    check(code().breg(0, 0).constant(3).op(DW_OP_lt).value(), &u(4), "rax < 3");
    check(code().breg(0, 0).constant(3).op(DW_OP_gt).value(), &u(4), "3 < rax");
    check(code().breg(0, 0).op(DW_OP_deref).breg(1, 0).op(DW_OP_plus), &u(8), "*(*(rax) + rdx)");
}

#[test]
fn shifts_by_more_than_the_width_are_no_values() {
    // GCC writes fields of two bytes like this.
    let field = code()
        .breg(0, 0)
        .op(DW_OP_const1s)
        .u8(-24i8 as u8)
        .op(DW_OP_shl)
        .op(DW_OP_const1s)
        .u8(-8i8 as u8)
        .op(DW_OP_shr);
    check(field.value(), &u(2), "malformed");
    check(code().breg(0, 0).constant(64).op(DW_OP_shr).value(), &u(8), "malformed");
    check(code().breg(0, 0).convert(5).constant(32).op(DW_OP_shr).convert(0).value(), &u(8), "malformed");
    check(code().breg(0, 0).breg(1, 0).op(DW_OP_shl).value(), &u(8), "rax << rdx");
}

#[test]
fn equal_values_have_equal_locations() {
    let sum = |a, b| code().breg(a, 1).breg(b, 2).op(DW_OP_plus).value();
    assert_eq!(text(&sum(3, 4), &u(8)), text(&sum(4, 3), &u(8)));
    let low = code().breg(0, 0).constant(0xfff0).op(DW_OP_and).value();
    let high = code().breg(0, 0).constant(!15).op(DW_OP_and).value();
    assert_eq!(text(&low, &u(2)), text(&high, &u(2)));
    let shifts = code().breg(0, 0).constant(48).op(DW_OP_shl).constant(56).op(DW_OP_shr).value();
    let masked = code().breg(0, 0).constant(8).op(DW_OP_shr).constant(0xff).op(DW_OP_and).value();
    assert_eq!(text(&shifts, &u(8)), text(&masked, &u(8)));
    let typed = code().breg(0, 0).convert(6).breg(1, 0).convert(6).op(DW_OP_plus).value();
    let generic = code().breg(1, 0).breg(0, 0).op(DW_OP_plus).value();
    assert_eq!(text(&typed, &u(4)), text(&generic, &u(4)));
}

#[test]
fn stack_shuffles_and_branches() {
    let three = || code().breg(0, 0).breg(1, 0).breg(2, 0);
    check(three().op(DW_OP_swap).value(), &u(8), "rdx");
    check(three().op(DW_OP_rot).value(), &u(8), "rdx");
    check(three().op(DW_OP_rot).op(DW_OP_drop).value(), &u(8), "rax");
    check(three().op(DW_OP_over).value(), &u(8), "rdx");
    check(three().op(DW_OP_pick).u8(2).value(), &u(8), "rax");
    check(three().op(DW_OP_pick).u8(3).value(), &u(8), "malformed");
    check(code().op(DW_OP_nop).op(DW_OP_drop), &u(8), "malformed");
    let skip = |target: i16| code().breg(0, 0).op(DW_OP_skip).bytes(&target.to_le_bytes()).op(DW_OP_not).value();
    check(skip(1), &u(8), "rax");
    check(skip(0), &u(8), "~rax");
    check(skip(100), &u(8), "malformed");
    check(skip(-100), &u(8), "malformed");
    check(skip(-3), &u(8), "unsupported");
    let branch = |condition| code().breg(0, 0).constant(condition).op(DW_OP_bra).bytes(&[1, 0]).op(DW_OP_not).value();
    check(branch(0), &u(8), "~rax");
    check(branch(2), &u(8), "rax");
    let unknown = || code().breg(0, 0).breg(2, 0).op(DW_OP_bra);
    check(unknown().bytes(&[1, 0]).op(DW_OP_nop).value(), &u(8), "rax");
    check(unknown().bytes(&[3, 0]).op(DW_OP_deref_size).u8(8).op(DW_OP_nop).value(), &u(8), "unsupported");
    check(unknown().bytes(&[(-4i8) as u8, 0xff]).value(), &u(8), "malformed");
    // The greater of rax and 5, as gcc writes it.
    let greater = code().breg(0, 0).op(DW_OP_dup).constant(5).op(DW_OP_swap).op(DW_OP_over);
    let greater = greater.op(DW_OP_gt).op(DW_OP_bra).bytes(&[1, 0]).op(DW_OP_swap).op(DW_OP_drop).value();
    check(greater, &u(8), "((-(5 < rax)) & (rax ^ 5)) ^ 5");
}

#[test]
fn pieces() {
    let pair = |a, b| code().reg(a).piece(8).reg(b).piece(8);
    check(pair(5, 4), &composite(16, &[]), "rdi:rsi");
    check(code().reg(5).piece(8).reg(4).piece(4), &composite(12, &[]), "rdi:rsi");
    check(code().reg(5).piece(8).constant(3).value().piece(8), &composite(16, &[]), "{rdi, 3}");
    check(code().reg(5).piece(4).piece(4), &composite(8, &[(0, 32)]), "(u32)(rdi)");
    check(code().reg(5).piece(4).piece(4), &composite(8, &[(0, 32), (40, 48)]), "partial");
    check(code().reg(5).piece(4), &composite(8, &[(0, 64)]), "partial");
    check(code().reg(5).piece(4), &u(4), "rdi");
    check(code().reg(5).piece(8), &composite(4, &[]), "rdi");
    check(code().reg(5).piece(4).reg(4).piece(4), &composite(8, &[]), "(rsi << 32) | (u32)(rdi)");
    check(code().breg(7, 8).piece(8).breg(7, 16).piece(8), &composite(16, &[]), "*(rsp+8)");
    check(code().breg(7, 8).piece(8).breg(7, 24).piece(4), &composite(12, &[]), "{*(rsp + 8), *(u32 *)(rsp + 24)}");
    check(code().breg(7, 8).piece(3).breg(7, 11).piece(8), &composite(11, &[]), "*(rsp+8)");
    check(code().reg(5).bit_piece(8, 8).reg(5).bit_piece(8, 16), &u(2), "rdi >> 8");
    check(code().breg(5, 0).bit_piece(16, 8), &u(2), "*(rdi+1)");
    check(code().implicit(&[1, 2, 3, 4]).piece(4).implicit(&[5, 6, 7, 8]).piece(4), &u(8), "0x807060504030201");
    check(code().piece(8).piece(8), &composite(16, &[]), "empty");
    check(
        code().op(DW_OP_implicit_pointer).bytes(&[0; 4]).sleb(0).piece(8).piece(8),
        &composite(16, &[(0, 64)]),
        "implicit_pointer",
    );
    check(
        code().op(DW_OP_implicit_pointer).bytes(&[0; 4]).sleb(0).piece(8).reg(4).piece(8),
        &composite(16, &[]),
        "partial",
    );
    check(code().reg(5).piece(8).reg(4), &composite(16, &[]), "malformed");
    check(code().reg(5).reg(4), &u(8), "malformed");
    check(code().reg(5).piece(16), &composite(16, &[]), "unsupported");
}

#[test]
fn what_is_known_only_elsewhere() {
    let entry = |inner: Code| code().op(DW_OP_entry_value).uleb(inner.0.len() as u64).bytes(&inner.0).value();
    check(entry(code().reg(5)), &u(8), "rbx");
    check(entry(code().breg(5, 8)), &u(8), "rbx+8");
    check(entry(code().op(DW_OP_regval_type).uleb(5).uleb(6)), &u(8), "(u32)(rbx)");
    check(entry(code().reg(4)), &u(8), "entry_value");
    check(entry(code().breg(5, 8).op(DW_OP_deref)), &u(8), "entry_value");
    check(entry(code()), &u(8), "malformed");
    check(code().op(DW_OP_GNU_entry_value).uleb(1).reg(4).constant(1).op(DW_OP_plus).value(), &u(8), "entry_value");
    check(code().op(DW_OP_GNU_implicit_pointer).bytes(&[0; 4]).sleb(0), &u(8), "implicit_pointer");
    check(code().op(DW_OP_GNU_parameter_ref).bytes(&[0; 4]).value(), &u(8), "reference");
    check(code().op(DW_OP_GNU_variable_value).bytes(&[0; 4]).value(), &u(8), "reference");
    check(code().op(DW_OP_call4).bytes(&[0; 4]).value(), &u(8), "reference");
    check(code().constant(8).op(DW_OP_form_tls_address), &u(8), "unsupported");
    check(code().op(DW_OP_push_object_address), &u(8), "unsupported");
    check(code().breg(5, 0).convert(9).value(), &u(8), "unsupported");
    check(code().breg(5, 0).convert(10).value(), &u(8), "unsupported");
    check(code().breg(5, 0).convert(99).value(), &u(8), "malformed");
    check(code().reg(5).op(DW_OP_GNU_uninit), &u(8), "unsupported");
    check(code().reg(5).op(DW_OP_GNU_uninit).piece(8).reg(4).piece(8), &composite(16, &[]), "partial");
    check(code().breg(5, 8).op(DW_OP_GNU_uninit), &u(8), "unsupported");
    check(code().u8(0xe1), &u(8), "unsupported");
    check(code().u8(0x01), &u(8), "malformed");
    check(code().op(DW_OP_const4u).u8(1), &u(8), "malformed");
    let no_frame = Probe { frame: Err(Missing::NoFrame) };
    assert_eq!(lower_in(&no_frame, &code().op(DW_OP_fbreg).sleb(0).0, &u(8)), Err(Missing::NoFrame));
}

#[test]
fn const_value_forms() {
    let lowered = |value, ty: &ParamType| {
        lower_const(&value, ty, &PROBE)
            .map(|located| located.display(Machine::X86_64).to_string())
            .map_err(Missing::key)
    };
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(lowered(AttributeValue::Data1(0xff), &s(4)), ok("255"));
    assert_eq!(lowered(AttributeValue::Data1(0xff), &s(1)), ok("-1"));
    assert_eq!(lowered(AttributeValue::Data4(u32::MAX), &s(4)), ok("-1"));
    assert_eq!(lowered(AttributeValue::Sdata(-1), &s(4)), ok("-1"));
    assert_eq!(lowered(AttributeValue::Sdata(-1), &u(2)), ok("65535"));
    assert_eq!(lowered(AttributeValue::Udata(0x1_0000_0001), &u(4)), ok("1"));
    assert_eq!(lowered(AttributeValue::Sdata(-1), &s(16)), ok("{-1, -1}"));
    assert_eq!(lowered(AttributeValue::Data8(u64::MAX), &s(16)), ok("{-1, 0}"));
    assert_eq!(lowered(AttributeValue::Addr(IMAGE), &u(8)), ok("&0xffffffff81000000"));
    assert_eq!(lowered(AttributeValue::Addr(16), &u(8)), ok("16"));
    let block = AttributeValue::Block(EndianSlice::new(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0], LittleEndian));
    assert_eq!(lowered(block, &composite(10, &[])), ok("{1, 2}"));
    assert_eq!(lowered(block, &composite(11, &[])), Err("malformed"));
    assert_eq!(lowered(AttributeValue::Flag(true), &u(1)), Err("unsupported"));
}

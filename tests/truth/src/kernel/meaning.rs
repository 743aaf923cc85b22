// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which bits of an argument have a meaning. Between the members of a structure, and after the last one, is whatever
//! the compiler left there: no function reads it, and a location and a record may differ in it.

use siteseer_sites::btf::{Btf, Kind, NameIndex, TypeId};

/// More bytes than a structure has that is passed in registers; one in memory is all compared.
const MOST: u64 = 16;

/// The bits of a parameter of the functions of that name, byte by byte; none if all have a meaning, if the image has no
/// such function, or if it has several that differ.
pub(super) fn bits(btf: &Btf<'_>, functions: &NameIndex<'_>, name: &str, nth: usize) -> Option<Vec<u8>> {
    let of_function = |function| {
        let prototype = btf.ty(btf.ty(function)?.target()?)?;
        let ty = prototype.params().nth(nth)?.ty;
        let size = btf.size_of(ty).filter(|size| *size <= MOST)?;
        let mut bits = vec![0; usize::try_from(size).ok()?];
        add(btf, ty, 0, &mut bits)?;
        Some(bits)
    };
    let mut all = functions.get(Kind::Func, name).map(of_function);
    let first = all.next()??;
    let is_partial = first.iter().any(|byte| *byte != u8::MAX);
    (is_partial && all.all(|other| other.as_ref() == Some(&first))).then_some(first)
}

/// Leaves the bits that have a meaning.
pub(super) fn keep(value: &mut [u8], bits: &[u8]) {
    value.iter_mut().zip(bits).for_each(|(byte, bits)| *byte &= bits);
}

/// Adds those of a type that begins at a bit.
fn add(btf: &Btf<'_>, ty: TypeId, begin: u64, bits: &mut [u8]) -> Option<()> {
    let ty = btf.resolve(ty)?;
    if let Some(array) = ty.array() {
        let size = btf.size_of(array.element)?;
        return (0..u64::from(array.count))
            .try_for_each(|nth| add(btf, array.element, begin + nth.checked_mul(size * 8)?, bits));
    }
    if !matches!(ty.kind(), Kind::Struct | Kind::Union) {
        set(bits, begin, btf.size_of(ty.id())? * 8);
        return Some(());
    }
    ty.members().try_for_each(|member| {
        let at = begin + u64::from(member.bit_offset);
        if member.bits == 0 {
            return add(btf, member.ty, at, bits);
        }
        set(bits, at, member.bits.into());
        Some(())
    })
}

fn set(bits: &mut [u8], begin: u64, count: u64) {
    for bit in begin..begin.saturating_add(count) {
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|byte| bits.get_mut(byte)) else { return };
        *byte |= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::{IntEncoding, Linkage, Member, SplitBtf};

    #[test]
    fn padding_has_no_meaning() {
        let mut btf = SplitBtf::standalone();
        let byte = btf.int("unsigned char", 1, 8, IntEncoding::default());
        let long = btf.int("long int", 8, 64, IntEncoding::SIGNED);
        let member = |name, ty, bit_offset, bits| Member { name, ty, bit_offset, bits };
        let members = [member("pointer", long, 0, 0), member("is_kernel", byte, 64, 1), member("kind", byte, 72, 0)];
        let partial = btf.composite(Kind::Struct, "partial", 16, &members);
        let whole = btf.composite(Kind::Struct, "whole", 8, &[member("only", long, 0, 0)]);
        let bytes = btf.array(byte, byte, 3);
        let three = btf.composite(Kind::Struct, "three", 4, &[member("bytes", bytes, 8, 0)]);
        for (name, ty) in
            [("f", partial), ("g", whole), ("h", long), ("k", three), ("twice", partial), ("twice", whole)]
        {
            let prototype = btf.func_proto(0, &[("first", long), ("second", ty)], false);
            btf.func(name, prototype, Linkage::Global);
        }
        let data = btf.to_bytes();
        let btf = Btf::parse(&data).unwrap();
        let functions = NameIndex::new(&btf, &[Kind::Func]);
        let bits = |name| bits(&btf, &functions, name, 1);
        let expected = [&[0xff; 8][..], &[0x01, 0xff], &[0; 6]].concat();
        assert_eq!(bits("f"), Some(expected.clone()));
        assert_eq!(bits("k"), Some(vec![0, 0xff, 0xff, 0xff]));
        for name in ["g", "h", "twice", "none"] {
            assert_eq!(bits(name), None, "{name}");
        }
        let mut value = [0xaa; 16];
        keep(&mut value, &expected);
        assert_eq!(value, *[&[0xaa; 8][..], &[0, 0xaa], &[0; 6]].concat());
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a function's prototype says about its parameters' values.
//!
//! A LOC_PARAM says where a value is and how many bytes it has. Whether it is extended to its slot by its sign follows
//! from the parameter's type. All sites of a function have that in common, and a LOC_PROTO that several functions share
//! has not.

use super::kinds::Kind;
use super::read::{Btf, TypeId};

/// How many parameters a [`Signature`] can tell about: more than C requires compilers to take (127).
const MOST: u32 = u128::BITS;

/// The parameters of a prototype: how many there are, and which are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature {
    parameters: u32,
    vlen: u32,
    signed: u128,
}

impl Signature {
    /// That of a FUNC. `None` if it is not one, or if its types are malformed.
    pub fn of(btf: &Btf<'_>, func: TypeId) -> Option<Signature> {
        let func = btf.ty(func).filter(|ty| ty.kind() == Kind::Func)?;
        let proto = btf.ty(func.target()?).filter(|ty| ty.kind() == Kind::FuncProto)?;
        let (mut parameters, mut signed) = (0, 0);
        for param in proto.params() {
            if btf.is_signed(param.ty)? && parameters < MOST {
                signed |= 1 << parameters;
            }
            parameters += 1;
        }
        Some(Signature { parameters, vlen: proto.vlen(), signed })
    }

    /// How many parameters there are, without the mark of a variadic function.
    pub fn parameters(&self) -> usize {
        self.parameters as usize
    }

    /// How many elements the FUNC_PROTO has: one more than there are parameters if the function is variadic. A
    /// LOC_PROTO for the function has as many.
    pub fn vlen(&self) -> usize {
        self.vlen as usize
    }

    /// Whether a parameter's type is signed; `None` if there is no such parameter, or too many come before it.
    pub fn is_signed(&self, nth: usize) -> Option<bool> {
        let nth = u32::try_from(nth).ok().filter(|&nth| nth < self.parameters.min(MOST))?;
        Some(self.signed >> nth & 1 != 0)
    }
}

impl Btf<'_> {
    /// Whether values of a type have a sign: those of signed integers, and of enumerations with negative values. `None`
    /// if there is no such type, or a chain of types does not end.
    pub fn is_signed(&self, ty: TypeId) -> Option<bool> {
        let ty = self.resolve(ty)?;
        Some(match ty.kind() {
            Kind::Int => ty.int().is_some_and(|int| int.encoding.is_signed()),
            Kind::Enum | Kind::Enum64 => ty.flag(),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Enumerator, IntEncoding, Linkage, SplitBtf};
    use super::*;

    #[test]
    fn types_tell_what_is_signed() {
        let mut b = SplitBtf::standalone();
        let int = b.int("int", 4, 32, IntEncoding::SIGNED);
        let uint = b.int("unsigned int", 4, 32, IntEncoding::UNSIGNED);
        let alias = b.typedef("s32", int);
        let constant = b.modifier(Kind::Const, alias);
        let pointer = b.modifier(Kind::Ptr, int);
        let negative = b.enumeration("negative", 4, true, &[Enumerator { name: "MINUS", value: -1 }]);
        let wide = b.enumeration("wide", 8, false, &[Enumerator { name: "FAR", value: 1 << 40 }]);
        let types = [int, uint, constant, pointer, negative, wide];
        let params = types.map(|ty| ("p", ty));
        let plain = b.func_proto(int, &params, false);
        let plain = b.func("plain", plain, Linkage::Static);
        let variadic = b.func_proto(int, &params[..2], true);
        let variadic = b.func("variadic", variadic, Linkage::Static);
        let many: Vec<_> = (0..130).map(|_| ("p", int)).collect();
        let many = b.func_proto(int, &many, false);
        let many = b.func("many", many, Linkage::Static);
        let astray = b.func_proto(int, &[("p", 9999)], false);
        let astray = b.func("astray", astray, Linkage::Static);
        let bytes = b.to_bytes();
        let btf = Btf::parse(&bytes).unwrap();
        let of = |func| Signature::of(&btf, func);
        let plain = of(plain).unwrap();
        assert_eq!((plain.parameters(), plain.vlen()), (6, 6));
        let signed: Vec<_> = (0..7).map(|nth| plain.is_signed(nth)).collect();
        let expected = [true, false, true, false, true, false].map(Some);
        assert_eq!((&signed[..6], signed[6]), (&expected[..], None));
        let variadic = of(variadic).unwrap();
        assert_eq!((variadic.parameters(), variadic.vlen(), variadic.is_signed(2)), (2, 3, None));
        let many = of(many).unwrap();
        assert_eq!((many.parameters(), many.is_signed(127), many.is_signed(128)), (130, Some(true), None));
        assert_eq!((of(astray), of(int), of(0)), (None, None, None));
    }
}

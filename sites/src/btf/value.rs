// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! An argument's value as text, by its type: `21`, `true`, `PIDTYPE_TGID`, `0xffff888003c1e000`, `NULL`,
//! `{.kernel = 0x7ffd1c2e, .is_kernel = false}`.

use super::kinds::{IntEncoding, Kind};
use super::read::{Btf, TypeId};
use super::types::Type;
use std::fmt::Write as _;

/// How deep structures are followed.
const DEPTH: u32 = 4;
/// How many members or elements of one structure or array are written.
const WIDTH: usize = 16;
/// How many values one text may hold in all: structures of structures end there.
const BUDGET: u32 = 128;

/// The text of a value that stands in 8-byte slots, as a program's context holds it (little-endian).
/// Bytes beyond the type's size are ignored. A type that cannot be shown gives the slots in hexadecimal.
pub fn format_value(btf: &Btf<'_>, ty: TypeId, slots: &[u64]) -> String {
    let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    let mut writer = Writer { btf, bytes: &bytes, text: String::new(), left: BUDGET };
    match btf.resolve(ty) {
        Some(resolved) => writer.value(resolved, 0, 0, DEPTH),
        None => writer.raw(0, 64 * slots.len() as u64),
    }
    writer.text
}

struct Writer<'w, 'a> {
    btf: &'w Btf<'a>,
    bytes: &'w [u8],
    text: String,
    left: u32,
}

impl<'a> Writer<'_, 'a> {
    /// The value of at most 64 bits at a bit offset; `None` where the bytes end before it.
    fn bits(&self, bit_offset: u64, bits: u32) -> Option<u64> {
        if bits == 0 || bits > 64 {
            return None;
        }
        let last = bit_offset.checked_add(u64::from(bits) - 1)? / 8;
        if last >= self.bytes.len() as u64 {
            return None;
        }
        let first = bit_offset / 8;
        let mut wide = 0u128;
        for index in (first..=last).rev() {
            wide = wide << 8 | u128::from(self.bytes[index as usize]);
        }
        Some((wide >> (bit_offset % 8)) as u64 & (u64::MAX >> (64 - bits)))
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn raw(&mut self, bit_offset: u64, bits: u64) {
        let from = (bit_offset / 8).min(self.bytes.len() as u64) as usize;
        let to = (bit_offset.saturating_add(bits) / 8).min(self.bytes.len() as u64) as usize;
        self.put("0x");
        let digits: String = self.bytes[from..to].iter().rev().map(|byte| format!("{byte:02x}")).collect();
        self.put(if digits.is_empty() { "?" } else { &digits });
    }

    /// Writes the value of a resolved type at a bit offset; `bitfield` is the width of a bitfield, or 0.
    fn value(&mut self, ty: Type<'a>, bit_offset: u64, bitfield: u32, depth: u32) {
        if self.left == 0 {
            return self.put("...");
        }
        self.left -= 1;
        let size = self.btf.size_of(ty.id()).unwrap_or(8);
        let width = match ty.kind() {
            _ if bitfield != 0 => bitfield,
            Kind::Int => ty.int().map_or(0, |int| int.bits),
            _ => u32::try_from(size.saturating_mul(8)).unwrap_or(0),
        };
        match ty.kind() {
            Kind::Struct | Kind::Union => return self.composite(ty, bit_offset, depth),
            Kind::Array => return self.array(ty, bit_offset, depth),
            _ => {}
        }
        let Some(value) = self.bits(bit_offset, width) else { return self.raw(bit_offset, size.saturating_mul(8)) };
        let signed = |value: u64| ((value << (64 - width)) as i64) >> (64 - width);
        match ty.kind() {
            Kind::Int => {
                let encoding = ty.int().map_or(IntEncoding(0), |int| int.encoding);
                if encoding.is_bool() && value <= 1 {
                    self.put(if value == 1 { "true" } else { "false" });
                } else if encoding.is_signed() {
                    let _ = write!(self.text, "{}", signed(value));
                } else if value > u64::from(u32::MAX) {
                    let _ = write!(self.text, "{value:#x}");
                } else {
                    let _ = write!(self.text, "{value}");
                }
            }
            Kind::Enum | Kind::Enum64 => {
                let number = if ty.flag() { signed(value) } else { value as i64 };
                match ty.enumerators().find(|enumerator| enumerator.value == number) {
                    Some(enumerator) => self.put(enumerator.name),
                    None => {
                        let _ = write!(self.text, "{number}");
                    }
                }
            }
            Kind::Ptr if value == 0 => self.put("NULL"),
            Kind::Ptr => {
                let _ = write!(self.text, "{value:#x}");
            }
            _ => self.raw(bit_offset, u64::from(width)),
        }
    }

    fn composite(&mut self, ty: Type<'a>, bit_offset: u64, depth: u32) {
        if depth == 0 {
            return self.put("{...}");
        }
        self.put("{");
        for (index, member) in ty.members().enumerate() {
            if index > 0 {
                self.put(", ");
            }
            if index >= WIDTH || self.left == 0 {
                self.put("...");
                break;
            }
            if !member.name.is_empty() {
                let _ = write!(self.text, ".{} = ", member.name);
            }
            let at = bit_offset.saturating_add(u64::from(member.bit_offset));
            match self.btf.resolve(member.ty) {
                Some(resolved) => self.value(resolved, at, member.bits, depth - 1),
                None => self.put("?"),
            }
        }
        self.put("}");
    }

    fn array(&mut self, ty: Type<'a>, bit_offset: u64, depth: u32) {
        let (Some(array), true) = (ty.array(), depth > 0) else { return self.put("[...]") };
        let (Some(element), Some(size)) = (self.btf.resolve(array.element), self.btf.size_of(array.element)) else {
            return self.put("[...]");
        };
        self.put("[");
        for index in 0..u64::from(array.count) {
            if index > 0 {
                self.put(", ");
            }
            if index >= WIDTH as u64 || self.left == 0 {
                self.put("...");
                break;
            }
            let at = bit_offset.saturating_add(index.saturating_mul(size).saturating_mul(8));
            self.value(element, at, 0, depth - 1);
        }
        self.put("]");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Member, SplitBtf};
    use super::*;

    #[test]
    fn values_follow_their_types() {
        let empty = SplitBtf::standalone().to_bytes();
        let base = Btf::parse(&empty).unwrap();
        let mut b = SplitBtf::new(&base);
        let int = b.int("int", 4, 32, IntEncoding::SIGNED);
        let u64_ = b.int("unsigned long", 8, 64, IntEncoding(0));
        let bool_ = b.int("bool", 1, 8, IntEncoding::BOOL);
        let pointer = b.modifier(Kind::Ptr, int);
        let typedef = b.typedef("s32", int);
        let members = |list: &[(&'static str, TypeId, u32, u32)]| {
            list.iter().map(|&(name, ty, bit_offset, bits)| Member { name, ty, bit_offset, bits }).collect::<Vec<_>>()
        };
        let inner = b.composite(Kind::Union, "", 8, &members(&[("kernel", pointer, 0, 0), ("user", pointer, 0, 0)]));
        let sockptr = b.composite(
            Kind::Struct,
            "sockptr",
            16,
            &members(&[("", inner, 0, 0), ("is_kernel", bool_, 64, 1), ("rest", int, 65, 3)]),
        );
        let array = b.array(int, int, 3);
        let endless = b.end_id();
        assert_eq!(b.array(endless, int, 3), endless);
        let bytes = b.to_bytes();
        let btf = Btf::parse_split(&bytes, &base).unwrap();
        assert_eq!(format_value(&btf, int, &[0xffff_ffff]), "-1");
        assert_eq!(format_value(&btf, typedef, &[0xdead_0000_0007]), "7");
        assert_eq!(format_value(&btf, u64_, &[21]), "21");
        assert_eq!(format_value(&btf, u64_, &[u64::MAX]), "0xffffffffffffffff");
        assert_eq!(format_value(&btf, bool_, &[1]), "true");
        assert_eq!(format_value(&btf, pointer, &[0]), "NULL");
        assert_eq!(format_value(&btf, pointer, &[0x10]), "0x10");
        assert_eq!(
            format_value(&btf, sockptr, &[0x7f00, 0b1111]),
            "{{.kernel = 0x7f00, .user = 0x7f00}, .is_kernel = true, .rest = -1}"
        );
        assert_eq!(format_value(&btf, array, &[u64::MAX, 5]), "[-1, -1, 5]");
        assert_eq!(format_value(&btf, 9999, &[5]), "0x0000000000000005");
        assert_eq!(format_value(&btf, int, &[]), "0x?");
        assert!(format_value(&btf, endless, &[5]).len() < 1000);
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Paths to members of structures, `file->f_path.dentry->d_name.name`, as reads of memory.
//!
//! A path begins with the name of a value, which the caller knows. The rest is resolved by BTF: members of structures
//! and unions, members of anonymous ones among them, elements of arrays, pointers. The result is a chain of offsets:
//! each is added to the value so far, and all reads but the last are of a pointer.
//!
//! The rules are those of C, except that a pointer to a structure that this BTF only declares is followed into the
//! structure of that name if the BTF, or its base, has one, or several that do not differ in the member. Functions are
//! not called, and pointers are not cast. A pointer that is tagged as one to per-CPU data is not followed: its value is
//! not an address. (BTF that was made from gcc's debug information has no such tags.)

use crate::btf::{Btf, Kind, Type, TypeId, type_name};
use crate::file::nearest;
use std::fmt;
use std::str::FromStr;

/// How many steps a path may have.
const MOST_STEPS: usize = 32;

/// A path as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    base: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// `->name`
    Arrow(String),
    /// `.name`
    Dot(String),
    /// `[n]`
    Index(u64),
}

/// Why a path is not one, or does not fit the types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Not the syntax of a path.
    #[error("{text} is not a path to a member: {why}")]
    Syntax {
        /// The path.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The structure does not have the member.
    #[error("{ty} has no member {member}{}", hint(near))]
    NoMember {
        /// The structure or union.
        ty: String,
        /// The member.
        member: String,
        /// Members with names like it, or the first ones.
        near: Vec<String>,
    },
    /// `->` after something that is not a pointer.
    #[error("{at} is {ty}, not a pointer: write {at}.{member}")]
    NotAPointer {
        /// The path so far.
        at: String,
        /// Its type.
        ty: String,
        /// The member.
        member: String,
    },
    /// `.` after a pointer.
    #[error("{at} is a pointer ({ty}): write {at}->{member}")]
    APointer {
        /// The path so far.
        at: String,
        /// Its type.
        ty: String,
        /// The member.
        member: String,
    },
    /// A member or an element of something that has none.
    #[error("{at} is {ty}, which has no {what}")]
    NoParts {
        /// The path so far.
        at: String,
        /// Its type.
        ty: String,
        /// `members` or `elements`.
        what: &'static str,
    },
    /// The kernel's types only declare the structure.
    #[error("this kernel's BTF does not say what is in {ty}, to which {at} points")]
    Incomplete {
        /// The path so far.
        at: String,
        /// The structure or union.
        ty: String,
    },
    /// The kernel's types only declare the structure, and define several of that name.
    #[error("{at} points to {ty}, and this kernel's BTF has several: which one is not known")]
    Ambiguous {
        /// The path so far.
        at: String,
        /// The structure or union.
        ty: String,
    },
    /// A pointer to per-CPU data.
    #[error("{at} points to per-CPU data: each processor has its own, and it is not followed")]
    PerCpu {
        /// The path so far.
        at: String,
    },
    /// An index beyond the array's end.
    #[error("{at} has {count} elements, from 0: {index} is past the end")]
    PastTheEnd {
        /// The path so far.
        at: String,
        /// How many elements there are.
        count: u32,
        /// The index.
        index: u64,
    },
    /// The path ends at something that is neither a number nor text.
    #[error("{at} is {ty}, not a number or a text: {advice}")]
    Whole {
        /// The path.
        at: String,
        /// Its type.
        ty: String,
        /// How to go on.
        advice: String,
    },
    /// A bitfield that is wider than a read, or a structure that is larger than memory.
    #[error("{at} is laid out as no C compiler lays it out: the BTF is damaged")]
    Layout {
        /// The path so far.
        at: String,
    },
}

fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A number: an integer, a truth value, an enumerator, a pointer.
    Number,
    /// A pointer to text.
    TextPointer,
    /// An array of so many characters, in place. 0 if its length is not known.
    Characters(u32),
}

/// How the value of a path is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Added one after the other: each but the last gives the address of a pointer, which is read. Empty if the value
    /// is in the base itself, which is a structure.
    pub offsets: Vec<u32>,
    /// Bytes that the last read takes, from 1 to 8.
    pub size: u32,
    /// Position of the value's lowest bit in what was read.
    pub shift: u32,
    /// Bits of the value.
    pub bits: u32,
    /// Whether the highest of them is a sign.
    pub signed: bool,
    /// Whether it is in network order: `__be16`, `__be32`, `__be64`.
    pub big_endian: bool,
    /// What it is.
    pub form: Form,
    /// Its type.
    pub ty: TypeId,
}

impl Path {
    /// The name that it begins with.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether a text is meant to be a path, and not a plain name.
    pub fn is_meant(text: &str) -> bool {
        text.contains("->") || text.contains('.') || text.contains('[')
    }

    /// How the path is read, if its base is of that type.
    ///
    /// # Errors
    /// If the types do not have what the path names, or it leads to a structure or an array.
    pub fn resolve(&self, btf: &Btf<'_>, base: TypeId) -> Result<Access, PathError> {
        let at = self.base.clone();
        let mut walk = Walk { btf, offsets: Vec::new(), in_memory: false, at, ty: base, bit: 0, bitfield: 0 };
        self.steps.iter().try_for_each(|step| walk.step(step))?;
        walk.finish()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Path, PathError> {
        let error = |why| PathError::Syntax { text: text.to_owned(), why };
        let name_end = |text: &str| text.find(['-', '.', '[']).unwrap_or(text.len());
        let (base, mut rest) = text.split_at(name_end(text));
        if !is_name(base) {
            return Err(error("it does not begin with a name"));
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (digits, after) = inside.split_once(']').ok_or_else(|| error("a ] is missing"))?;
                let index = digits.parse().map_err(|_| error("an index is a decimal number"))?;
                steps.push(Step::Index(index));
                rest = after;
                continue;
            }
            let arrow = rest.strip_prefix("->");
            let named = arrow.or_else(|| rest.strip_prefix('.'));
            let named = named.ok_or_else(|| error("members are named after -> or ."))?;
            let (name, after) = named.split_at(name_end(named));
            if !is_name(name) {
                return Err(error("the name of a member is missing"));
            }
            let name = name.to_owned();
            steps.push(if arrow.is_some() { Step::Arrow(name) } else { Step::Dot(name) });
            rest = after;
        }
        if steps.is_empty() {
            return Err(error("it names no member"));
        }
        if steps.len() > MOST_STEPS {
            return Err(error("it has more than 32 steps"));
        }
        Ok(Path { text: text.to_owned(), base: base.to_owned(), steps })
    }
}

/// What is said of the rest of a structure in registers.
const BY_VALUE: &str =
    "of a structure that is passed by value, only numbers and pointers in its first 8 bytes are read";

/// A path that is being resolved.
struct Walk<'w, 'a> {
    btf: &'w Btf<'a>,
    offsets: Vec<u32>,
    /// Whether a pointer was followed; before, the path is in the base itself.
    in_memory: bool,
    /// The path so far, for errors.
    at: String,
    ty: TypeId,
    /// Bits from what was followed last.
    bit: u64,
    /// Bits of a bitfield; 0 if it is none.
    bitfield: u32,
}

impl<'a> Walk<'_, 'a> {
    fn resolved(&self) -> Option<Type<'a>> {
        self.btf.resolve(self.ty)
    }

    fn type_name(&self) -> String {
        type_name(self.btf, self.ty)
    }

    fn no_parts(&self, what: &'static str) -> PathError {
        PathError::NoParts { at: self.at.clone(), ty: self.type_name(), what }
    }

    /// Follows the pointer that the path has come to; its target's type.
    fn follow(&mut self, pointer: &Type<'a>) -> Result<(), PathError> {
        if self.in_memory {
            let byte = self.byte()?;
            self.offsets.push(byte);
        } else if self.bit > 0 {
            return Err(self.whole(BY_VALUE));
        }
        self.in_memory = true;
        self.ty = pointer.target().unwrap_or(0);
        if is_tagged(self.btf, self.ty, "percpu") {
            return Err(PathError::PerCpu { at: self.at.clone() });
        }
        (self.bit, self.bitfield) = (0, 0);
        Ok(())
    }

    fn byte(&self) -> Result<u32, PathError> {
        u32::try_from(self.bit / 8)
            .ok()
            .filter(|&byte| byte <= i32::MAX as u32)
            .ok_or_else(|| PathError::Layout { at: self.at.clone() })
    }

    fn step(&mut self, step: &Step) -> Result<(), PathError> {
        let now = self.resolved();
        let pointer = now.filter(|ty| ty.kind() == Kind::Ptr);
        match step {
            Step::Arrow(member) => {
                let Some(pointer) = pointer else {
                    return match now {
                        Some(ty) if matches!(ty.kind(), Kind::Struct | Kind::Union) => Err(PathError::NotAPointer {
                            at: self.at.clone(),
                            ty: self.type_name(),
                            member: member.clone(),
                        }),
                        _ => Err(self.no_parts("members")),
                    };
                };
                let at = self.at.clone();
                self.follow(&pointer)?;
                self.at.push_str("->");
                self.member(member, &at)
            }
            Step::Dot(member) => {
                if pointer.is_some() {
                    return Err(PathError::APointer {
                        at: self.at.clone(),
                        ty: self.type_name(),
                        member: member.clone(),
                    });
                }
                let at = self.at.clone();
                self.at.push('.');
                self.member(member, &at)
            }
            Step::Index(index) => self.element(pointer, now, *index),
        }
    }

    /// The structure that a declaration stands for, as far as its member `name` goes.
    fn defined(&self, declared: &Type<'a>, name: &str, at: &str) -> Result<Type<'a>, PathError> {
        let kind = if declared.flag() { Kind::Union } else { Kind::Struct };
        let (at, ty) = (at.to_owned(), self.type_name());
        let (mut found, mut level): (Vec<Type<'a>>, Option<&Btf<'a>>) = (Vec::new(), Some(self.btf));
        while let Some(btf) = level {
            found.extend(btf.named(kind, declared.name()));
            level = btf.base();
        }
        let place = |whole: &Type<'a>| {
            let (bit, bits, ty) = find(self.btf, whole, name, MOST_STEPS)?;
            let resolved = self.btf.resolve(ty).map(|ty| (ty.kind(), ty.name()));
            Some((bit, bits, self.btf.size_of(ty), self.btf.is_signed(ty), resolved))
        };
        match found.split_first() {
            None => Err(PathError::Incomplete { at, ty }),
            Some((first, rest)) if rest.iter().all(|other| place(other) == place(first)) => Ok(*first),
            Some(_) => Err(PathError::Ambiguous { at, ty }),
        }
    }

    /// Goes to a member; `at` is the path without it.
    fn member(&mut self, name: &str, at: &str) -> Result<(), PathError> {
        let no_parts = |walk: &Self| PathError::NoParts { at: at.to_owned(), ty: walk.type_name(), what: "members" };
        let mut whole = self.resolved().ok_or_else(|| no_parts(self))?;
        if whole.kind() == Kind::Fwd {
            whole = self.defined(&whole, name, at)?;
        }
        if !matches!(whole.kind(), Kind::Struct | Kind::Union) {
            return Err(no_parts(self));
        }
        let Some((bit, bits, ty)) = find(self.btf, &whole, name, MOST_STEPS) else {
            let mut names = Vec::new();
            members(self.btf, &whole, &mut names, MOST_STEPS);
            let near = nearest(names.iter().copied(), name, 3).into_iter().map(str::to_owned).collect();
            return Err(PathError::NoMember { ty: type_name(self.btf, whole.id()), member: name.to_owned(), near });
        };
        self.at.push_str(name);
        self.bit = self.bit.saturating_add(bit);
        (self.bitfield, self.ty) = (bits, ty);
        Ok(())
    }

    fn element(&mut self, pointer: Option<Type<'a>>, now: Option<Type<'a>>, index: u64) -> Result<(), PathError> {
        let element = if let Some(pointer) = pointer {
            self.follow(&pointer)?;
            self.ty
        } else {
            let array = now.and_then(|ty| ty.array()).ok_or_else(|| self.no_parts("elements"))?;
            // An array at the end of a structure may have any length.
            if array.count > 0 && index >= u64::from(array.count) {
                return Err(PathError::PastTheEnd { at: self.at.clone(), count: array.count, index });
            }
            array.element
        };
        let size = self.btf.size_of(element).filter(|&size| size > 0).ok_or_else(|| self.no_parts("elements"))?;
        let bits = index.checked_mul(size).and_then(|bytes| bytes.checked_mul(8));
        let bits = bits.and_then(|bits| self.bit.checked_add(bits));
        self.bit = bits.ok_or_else(|| PathError::Layout { at: self.at.clone() })?;
        (self.ty, self.bitfield) = (element, 0);
        self.at.push_str(&format!("[{index}]"));
        Ok(())
    }

    fn finish(mut self) -> Result<Access, PathError> {
        let damaged = || PathError::Layout { at: self.at.clone() };
        let ty = self.resolved().ok_or_else(|| self.no_parts("value"))?;
        let (byte, within) = (self.byte()?, (self.bit % 8) as u32);
        let text = |ty: TypeId| is_text(self.btf, ty);
        let (size, shift, bits, form) = match ty.kind() {
            Kind::Array => {
                let array = ty.array().ok_or_else(damaged)?;
                if !text(array.element) {
                    return Err(self.whole("give the index of an element"));
                }
                (8, 0, 64, Form::Characters(array.count))
            }
            Kind::Ptr if text(ty.target().unwrap_or(0)) => (8, 0, 64, Form::TextPointer),
            Kind::Ptr => (8, 0, 64, Form::Number),
            Kind::Int | Kind::Enum | Kind::Enum64 => {
                let size = self.btf.size_of(ty.id()).and_then(|size| u32::try_from(size).ok()).ok_or_else(damaged)?;
                match self.bitfield {
                    0 => (size, 0, size.checked_mul(8).ok_or_else(damaged)?, Form::Number),
                    bits => ((within + bits).div_ceil(8), within, bits, Form::Number),
                }
            }
            Kind::Struct | Kind::Union => return Err(self.whole("name a member of it")),
            _ => return Err(self.whole("it has no value")),
        };
        if !matches!(size, 1..=8) || bits == 0 || bits > 64 {
            // There are integers of 16 bytes.
            return Err(self.whole("more than 8 bytes are not read"));
        }
        let (signed, big_endian) = (self.btf.is_signed(self.ty).unwrap_or(false), is_big_endian(self.btf, self.ty));
        let shift = if self.in_memory {
            self.offsets.push(byte);
            shift
        } else if byte < 8 && byte * 8 + shift + bits <= 64 && !matches!(form, Form::Characters(_)) {
            byte * 8 + shift
        } else {
            return Err(self.whole(BY_VALUE));
        };
        Ok(Access { offsets: self.offsets, size, shift, bits, signed, big_endian, form, ty: self.ty })
    }

    fn whole(&self, advice: &str) -> PathError {
        PathError::Whole { at: self.at.clone(), ty: self.type_name(), advice: advice.to_owned() }
    }
}

/// Where a member is: its first bit, bits of a bitfield, its type. Members of anonymous members count as the whole's.
fn find(btf: &Btf<'_>, whole: &Type<'_>, name: &str, depth: usize) -> Option<(u64, u32, TypeId)> {
    let inner = |member: &crate::btf::Member<'_>| {
        let inner = btf.resolve(member.ty).filter(|_| member.name.is_empty() && depth > 0)?;
        let (bit, bits, ty) = find(btf, &inner, name, depth - 1)?;
        Some((bit.saturating_add(u64::from(member.bit_offset)), bits, ty))
    };
    whole.members().find_map(|member| match member.name == name {
        true => Some((u64::from(member.bit_offset), member.bits, member.ty)),
        false => inner(&member),
    })
}

/// The names of all members that [`find`] finds.
fn members<'a>(btf: &Btf<'a>, whole: &Type<'a>, names: &mut Vec<&'a str>, depth: usize) {
    for member in whole.members() {
        match btf.resolve(member.ty) {
            Some(inner) if member.name.is_empty() && depth > 0 => members(btf, &inner, names, depth - 1),
            _ => names.push(member.name),
        }
    }
}

/// Whether a type is a character of text: `char`, and `unsigned char` as such. `u8` and other names of it are numbers.
fn is_text(btf: &Btf<'_>, ty: TypeId) -> bool {
    let mut ty = btf.ty(ty);
    for _ in 0..MOST_STEPS {
        match ty {
            Some(one) if one.kind().is_qualifier() || one.kind() == Kind::TypeTag => {
                ty = one.target().and_then(|target| btf.ty(target));
            }
            Some(one) => {
                // `char` by another name is text too.
                let resolved = btf.resolve(one.id());
                let is = |name: &str, ty: Type<'_>| ty.kind() == Kind::Int && ty.name() == name;
                return resolved.is_some_and(|resolved| is("char", resolved)) || is("unsigned char", one);
            }
            None => return false,
        }
    }
    false
}

/// Whether what a pointer points to has a tag.
fn is_tagged(btf: &Btf<'_>, ty: TypeId, tag: &str) -> bool {
    let mut ty = btf.ty(ty);
    for _ in 0..MOST_STEPS {
        match ty {
            Some(one) if one.kind() == Kind::TypeTag && one.name() == tag => return true,
            Some(one) if one.kind().is_qualifier() || one.kind() == Kind::TypeTag => {
                ty = one.target().and_then(|target| btf.ty(target));
            }
            _ => return false,
        }
    }
    false
}

/// Whether the type's name says that its values are in network order.
fn is_big_endian(btf: &Btf<'_>, ty: TypeId) -> bool {
    let mut ty = btf.ty(ty);
    for _ in 0..MOST_STEPS {
        match ty {
            Some(one) if one.kind() == Kind::Typedef && matches!(one.name(), "__be16" | "__be32" | "__be64") => {
                return true;
            }
            Some(one) if one.kind().is_qualifier() || matches!(one.kind(), Kind::Typedef | Kind::TypeTag) => {
                ty = one.target().and_then(|target| btf.ty(target));
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{IntEncoding, Member, SplitBtf};

    /// Types of all sorts; the number of `struct outer *`, and of `struct outer`.
    fn types() -> (Vec<u8>, TypeId, TypeId) {
        let mut b = SplitBtf::standalone();
        let member = |name, ty, bit_offset| Member { name, ty, bit_offset, bits: 0 };
        let int = b.int("int", 4, 32, IntEncoding::SIGNED);
        let uint = b.int("unsigned int", 4, 32, IntEncoding::UNSIGNED);
        let short = b.int("unsigned short", 2, 16, IntEncoding::UNSIGNED);
        let char = b.int("char", 1, 8, IntEncoding::SIGNED);
        let uchar = b.int("unsigned char", 1, 8, IntEncoding::UNSIGNED);
        let byte = b.typedef("u8", uchar);
        let port = b.typedef("__be16", short);
        let constant = b.modifier(Kind::Const, uchar);
        let name = b.modifier(Kind::Ptr, constant);
        let bytes = b.modifier(Kind::Ptr, byte);
        let of_cpu = b.type_tag("percpu", int);
        let of_cpu = b.modifier(Kind::Ptr, of_cpu);
        let twice = b.fwd("twice", false);
        let to_twice = b.modifier(Kind::Ptr, twice);
        let comm = b.array(char, int, 16);
        let numbers = b.array(int, int, 4);
        let unnamed = b.composite(Kind::Struct, "", 8, &[member("hash", uint, 0), member("len", uint, 32)]);
        let qstr = b.composite(Kind::Struct, "qstr", 16, &[member("", unnamed, 0), member("name", name, 64)]);
        let declared = b.fwd("later", false);
        let to_declared = b.modifier(Kind::Ptr, declared);
        let nowhere = b.fwd("nowhere", false);
        let to_nowhere = b.modifier(Kind::Ptr, nowhere);
        let flags = [
            Member { name: "low", ty: uint, bit_offset: 0, bits: 3 },
            Member { name: "signed", ty: int, bit_offset: 13, bits: 9 },
        ];
        let flags = b.composite(Kind::Struct, "flags", 4, &flags);
        // The pointer to itself: its number is the next but one.
        let outer = b.end_id();
        let list = [
            member("next", outer + 1, 0),
            member("qstr", qstr, 64),
            member("comm", comm, 192),
            member("numbers", numbers, 320),
            member("port", port, 448),
            member("flags", flags, 480),
            member("later", to_declared, 512),
            member("nowhere", to_nowhere, 576),
            member("bytes", bytes, 640),
            member("of_cpu", of_cpu, 704),
            member("twice", to_twice, 768),
        ];
        assert_eq!(b.composite(Kind::Struct, "outer", 104, &list), outer);
        let pointer = b.modifier(Kind::Ptr, outer);
        b.composite(Kind::Struct, "later", 8, &[member("value", int, 32)]);
        b.composite(Kind::Struct, "twice", 12, &[member("same", int, 0), member("other", int, 32)]);
        b.composite(Kind::Struct, "twice", 12, &[member("same", int, 0), member("other", int, 64)]);
        (b.to_bytes(), pointer, outer)
    }

    fn resolve(path: &str) -> Result<Access, String> {
        let (bytes, pointer, _) = types();
        let path: Path = path.parse().map_err(|error: PathError| error.to_string())?;
        path.resolve(&Btf::parse(&bytes).unwrap(), pointer).map_err(|error| error.to_string())
    }

    #[test]
    fn chains_of_offsets() {
        let offsets = |path: &str| resolve(path).unwrap_or_else(|why| panic!("{path}: {why}")).offsets;
        assert_eq!(offsets("p->port"), [56]);
        assert_eq!(offsets("p->next->next->port"), [0, 0, 56]);
        assert_eq!(offsets("p->next->qstr.len"), [0, 12]);
        assert_eq!(offsets("p->qstr.name"), [16]);
        assert_eq!(offsets("p->numbers[3]"), [52]);
        assert_eq!(offsets("p->later->value"), [64, 4]);
        assert_eq!(offsets("p->twice->same"), [96, 0]);
        assert_eq!(offsets("p[2].port"), [2 * 104 + 56]);
        assert_eq!(offsets("p->next[1].next->port"), [0, 104, 56]);
        assert_eq!(offsets("p->bytes[5]"), [80, 5]);
    }

    #[test]
    fn values_and_their_forms() {
        let of = |path: &str| resolve(path).unwrap_or_else(|why| panic!("{path}: {why}"));
        let number = |path: &str| {
            let access = of(path);
            assert_eq!(access.form, Form::Number, "{path}");
            (access.size, access.shift, access.bits, access.signed)
        };
        assert_eq!(number("p->qstr.len"), (4, 0, 32, false));
        assert_eq!(number("p->numbers[0]"), (4, 0, 32, true));
        assert_eq!(number("p->next"), (8, 0, 64, false));
        assert_eq!(number("p->flags.low"), (1, 0, 3, false));
        // Bits 13 to 21 are in the bytes 1 and 2.
        assert_eq!((number("p->flags.signed"), of("p->flags.signed").offsets), ((2, 5, 9, true), vec![61]));
        assert!(of("p->port").big_endian && !of("p->qstr.len").big_endian);
        assert_eq!(of("p->qstr.name").form, Form::TextPointer);
        assert_eq!(of("p->comm").form, Form::Characters(16));
        assert_eq!(number("p->bytes"), (8, 0, 64, false));
    }

    #[test]
    fn a_structure_by_value() {
        let (bytes, _, outer) = types();
        let btf = Btf::parse(&bytes).unwrap();
        let resolve = |path: &str| path.parse::<Path>().unwrap().resolve(&btf, outer);
        let followed = resolve("s.next->port").unwrap();
        assert_eq!(followed.offsets, [56]);
        let direct = resolve("s.next").unwrap();
        assert_eq!((direct.offsets.len(), direct.shift, direct.bits), (0, 0, 64));
        assert!(resolve("s.qstr.len").unwrap_err().to_string().contains("first 8 bytes"));
        assert!(resolve("s.later->value").unwrap_err().to_string().contains("first 8 bytes"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (path, why) in [
            ("p->prot", "struct outer has no member prot; did you mean port?"),
            ("p->qstr.nmae", "struct qstr has no member nmae; did you mean name?"),
            ("p->qstr->len", "p->qstr is struct qstr, not a pointer: write p->qstr.len"),
            ("p.port", "p is a pointer (struct outer *): write p->port"),
            ("p->port.x", "p->port is __be16, which has no members"),
            ("p->port->x", "p->port is __be16, which has no members"),
            ("p->port[1]", "p->port is __be16, which has no elements"),
            ("p->numbers[4]", "p->numbers has 4 elements, from 0: 4 is past the end"),
            ("p->numbers", "p->numbers is int[4], not a number or a text: give the index of an element"),
            ("p->qstr", "p->qstr is struct qstr, not a number or a text: name a member of it"),
            ("p->nowhere->x", "this kernel's BTF does not say what is in struct nowhere, to which p->nowhere points"),
            ("p->twice->other", "p->twice points to struct twice, and this kernel's BTF has several"),
            ("p->of_cpu[0]", "p->of_cpu points to per-CPU data"),
            ("p->", "the name of a member is missing"),
            ("p->a[", "a ] is missing"),
            ("p->a[x]", "an index is a decimal number"),
            ("p->a[99999999999999999999]", "an index is a decimal number"),
            ("->a", "does not begin with a name"),
            ("p", "names no member"),
            ("p-a", "members are named after -> or ."),
            ("p->next[18446744073709551615].port", "BTF is damaged"),
        ] {
            let error = resolve(path).unwrap_err();
            assert!(error.contains(why), "{path}: {error}");
        }
        assert!(resolve(&format!("p{}", "->next".repeat(33))).unwrap_err().contains("32 steps"));
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A type as C text, as `bpftool btf dump format c` would write it.
//!
//! C writes a type around the name that it declares: what comes after a name (arrays, parameters) binds more tightly
//! than what comes before it (pointers). So the text grows from the inside out, from the name to the type at the end
//! of the chain.

use super::kinds::Kind;
use super::read::{Btf, TypeId};

/// How many types may take part in one text: cycles and tangles end there.
const BUDGET: u32 = 256;
/// What stands for the rest then.
const CUT: &str = "...";

/// The C text of a type: `const char *`, `struct user_namespace *`, `int (*)(void *, size_t)`.
/// An anonymous structure is `struct {...}`. A type that there is not is `<type N>`.
pub fn type_name(btf: &Btf<'_>, id: TypeId) -> String {
    declaration(btf, id, "")
}

/// The declaration of a name with a type: `const char *name`, `int (*fn)(void *)`, `u8 digest[20]`.
pub fn declaration(btf: &Btf<'_>, id: TypeId, name: &str) -> String {
    Writer { btf, left: BUDGET }.declare(id, name.to_owned())
}

struct Writer<'w, 'a> {
    btf: &'w Btf<'a>,
    left: u32,
}

impl Writer<'_, '_> {
    fn declare(&mut self, id: TypeId, inner: String) -> String {
        let (mut id, mut inner) = (id, inner);
        // Qualifiers met on the way that belong to what comes next.
        let mut qualifiers: Vec<&'static str> = Vec::new();
        loop {
            if self.left == 0 {
                return join(CUT, &inner);
            }
            self.left -= 1;
            let prefix = |text: &str| {
                let mut all = qualifiers.clone();
                all.push(text);
                all.join(" ")
            };
            if id == 0 {
                return join(&prefix("void"), &inner);
            }
            let Some(ty) = self.btf.ty(id) else {
                return join(&format!("<type {id}>"), &inner);
            };
            match ty.kind() {
                Kind::Ptr => {
                    // Qualifiers of the pointer itself stand right of the asterisk.
                    let own = qualifiers.join(" ");
                    qualifiers.clear();
                    inner = format!("*{}", if own.is_empty() { inner } else { join(&own, &inner) });
                    id = ty.size_or_type();
                    if self.is_suffixed(id) {
                        inner = format!("({inner})");
                    }
                }
                Kind::Const => {
                    push(&mut qualifiers, "const");
                    id = ty.size_or_type();
                }
                Kind::Volatile => {
                    push(&mut qualifiers, "volatile");
                    id = ty.size_or_type();
                }
                Kind::Restrict => {
                    push(&mut qualifiers, "restrict");
                    id = ty.size_or_type();
                }
                // Not C: `__user`, `__rcu` and the like.
                Kind::TypeTag => id = ty.size_or_type(),
                Kind::Array => {
                    let Some(array) = ty.array() else {
                        return join(CUT, &inner);
                    };
                    inner = format!("{inner}[{}]", array.count);
                    id = array.element;
                }
                Kind::FuncProto => {
                    qualifiers.clear();
                    let mut params = Vec::new();
                    for param in ty.params() {
                        if self.left == 0 {
                            params.push(CUT.to_owned());
                            break;
                        }
                        params.push(self.declare(param.ty, String::new()));
                    }
                    if ty.is_variadic() {
                        params.push("...".to_owned());
                    }
                    let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
                    inner = format!("{inner}({params})");
                    id = ty.size_or_type();
                }
                Kind::Func => id = ty.size_or_type(),
                kind => {
                    let keyword = match kind {
                        Kind::Struct => "struct ",
                        Kind::Union => "union ",
                        Kind::Fwd if ty.flag() => "union ",
                        Kind::Fwd => "struct ",
                        Kind::Enum | Kind::Enum64 => "enum ",
                        _ => "",
                    };
                    let name = match ty.name() {
                        "" => "{...}",
                        name => name,
                    };
                    return join(&prefix(&format!("{keyword}{name}")), &inner);
                }
            }
        }
    }

    /// Whether a type is written after the name, so that a pointer to it needs brackets.
    fn is_suffixed(&self, id: TypeId) -> bool {
        let mut id = id;
        for _ in 0..self.left.min(16) {
            match self.btf.ty(id) {
                Some(ty) if ty.kind().is_qualifier() || ty.kind() == Kind::TypeTag => {
                    id = ty.size_or_type();
                }
                Some(ty) => return matches!(ty.kind(), Kind::Array | Kind::FuncProto),
                None => return false,
            }
        }
        false
    }
}

fn push(qualifiers: &mut Vec<&'static str>, qualifier: &'static str) {
    if !qualifiers.contains(&qualifier) {
        qualifiers.push(qualifier);
    }
}

fn join(left: &str, inner: &str) -> String {
    // `char *` has a space before the asterisk, `char[4]` and `int(void)` none.
    match inner.chars().next() {
        None => left.to_owned(),
        Some('[') => format!("{left}{inner}"),
        Some(_) => format!("{left} {inner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{IntEncoding, Linkage, SplitBtf};
    use super::*;

    #[test]
    fn types_read_as_c() {
        let empty = SplitBtf::standalone().to_bytes();
        let base = Btf::parse(&empty).unwrap();
        let mut b = SplitBtf::new(&base);
        let int = b.int("int", 4, 32, IntEncoding::SIGNED);
        let char_ = b.int("char", 1, 8, IntEncoding::SIGNED);
        let const_char = b.modifier(Kind::Const, char_);
        let string = b.modifier(Kind::Ptr, const_char);
        let const_string = b.modifier(Kind::Const, string);
        let strings = b.modifier(Kind::Ptr, const_string);
        let ns = b.composite(Kind::Struct, "user_namespace", 8, &[]);
        let ns_ptr = b.modifier(Kind::Ptr, ns);
        let anon = b.composite(Kind::Union, "", 8, &[]);
        let array = b.array(int, int, 4);
        let table = b.array(array, int, 2);
        let array_ptr = b.modifier(Kind::Ptr, array);
        let proto = b.func_proto(ns_ptr, &[("a", string), ("b", int)], true);
        let fn_ptr = b.modifier(Kind::Ptr, proto);
        let fn_ptrs = b.array(fn_ptr, int, 3);
        let takes = b.func_proto(0, &[("cb", fn_ptr)], false);
        let takes_ptr = b.modifier(Kind::Ptr, takes);
        let none = b.func_proto::<&str>(fn_ptr, &[], false);
        let func = b.func("f", none, Linkage::Static);
        let size_t = b.typedef("size_t", int);
        let user = b.type_tag("user", char_);
        let user_ptr = b.modifier(Kind::Ptr, user);
        let volatile = b.modifier(Kind::Volatile, int);
        let const_volatile = b.modifier(Kind::Const, volatile);
        let bytes = b.to_bytes();
        let btf = Btf::parse_split(&bytes, &base).unwrap();
        let is = |id, text: &str| assert_eq!(type_name(&btf, id), text);
        is(0, "void");
        is(int, "int");
        is(string, "const char *");
        is(const_string, "const char *const");
        is(strings, "const char *const *");
        is(ns_ptr, "struct user_namespace *");
        is(anon, "union {...}");
        is(array, "int[4]");
        is(table, "int[2][4]");
        is(array_ptr, "int (*)[4]");
        is(fn_ptr, "struct user_namespace *(*)(const char *, int, ...)");
        is(fn_ptrs, "struct user_namespace *(*[3])(const char *, int, ...)");
        is(takes_ptr, "void (*)(struct user_namespace *(*)(const char *, int, ...))");
        is(size_t, "size_t");
        is(user_ptr, "char *");
        is(const_volatile, "const volatile int");
        is(9999, "<type 9999>");
        assert_eq!(declaration(&btf, fn_ptr, "f"), "struct user_namespace *(*f)(const char *, int, ...)");
        assert_eq!(declaration(&btf, table, "t"), "int t[2][4]");
        assert_eq!(declaration(&btf, string, "name"), "const char *name");
        assert_eq!(declaration(&btf, func, "f"), "struct user_namespace *(*f(void))(const char *, int, ...)");
    }

    #[test]
    fn cycles_end() {
        let empty = SplitBtf::standalone().to_bytes();
        let base = Btf::parse(&empty).unwrap();
        let mut b = SplitBtf::new(&base);
        let next = b.end_id();
        // A pointer to itself, and a prototype whose parameters are all itself.
        let pointer = b.modifier(Kind::Ptr, next);
        let next = b.end_id();
        let proto = b.func_proto(next, &[("", next); 8], false);
        let qualified = b.end_id();
        assert_eq!(b.modifier(Kind::Const, qualified), qualified);
        let bytes = b.to_bytes();
        let btf = Btf::parse_split(&bytes, &base).unwrap();
        assert!(type_name(&btf, pointer).starts_with(CUT));
        assert!(type_name(&btf, proto).len() < 10_000);
        assert!(type_name(&btf, qualified).starts_with(CUT));
        assert!(btf.resolve(qualified).is_none());
        assert_eq!(btf.size_of(pointer), Some(8));
    }
}

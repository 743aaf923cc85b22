// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prototypes, as BTF has them: what a program has to know of a function's parameters and of what it returns.

use super::Place;
use crate::program::declared::Signature;
use siteseer_sites::Machine;
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::btf::{self, Btf, Kind, Type, TypeId};
use siteseer_sites::location::Argument;
use std::sync::Arc;

/// A parameter of a prototype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name; empty where BTF has none.
    pub name: String,
    /// BTF type.
    pub ty: TypeId,
    /// The type as C text: `struct user_namespace *`.
    pub type_name: String,
    /// Bytes of a value; 0 where the type has no size.
    pub size: u32,
    /// Whether a value narrower than its slot is sign-extended.
    pub signed: bool,
    /// Whether it is a structure or union.
    pub composite: bool,
    /// Whether the calling convention has rules of its own for it: see [`ParamShape::irregular`].
    pub irregular: bool,
    /// How many 8-byte slots of the context it takes.
    pub slots: u32,
    /// The structure or union that it points to, if it is such a pointer and the BTF of the kernel's image has the
    /// type.
    pub pointee: Option<TypeId>,
    /// Whether it points to a structure or union that the BTF of the kernel's image does not have: a module's own.
    pub foreign: bool,
}

impl Parameter {
    /// What the calling convention must know of it.
    pub fn shape(&self) -> ParamShape {
        ParamShape { size: self.size, signed: self.signed, composite: self.composite, irregular: self.irregular }
    }
}

/// A prototype that functions of the name have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The module whose BTF its types are numbers of; `None` for that of the kernel's image.
    pub module: Option<Arc<str>>,
    /// BTF FUNC; `None` for an out-of-line copy without a known prototype.
    pub func: Option<TypeId>,
    /// As C text.
    pub text: String,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// What it returns, without a name; `None` for `void`, or where the prototype is not known.
    pub result: Option<Parameter>,
    /// Whether further arguments may follow.
    pub variadic: bool,
    /// Its types, to be compared with what a program states; `None` where it is not known.
    pub signature: Option<Signature>,
    /// Where functions with it were declared, as far as the site data tells.
    pub declared: Vec<Place>,
    /// What a program writes after its name in `SITESEER_PROTO()` to state it: `int, struct user_namespace *ns, int
    /// cap`.
    pub statement: String,
}

impl Prototype {
    /// How many slots of the context the parameters take.
    pub fn slots(&self) -> u32 {
        self.parameters.iter().map(|parameter| parameter.slots).sum()
    }

    /// Where the calling convention puts the arguments of a function with this prototype.
    pub fn by_convention(&self, machine: Machine) -> Vec<Argument> {
        let shapes: Vec<ParamShape> = self.parameters.iter().map(Parameter::shape).collect();
        abi_arguments(machine, &shapes, self.result.as_ref().map(Parameter::shape))
    }

    /// Whether functions of both are called alike, as far as the type information goes, wherever the types are from.
    pub fn is_like(&self, other: &Prototype) -> bool {
        let shapes = |prototype: &Prototype| -> Vec<_> {
            prototype.parameters.iter().map(|parameter| (parameter.size, parameter.slots)).collect()
        };
        self.text == other.text
            && self.func.is_some() == other.func.is_some()
            && self.signature == other.signature
            && shapes(self) == shapes(other)
    }

    /// The prototype of a BTF FUNC. `kernel_types` is the first number of a type that the kernel's image does not have.
    pub fn of(btf: &Btf<'_>, func: TypeId, kernel_types: TypeId) -> Option<Prototype> {
        let function = btf.ty(func).filter(|ty| ty.kind() == Kind::Func)?;
        let proto = btf.ty(function.target()?).filter(|ty| ty.kind() == Kind::FuncProto)?;
        if !is_plausible(&function, &proto) {
            return None;
        }
        let parameter = |name: &str, ty: TypeId| {
            let size = btf.size_of(ty).and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
            Parameter {
                name: name.to_owned(),
                ty,
                type_name: btf::type_name(btf, ty),
                size,
                signed: btf.is_signed(ty).unwrap_or(false),
                composite: btf.resolve(ty).is_some_and(|ty| matches!(ty.kind(), Kind::Struct | Kind::Union)),
                irregular: !is_regular(btf, ty, 0, 0),
                slots: size.div_ceil(8).max(1),
                pointee: pointee(btf, ty).filter(|&id| id < kernel_types),
                foreign: pointee(btf, ty).is_some_and(|id| id >= kernel_types),
            }
        };
        let parameters = proto.params().map(|param| parameter(param.name, param.ty));
        Some(Prototype {
            module: None,
            func: Some(func),
            text: btf::declaration(btf, proto.id(), function.name()),
            parameters: parameters.collect(),
            result: proto.target().map(|ty| parameter("", ty)).filter(|result| result.size > 0),
            variadic: proto.is_variadic(),
            signature: Signature::of(btf, proto.id()),
            declared: Vec::new(),
            statement: statement(btf, &proto),
        })
    }

    /// The prototype of a copy if none is known.
    pub(super) fn unknown(name: &str) -> Prototype {
        Prototype {
            module: None,
            func: None,
            text: format!("{name}(?)"),
            parameters: Vec::new(),
            result: None,
            variadic: false,
            signature: None,
            declared: Vec::new(),
            statement: String::new(),
        }
    }
}

/// Whether it can be a function of a kernel's. Many FUNCs may share a prototype, and each makes a text of all names
/// in it: without a bound, data that are made for it would take any amount of memory.
fn is_plausible(function: &Type<'_>, proto: &Type<'_>) -> bool {
    /// As many as any C compiler has to take (C23 5.3.5.2), twice.
    const PARAMETERS: usize = 254;
    /// `KSYM_NAME_LEN`, to which the kernel bounds names in BTF.
    const NAME: usize = 512;
    let mut parameters = proto.params();
    let short = |name: &str| name.len() <= NAME;
    short(function.name())
        && parameters.by_ref().take(PARAMETERS).all(|parameter| short(parameter.name))
        && parameters.next().is_none()
}

/// What is returned, and the parameters, as the arguments of a macro.
fn statement(btf: &Btf<'_>, proto: &Type<'_>) -> String {
    let returns = btf::type_name(btf, proto.target().unwrap_or(0));
    let mut parameters: Vec<String> = proto.params().map(|param| btf::declaration(btf, param.ty, param.name)).collect();
    if proto.is_variadic() {
        parameters.push("...".to_owned());
    } else if parameters.is_empty() {
        parameters.push("void".to_owned());
    }
    format!("{returns}, {}", parameters.join(", "))
}

/// Whether a value at byte `start` of a structure is passed as so many bytes, whatever is in it. What a scalar
/// parameter itself is does not count. BTF does not say what the source aligns by attributes.
fn is_regular(btf: &Btf<'_>, ty: TypeId, start: u64, depth: u32) -> bool {
    const DEEPEST: u32 = 32;
    const WIDEST: u64 = 8;
    let Some(ty) = btf.resolve(ty).filter(|_| depth < DEEPEST) else { return depth == 0 };
    match ty.kind() {
        Kind::Struct | Kind::Union => ty
            .members()
            .filter(|member| member.bits == 0)
            .all(|member| is_regular(btf, member.ty, start + u64::from(member.bit_offset / 8), depth + 1)),
        Kind::Array => ty.array().is_some_and(|array| is_regular(btf, array.element, start, depth + 1)),
        _ if depth == 0 => true,
        Kind::Float => false,
        _ => btf
            .size_of(ty.id())
            .is_some_and(|size| size <= WIDEST && size.is_power_of_two() && start.is_multiple_of(size)),
    }
}

/// The structure or union that a pointer points to.
fn pointee(btf: &Btf<'_>, ty: TypeId) -> Option<TypeId> {
    let pointer = btf.resolve(ty).filter(|ty| ty.kind() == Kind::Ptr)?;
    let target = btf.resolve(pointer.target()?)?;
    matches!(target.kind(), Kind::Struct | Kind::Union).then(|| target.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::{IntEncoding, Linkage, SplitBtf};

    #[test]
    fn functions_that_no_kernel_has_are_without_a_prototype() {
        let base = SplitBtf::standalone().to_bytes();
        let base = Btf::parse(&base).unwrap();
        let prototype = |parameters: usize, name: usize, function: usize| {
            let mut types = SplitBtf::new(&base);
            let int = types.int("int", 4, 32, IntEncoding(1));
            let (name, function) = ("p".repeat(name), "f".repeat(function));
            let proto = types.func_proto(int, &vec![(name.as_str(), int); parameters], false);
            let func = types.func(&function, proto, Linkage::Static);
            let bytes = types.to_bytes();
            let btf = Btf::parse_split(&bytes, &base).unwrap();
            Prototype::of(&btf, func, TypeId::MAX).is_some()
        };
        assert!(prototype(0, 1, 1) && prototype(254, 1, 1) && prototype(2, 512, 512));
        assert!(!prototype(255, 1, 1) && !prototype(2, 513, 1) && !prototype(2, 1, 513));
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prototypes, as BTF has them: what a program has to know of a function's parameters and of what it returns.

use super::Place;
use crate::declared::Signature;
use siteseer_sites::btf::{self, Btf, Kind, Type, TypeId};
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
    /// How many 8-byte slots of the context it takes.
    pub slots: u32,
    /// The structure or union that it points to, if it is such a pointer and the BTF of the kernel's image has the type.
    pub pointee: Option<TypeId>,
    /// Whether it points to a structure or union that the BTF of the kernel's image does not have: a module's own.
    pub foreign: bool,
}

/// A prototype that functions of the name have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The module whose BTF its types are numbers of; `None` for that of the kernel's image.
    pub module: Option<Arc<str>>,
    /// BTF FUNC; `None` for an out-of-line copy of which no prototype is known.
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
    /// What a program writes behind its name in `SITESEER_PROTO()` to state it: `int, struct user_namespace *ns, int cap`.
    pub statement: String,
}

impl Prototype {
    /// How many slots of the context the parameters take.
    pub fn slots(&self) -> u32 {
        self.parameters.iter().map(|parameter| parameter.slots).sum()
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
        let parameter = |name: &str, ty: TypeId| {
            let size = btf.size_of(ty).and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
            Parameter {
                name: name.to_owned(),
                ty,
                type_name: btf::type_name(btf, ty),
                size,
                signed: btf.is_signed(ty).unwrap_or(false),
                composite: btf.resolve(ty).is_some_and(|ty| matches!(ty.kind(), Kind::Struct | Kind::Union)),
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

    /// The prototype of a copy of which none is known.
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

/// The structure or union behind a pointer.
fn pointee(btf: &Btf<'_>, ty: TypeId) -> Option<TypeId> {
    let pointer = btf.resolve(ty).filter(|ty| ty.kind() == Kind::Ptr)?;
    let target = btf.resolve(pointer.target()?)?;
    matches!(target.kind(), Kind::Struct | Kind::Union).then(|| target.id())
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a program states in its source: the function that it means, by parameter types, and its policy (`policy`).
//!
//! Several functions may have one name (`static` ones, in different files). A program says which it means by the line
//!
//! ```c
//! SITESEER_PROTO(program, int, struct user_namespace *ns, int cap);
//! ```
//!
//! of `siteseer.bpf.h`. It is a variable `__siteseer_proto_PROGRAM`, a pointer to a function of that prototype, in a
//! section of its own. libbpf makes no map of a section that it does not know, and gives the types to the kernel with
//! the rest of the object's BTF, from where they come back with the program.
//!
//! The object's BTF and the kernel's are strangers: their type numbers have nothing in common. So a prototype of either
//! becomes a [`Signature`], a tree that stands alone, and signatures are compared. The rules are C's for compatible
//! function types (C11 6.2.7, 6.7.6.3) as far as BTF lets one tell:
//!
//! * qualifiers of a parameter itself and of what is returned do not count, those of what is pointed to do; type tags
//!   (`__user`, `__rcu`) never do;
//! * a parameter that is an array or a function is a pointer;
//! * a typedef is what it stands for. An anonymous structure, union or enumeration goes by the name of the typedef that
//!   it is written in;
//! * structures, unions and enumerations go by their kind and name; what is in them is not looked at, and a forward
//!   declaration will do. `foo___x` is `foo`, as everywhere in CO-RE;
//! * integers go by size and signedness (so `long` and `long long` are one type, on both machines), but `char` and
//!   `_Bool` are types of their own. Whether `char` is signed differs between the kernel and BPF, and does not count;
//! * an array that is pointed to, of unknown length, is compatible with one of any length;
//! * a type that cannot be told (an anonymous structure without a typedef, damaged BTF) is compatible with none.

mod policy;

use crate::program::policy::Policy;
use siteseer_sites::btf::{Btf, BtfError, Kind, Type as BtfType, TypeId};

/// The section of `siteseer.bpf.h`'s variables.
const SECTION: &str = ".siteseer.proto";
/// What their names begin with; the program's name follows.
const PREFIX: &str = "__siteseer_proto_";
/// How many types may take part in one signature.
const BUDGET: u32 = 256;
/// How deeply they may be nested.
const DEEPEST: u32 = 32;

/// Why what a program states cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredError {
    /// The object's BTF is damaged.
    #[error("program {program}: the object's BTF")]
    Btf {
        /// The program's name.
        program: String,
        /// What is wrong.
        #[source]
        error: BtfError,
    },
    /// The variable is not what `SITESEER_PROTO` makes.
    #[error("program {program}: {PREFIX}{program} in section {SECTION} is not a pointer to a function")]
    NotAPrototype {
        /// The program's name.
        program: String,
    },
    /// The variable is not what `SITESEER_POLICY` makes, or the policy is one of a later siteseer.
    #[error(
        "program {program}: SITESEER_POLICY() states {}, which is not a policy of this siteseer: complete, \
         at_least_libbpf or best_effort",
        if found.is_empty() { "a type without a name" } else { found }
    )]
    NotAPolicy {
        /// The program's name.
        program: String,
        /// The type that stands for the policy.
        found: String,
    },
}

/// What a program states.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stated {
    /// The prototype of the function that it means.
    pub prototype: Option<Declared>,
    /// How it is to be attached, if whoever attaches it does not say.
    pub policy: Option<Policy>,
}

impl Stated {
    /// What the object's BTF has for the program of that name. An object without BTF states nothing.
    ///
    /// # Errors
    /// [`DeclaredError`] if the BTF is damaged, or a variable not of the type that its macro gives it.
    pub fn find(btf: Option<&[u8]>, program: &str) -> Result<Stated, DeclaredError> {
        let Some(btf) = btf else { return Ok(Stated::default()) };
        let btf = parse(btf, program)?;
        Ok(Stated { prototype: Declared::find_in(&btf, program)?, policy: policy::find(&btf, program)? })
    }
}

fn parse<'b>(btf: &'b [u8], program: &str) -> Result<Btf<'b>, DeclaredError> {
    Btf::parse(btf).map_err(|error| DeclaredError::Btf { program: program.to_owned(), error })
}

/// The variable of a program: in a section, with a name that is a prefix and the program's.
fn variable<'b>(btf: &Btf<'b>, section: &str, prefix: &str, program: &str) -> Option<BtfType<'b>> {
    let sections = btf.types().filter(|ty| ty.kind() == Kind::Datasec && ty.name() == section);
    let mut variables = sections.flat_map(|section| section.variables()).filter_map(|variable| btf.ty(variable.ty));
    variables.find(|variable| {
        variable.kind() == Kind::Var && variable.name().strip_prefix(prefix).is_some_and(|rest| rest == program)
    })
}

/// A prototype that a program states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// As C text, without names.
    pub text: String,
    /// Its types.
    pub signature: Signature,
}

impl Declared {
    /// What the object's BTF has for the program of that name; `None` if the program states nothing.
    ///
    /// # Errors
    /// [`DeclaredError`] if the BTF is damaged, or the variable not of the type that the macro gives it.
    pub fn find(btf: &[u8], program: &str) -> Result<Option<Declared>, DeclaredError> {
        Declared::find_in(&parse(btf, program)?, program)
    }

    fn find_in(btf: &Btf<'_>, program: &str) -> Result<Option<Declared>, DeclaredError> {
        let Some(variable) = variable(btf, SECTION, PREFIX, program) else { return Ok(None) };
        let pointer = variable.target().and_then(|id| btf.resolve(id)).filter(|ty| ty.kind() == Kind::Ptr);
        let function = pointer.and_then(|pointer| btf.resolve(pointer.target()?));
        let signature = function.as_ref().and_then(|function| Signature::of(btf, function.id()));
        match (function, signature) {
            (Some(function), Some(signature)) => {
                Ok(Some(Declared { text: siteseer_sites::btf::declaration(btf, function.id(), ""), signature }))
            }
            _ => Err(DeclaredError::NotAPrototype { program: program.to_owned() }),
        }
    }
}

/// The types of a prototype, apart from any BTF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    returns: Type,
    parameters: Vec<Type>,
    variadic: bool,
}

/// Where two signatures differ first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// In the number of parameters: theirs, and the other's.
    Count(usize, usize),
    /// In a parameter, by index.
    Parameter(usize),
    /// One takes further arguments.
    Variadic,
    /// In what is returned.
    Returns,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Count(one, other) => write!(f, "{other} parameters, not {one}"),
            Difference::Parameter(index) => write!(f, "parameter {index} is of another type"),
            Difference::Variadic => f.write_str("only one of them takes further arguments"),
            Difference::Returns => f.write_str("it returns another type"),
        }
    }
}

impl Signature {
    /// The signature of a FUNC_PROTO; `None` if the type is another.
    pub fn of(btf: &Btf<'_>, proto: TypeId) -> Option<Signature> {
        Reader { btf, left: BUDGET, depth: 0 }.signature(proto)
    }

    /// Where it differs from another; `None` if the two are compatible.
    pub fn difference(&self, other: &Signature) -> Option<Difference> {
        if self.parameters.len() != other.parameters.len() {
            return Some(Difference::Count(self.parameters.len(), other.parameters.len()));
        }
        let mut pairs = self.parameters.iter().zip(&other.parameters);
        if let Some(index) = pairs.position(|(one, other)| !one.is_compatible(other)) {
            return Some(Difference::Parameter(index));
        }
        if self.variadic != other.variadic {
            return Some(Difference::Variadic);
        }
        (!self.returns.is_compatible(&other.returns)).then_some(Difference::Returns)
    }
}

/// Qualifiers: a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Qualifiers(u8);

impl Qualifiers {
    fn add(&mut self, kind: Kind) {
        self.0 |= match kind {
            Kind::Const => 1,
            Kind::Volatile => 2,
            Kind::Restrict => 4,
            _ => 0,
        };
    }
}

/// What kind of type has a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Struct,
    Union,
    Enum,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Type {
    Void,
    Integer {
        size: u32,
        signed: bool,
    },
    Char,
    Boolean,
    Float {
        size: u32,
    },
    Tagged {
        tag: Tag,
        name: String,
    },
    /// An anonymous structure, union or enumeration, by the typedef that it is written in.
    Typedef {
        tag: Tag,
        name: String,
    },
    Pointer {
        to: Box<Type>,
        qualifiers: Qualifiers,
    },
    Array {
        element: Box<Type>,
        qualifiers: Qualifiers,
        /// 0: not known.
        count: u32,
    },
    Function(Box<Signature>),
    Unknown,
}

impl Type {
    fn is_compatible(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Unknown, _) | (_, Type::Unknown) => false,
            (Type::Pointer { to: one, qualifiers }, Type::Pointer { to: other, qualifiers: others }) => {
                qualifiers == others && one.is_compatible(other)
            }
            (
                Type::Array { element, qualifiers, count },
                Type::Array { element: other, qualifiers: others, count: others_count },
            ) => {
                let counts = count == others_count || *count == 0 || *others_count == 0;
                counts && qualifiers == others && element.is_compatible(other)
            }
            (Type::Function(one), Type::Function(other)) => one.difference(other).is_none(),
            (one, other) => one == other,
        }
    }
}

/// The name without the flavour that tells CO-RE types apart (libbpf's `bpf_core_essential_name_len()`): `foo___x` is
/// `foo`.
fn essential(name: &str) -> &str {
    let separator = name.as_bytes().windows(5).rposition(|w| w[0] != b'_' && &w[1..4] == b"___" && w[4] != b'_');
    separator.and_then(|at| name.get(..=at)).unwrap_or(name)
}

struct Reader<'r, 'a> {
    btf: &'r Btf<'a>,
    left: u32,
    depth: u32,
}

impl Reader<'_, '_> {
    fn signature(&mut self, proto: TypeId) -> Option<Signature> {
        let proto = self.btf.ty(proto).filter(|ty| ty.kind() == Kind::FuncProto)?;
        let parameters = proto.params().map(|parameter| match self.read(parameter.ty).0 {
            Type::Array { element, qualifiers, .. } => Type::Pointer { to: element, qualifiers },
            function @ Type::Function(_) => Type::Pointer { to: Box::new(function), qualifiers: Qualifiers::default() },
            other => other,
        });
        let parameters = parameters.collect();
        let returns = proto.target().map_or(Type::Unknown, |returns| self.read(returns).0);
        Some(Signature { returns, parameters, variadic: proto.is_variadic() })
    }

    /// A type, and the qualifiers that it has itself.
    fn read(&mut self, id: TypeId) -> (Type, Qualifiers) {
        self.depth += 1;
        let found = if self.depth > DEEPEST { (Type::Unknown, Qualifiers::default()) } else { self.follow(id) };
        self.depth -= 1;
        found
    }

    fn follow(&mut self, mut id: TypeId) -> (Type, Qualifiers) {
        let mut qualifiers = Qualifiers::default();
        let mut typedef = "";
        loop {
            if id == 0 {
                return (Type::Void, qualifiers);
            }
            let Some(left) = self.left.checked_sub(1) else { return (Type::Unknown, qualifiers) };
            self.left = left;
            let Some(ty) = self.btf.ty(id) else { return (Type::Unknown, qualifiers) };
            let tagged = |tag| match (essential(ty.name()), typedef) {
                ("", "") => Type::Unknown,
                ("", name) => Type::Typedef { tag, name: name.to_owned() },
                (name, _) => Type::Tagged { tag, name: name.to_owned() },
            };
            let found = match ty.kind() {
                kind @ (Kind::Const | Kind::Volatile | Kind::Restrict | Kind::Typedef | Kind::TypeTag) => {
                    qualifiers.add(kind);
                    if kind == Kind::Typedef {
                        typedef = essential(ty.name());
                    }
                    id = ty.size_or_type();
                    continue;
                }
                Kind::Ptr => {
                    let (to, qualifiers) = self.read(ty.size_or_type());
                    Type::Pointer { to: Box::new(to), qualifiers }
                }
                Kind::Array => match ty.array() {
                    Some(array) => {
                        let (element, of_element) = self.read(array.element);
                        // An array's qualifiers are its elements' (C11 6.7.3).
                        let qualifiers = Qualifiers(qualifiers.0 | of_element.0);
                        Type::Array { element: Box::new(element), qualifiers, count: array.count }
                    }
                    None => Type::Unknown,
                },
                Kind::FuncProto => {
                    self.signature(id).map_or(Type::Unknown, |signature| Type::Function(Box::new(signature)))
                }
                Kind::Struct => tagged(Tag::Struct),
                Kind::Union => tagged(Tag::Union),
                Kind::Fwd => tagged(if ty.flag() { Tag::Union } else { Tag::Struct }),
                Kind::Enum | Kind::Enum64 => tagged(Tag::Enum),
                Kind::Int => match ty.int() {
                    Some(int) if int.encoding.is_bool() => Type::Boolean,
                    Some(_) if ty.name() == "char" => Type::Char,
                    Some(int) => Type::Integer { size: int.size, signed: int.encoding.is_signed() },
                    None => Type::Unknown,
                },
                Kind::Float => Type::Float { size: ty.size_or_type() },
                _ => Type::Unknown,
            };
            return (found, qualifiers);
        }
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Members of structures that a command names, `file->f_path.dentry->d_name.name`: where they are for each function.
//!
//! A path begins with an argument's name, with `retval`, or with `task`, which is the current thread unless an argument
//! has that name. The kernel's program follows the pointers ([`siteseer_bpf_progs::fields`]).

use crate::filter::{RESULT, Type, Value, argument_name};
use siteseer::internals::function::{Function, Prototype};
use siteseer::internals::target::Types;
use siteseer_bpf_progs::fields::{Base, FIELDS, Field, Kind as Content, Read, STEPS, constant};
use siteseer_bpf_progs::trace::FIELD_TEXT_LEN;
use siteseer_sites::Doubt;
use siteseer_sites::access::{Access, Form, Path};
use siteseer_sites::btf::{self, Kind, TypeId};

/// The current thread.
pub(super) const TASK: &str = "task";

/// A member of a structure, for one function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    /// As it was written.
    pub(crate) name: String,
    /// How it is read; `None` if the function does not have what the path begins with.
    access: Option<Access>,
    base: Base,
    /// The module that has these types; `None` for the image.
    module: Option<String>,
    pub(crate) ty: Type,
}

/// The paths that a command names.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    paths: Vec<Path>,
    /// `struct task_struct *` in the image's types, if a path begins with the current thread.
    task: Option<TypeId>,
}

impl Paths {
    /// The paths of texts; those that are named first can be filtered by in the kernel.
    pub(super) fn new<'t>(texts: impl Iterator<Item = &'t str>, types: &Types<'_>) -> Result<Paths, String> {
        let mut paths: Vec<Path> = Vec::new();
        for text in texts {
            let path: Path = text.parse().map_err(|error: siteseer_sites::access::PathError| error.to_string())?;
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        if paths.len() > FIELDS {
            return Err(format!("{} members of structures are named, and at most {FIELDS} are allowed", paths.len()));
        }
        let image = types.of(None).filter(|_| paths.iter().any(|path| path.base() == TASK));
        let task = image.and_then(|btf| {
            // Not by the structure's name: Rust code has a structure of that name as well.
            let function = btf.find(Kind::Func, "wake_up_process")?;
            let parameter = btf.ty(function.target()?)?.params().next()?;
            Some(parameter.ty)
        });
        Ok(Paths { paths, task })
    }

    /// The paths as they were written.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.paths.iter().map(Path::to_string)
    }

    /// The members for one function: the same in all its prototypes, or an error.
    pub(super) fn of(&self, function: &Function, returns: bool, types: &Types<'_>) -> Result<Vec<Member>, String> {
        let one = |path: &Path| {
            let mut found: Option<Member> = None;
            for prototype in &function.prototypes {
                let member = self.member(path, prototype, returns, types)?;
                if found.as_ref().is_some_and(|found| !found.is_same(&member)) {
                    return Err(format!("{path} is not the same in all functions named {}", function.name));
                }
                found = found.or(Some(member));
            }
            Ok(found.unwrap_or_else(|| Member::nowhere(path)))
        };
        self.paths.iter().map(one).collect()
    }

    fn member(&self, path: &Path, prototype: &Prototype, returns: bool, types: &Types<'_>) -> Result<Member, String> {
        let mut parameters = prototype.parameters.iter().enumerate();
        let argument = parameters.find(|(nth, parameter)| argument_name(*nth, parameter) == path.base());
        let module = prototype.module.as_deref();
        let (base, ty, module) = match (argument, path.base(), &prototype.result, self.task) {
            (Some((nth, parameter)), ..) => (Base::Parameter(nth as u32), parameter.ty, module),
            (None, RESULT, _, _) if !returns => {
                return Err(format!("{RESULT} is known only when a call returns: give --returns"));
            }
            (None, RESULT, Some(result), _) => (Base::Result, result.ty, module),
            (None, TASK, _, Some(task)) => (Base::Task, task, None),
            _ => return Ok(Member::nowhere(path)),
        };
        let Some(btf) = types.of(module) else { return Ok(Member::nowhere(path)) };
        let access = path.resolve(btf, ty).map_err(|error| error.to_string())?;
        if access.offsets.len() > STEPS {
            return Err(format!("{path} follows more than {} pointers", STEPS));
        }
        let resolved = btf.resolve(access.ty);
        let (bits, signed) = (access.bits, access.signed);
        let ty = match (access.form, resolved) {
            (Form::Characters(_), _) => Type::Text,
            (Form::TextPointer, _) => Type::Pointer { bits },
            (Form::Number, Some(ty)) if matches!(ty.kind(), Kind::Enum | Kind::Enum64) => {
                let names = ty.enumerators().map(|known| (known.name.to_owned(), known.value)).collect();
                Type::Enum { bits, signed, names }
            }
            (Form::Number, _) => Type::Number { bits, signed },
        };
        let module = module.map(str::to_owned);
        Ok(Member { name: path.to_string(), access: Some(access), base, module, ty })
    }
}

impl Member {
    fn nowhere(path: &Path) -> Member {
        let ty = Type::Number { bits: 64, signed: false };
        Member { name: path.to_string(), access: None, base: Base::Nowhere, module: None, ty }
    }

    /// Whether the function has it.
    pub(crate) fn is_there(&self) -> bool {
        self.access.is_some()
    }

    /// Whether it is text.
    pub(crate) fn is_text(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.form != Form::Number)
    }

    /// Whether a program reads it as it reads the other one, and it is of the same type; modules number types each in
    /// their own way.
    fn is_same(&self, other: &Member) -> bool {
        self.field() == other.field() && self.ty == other.ty
    }

    fn field(&self) -> Field {
        let Some(access) = &self.access else {
            let (kind, base) = (Content::Number, Base::Nowhere);
            let (size, shift, bits, signed, big_endian) = (8, 0, 64, false, false);
            return Field { kind, base, offsets: Vec::new(), size, shift, bits, signed, big_endian };
        };
        let kind = match access.form {
            Form::Number => Content::Number,
            Form::TextPointer => Content::TextPointer,
            Form::Characters(count) => Content::Characters(count),
        };
        let Access { size, shift, bits, signed, big_endian, .. } = *access;
        let offsets = access.offsets.clone();
        Field { kind, base: self.base, offsets, size, shift, bits, signed, big_endian }
    }

    /// A value as text: `21`, `"zero"`, `NULL`.
    pub(super) fn describe(&self, number: u64, text: Option<&[u8]>, types: &Types<'_>) -> String {
        match (&self.access, text) {
            (Some(access), _) if access.form == Form::TextPointer && number == 0 => "NULL".to_owned(),
            (Some(access), Some(text)) if access.form != Form::Number => {
                let more = if is_cut(text) { "..." } else { "" };
                format!("{:?}{more}", String::from_utf8_lossy(text))
            }
            (Some(access), _) => match types.of(self.module.as_deref()) {
                Some(btf) => btf::format_value(btf, access.ty, &[number]),
                None => format!("{number:#x}"),
            },
            (None, _) => "?".to_owned(),
        }
    }

    /// What was read: `21`, `"zero"`, `(unreadable)`, `?` if the call does not have it.
    pub(super) fn outcome(&self, read: &Read, types: &Types<'_>) -> String {
        match read {
            Read::Value { number, text } => self.describe(*number, Some(text), types),
            Read::Unreadable => "(unreadable)".to_owned(),
            Read::Missing => "?".to_owned(),
        }
    }

    /// The same for machines.
    pub(super) fn json(&self, read: &Read, doubt: Option<Doubt>, types: &Types<'_>) -> serde_json::Value {
        let (value, is_cut) = match read {
            Read::Value { text, number } if self.is_text() && !self.is_null(*number) => {
                (Some(String::from_utf8_lossy(text).into_owned()), is_cut(text))
            }
            Read::Value { number, .. } => (Some(self.describe(*number, None, types)), false),
            Read::Unreadable | Read::Missing => (None, false),
        };
        let doubt = doubt.filter(|_| value.is_some()).map(|doubt| doubt.to_string());
        serde_json::json!({
            "name": self.name,
            "value": value,
            "cut": is_cut,
            "unreadable": *read == Read::Unreadable,
            "doubt": doubt,
        })
    }

    /// As a field of a condition; `None` if the call does not have it, or it cannot be read.
    pub(super) fn value(&self, read: &Read, types: &Types<'_>) -> Option<Value> {
        let Read::Value { number, text } = read else { return None };
        if !self.is_text() {
            return Some(Value::of(&self.ty, *number, vec![self.describe(*number, None, types)]));
        }
        // The number of text in place is its address, which is not a value. A null pointer leads to no text.
        let texts = if self.is_null(*number) { Vec::new() } else { vec![String::from_utf8_lossy(text).into_owned()] };
        Some(Value { cut: is_cut(text), ..Value::of(&self.ty, *number, texts) })
    }

    fn is_null(&self, number: u64) -> bool {
        number == 0 && self.access.as_ref().is_some_and(|access| access.form == Form::TextPointer)
    }

    /// The number of the parameter that it begins with.
    pub(super) fn parameter(&self) -> Option<usize> {
        match self.base {
            Base::Parameter(nth) => usize::try_from(nth).ok(),
            _ => None,
        }
    }
}

/// Whether there may be more of a text than was read.
fn is_cut(text: &[u8]) -> bool {
    text.len() + 1 >= FIELD_TEXT_LEN
}

/// The constant by which a program reads members.
pub(super) fn constants(members: &[Member]) -> Result<Vec<u8>, String> {
    let fields: Vec<Field> = members.iter().map(Member::field).collect();
    constant(&fields).ok_or_else(|| format!("the kernel's program reads at most {FIELDS} members"))
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A program as a tree of statements, and its text in C.
//!
//! Each function's body begins with `ENTER`, which logs the call and its arguments in the build that tells the truth
//! and is nothing in all others. Somewhere in the body `SEQ` stores the function's number to a volatile variable, in
//! every build: the sequence of these stores is the same in all of them, and by it hits are aligned with calls.
//!
//! Statements are text. The tree is only as deep as blocks are, so that parts can be left out ([`Program::without`]).
//! Both generators make such programs: `generate` our own, `csmith` those of another.

use std::fmt::Write;

/// The type of a parameter or a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// An integer: its name, its bytes, whether it is signed.
    Integer(&'static str, u32, bool),
    /// A pointer to `struct obj`.
    Object,
    /// A pointer to a function that takes an `int` and a `u64` and gives an `int`.
    Callback,
    /// A structure of that many bytes. Its fields are named `a`, `b`, `c`, and have the type that is given last.
    Struct(&'static str, u32, &'static str),
    /// A pointer to anything.
    Pointer,
    /// A structure or union that only the compiler knows the size of. The log tells the size, and which bits have a
    /// meaning.
    Record,
}

impl Type {
    pub(crate) const ALL: [Type; 21] = [
        Type::Integer("bool", 1, false),
        Type::Integer("u8", 1, false),
        Type::Integer("s8", 1, true),
        Type::Integer("u16", 2, false),
        Type::Integer("s16", 2, true),
        Type::Integer("u32", 4, false),
        Type::Integer("int", 4, true),
        Type::Integer("int", 4, true),
        Type::Integer("u64", 8, false),
        Type::Integer("long", 8, true),
        Type::Integer("enum mode", 4, false),
        Type::Object,
        Type::Object,
        Type::Callback,
        Type::Struct("struct s1", 1, "u8"),
        Type::Struct("struct s4", 4, "u16"),
        Type::Struct("struct s8", 8, "u64"),
        Type::Struct("struct s12", 12, "u32"),
        Type::Struct("struct s16", 16, "u64"),
        Type::Struct("struct s24", 24, "u64"),
        Type::Integer("u128", 16, false),
    ];
    pub(crate) const INT: Type = Type::Integer("int", 4, true);
    pub(crate) const U64: Type = Type::Integer("u64", 8, false);
    pub(crate) const LONG: Type = Type::Integer("long", 8, true);

    /// How C names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Integer(name, ..) | Type::Struct(name, ..) => name,
            Type::Object => "struct obj *",
            Type::Callback => "callback_t",
            Type::Pointer => "void *",
            Type::Record => "a structure or union",
        }
    }

    /// Bytes; 0 for a record.
    pub(crate) fn size(self) -> u32 {
        match self {
            Type::Integer(_, size, _) | Type::Struct(_, size, _) => size,
            Type::Object | Type::Callback | Type::Pointer => 8,
            Type::Record => 0,
        }
    }

    /// Whether a value narrower than a slot is extended by its sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::Integer(_, _, true))
    }

    /// The fields of a structure.
    pub(crate) fn fields(self) -> &'static [&'static str] {
        match self {
            Type::Struct("struct s1" | "struct s8", ..) => &["a"],
            Type::Struct("struct s4" | "struct s16", ..) => &["a", "b"],
            Type::Struct(..) => &["a", "b", "c"],
            _ => &[],
        }
    }
}

/// A parameter.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) ty: Type,
}

/// A statement.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// Text that ends with a semicolon.
    Line(String),
    /// `head { body }`, and perhaps `else { otherwise }`. `tail` follows the last brace.
    Block { head: String, body: Vec<Statement>, otherwise: Vec<Statement>, tail: String },
}

impl Statement {
    pub(crate) fn line(text: impl Into<String>) -> Statement {
        Statement::Line(text.into())
    }

    pub(crate) fn block(head: impl Into<String>, body: Vec<Statement>) -> Statement {
        Statement::Block { head: head.into(), body, otherwise: Vec::new(), tail: String::new() }
    }
}

/// A function.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    /// What the log calls it.
    pub(crate) id: usize,
    /// What its body stores. Two functions that are to be equal store the same.
    pub(crate) number: usize,
    pub(crate) name: String,
    /// `static inline`, attributes and so on.
    pub(crate) qualifiers: String,
    pub(crate) is_static: bool,
    pub(crate) returns: Type,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Vec<Statement>,
    /// How it is declared, if that is not made of the above.
    pub(crate) declared: Option<String>,
    /// Which source file it is in.
    pub(crate) unit: usize,
}

/// A program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Types, variables and declarations of the first source file.
    pub(crate) globals: String,
    /// Callees come before their callers, or are declared by `globals`; the last is where the program begins.
    pub(crate) functions: Vec<Function>,
}

/// How many source files a program has.
pub(crate) const UNITS: usize = 2;

/// The name of the function that the emulator calls.
pub(crate) const START: &str = "start";

const PRELUDE: &str = include_str!("prelude.h");

impl Function {
    fn prototype(&self) -> String {
        if let Some(declared) = &self.declared {
            return declared.clone();
        }
        let parameters: Vec<String> =
            self.parameters.iter().map(|parameter| format!("{} {}", parameter.ty.name(), parameter.name)).collect();
        let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
        format!("{} {} {}({})", self.qualifiers, self.returns.name(), self.name, parameters)
    }

    fn write(&self, out: &mut String) {
        let log = |parameter: &Parameter| match parameter.ty {
            Type::Record => format!(" RECORD({})", parameter.name),
            _ => format!(" ARG({})", parameter.name),
        };
        let logged: String = self.parameters.iter().map(log).collect();
        let _ = writeln!(out, "{}\n{{\n\tENTER({},{logged})", self.prototype(), self.id);
        write_statements(&self.body, 1, out);
        out.push_str("}\n\n");
    }
}

fn write_statements(statements: &[Statement], depth: usize, out: &mut String) {
    let indent = "\t".repeat(depth);
    for statement in statements {
        match statement {
            Statement::Line(text) => {
                let _ = writeln!(out, "{indent}{text}");
            }
            Statement::Block { head, body, otherwise, tail } => {
                let _ = writeln!(out, "{indent}{head} {{");
                write_statements(body, depth + 1, out);
                if !otherwise.is_empty() {
                    let _ = writeln!(out, "{indent}}} else {{");
                    write_statements(otherwise, depth + 1, out);
                }
                let _ = writeln!(out, "{indent}}}{tail}");
            }
        }
    }
}

impl Program {
    /// The text of a source file.
    pub(crate) fn source(&self, unit: usize) -> String {
        let mut out = String::from(PRELUDE);
        if unit == 0 {
            out.push_str(&self.globals);
        }
        for function in self.functions.iter().filter(|function| !function.is_static && function.unit != unit) {
            let _ = writeln!(out, "{};", function.prototype());
        }
        out.push('\n');
        for function in self.functions.iter().filter(|function| function.unit == unit) {
            function.write(&mut out);
        }
        out
    }

    /// The text of a source file without what every program begins with, and without variables that no function names.
    pub(crate) fn own(&self, unit: usize) -> String {
        let source = self.source(unit);
        let prelude = PRELUDE.len() + if unit == 0 { self.globals.len() } else { 0 };
        let functions = source.get(prelude..).unwrap_or_default();
        let is_variable = |line: &&str| line.starts_with("static ") && line.contains(" = ");
        let is_named = |line: &&str| {
            let name = line.split_once(" = ").and_then(|(declaration, _)| declaration.rsplit([' ', '*']).next());
            name.and_then(|name| name.split('[').next()).is_some_and(|name| functions.contains(name))
        };
        let variables = self.globals.lines().filter(is_variable).filter(is_named).filter(|_| unit == 0);
        variables.flat_map(|line| [line, "\n"]).chain([functions]).collect()
    }

    /// The function that the log calls so.
    pub(crate) fn function(&self, id: usize) -> Option<&Function> {
        self.functions.iter().find(|function| function.id == id)
    }

    /// The function of a name, or of the name of a copy that a compiler made of it.
    pub(crate) fn named(&self, symbol: &str) -> Option<&Function> {
        let stem = symbol.split('.').next()?;
        self.functions.iter().find(|function| function.name == stem)
    }

    /// How many statements and functions can be left out.
    pub(crate) fn parts(&self) -> usize {
        self.functions.len() + self.functions.iter().map(|function| count(&function.body)).sum::<usize>()
    }

    /// The program without some of its parts: first functions, then statements in the order of the text.
    pub(crate) fn without(&self, parts: &dyn Fn(usize) -> bool) -> Program {
        let mut index = self.functions.len();
        let mut functions = Vec::new();
        for (place, function) in self.functions.iter().enumerate() {
            let body = prune(&function.body, &mut index, parts);
            if !parts(place) {
                functions.push(Function { body, ..function.clone() });
            }
        }
        Program { globals: self.globals.clone(), functions }
    }
}

fn count(statements: &[Statement]) -> usize {
    let inner = |statement: &Statement| match statement {
        Statement::Line(_) => 0,
        Statement::Block { body, otherwise, .. } => count(body) + count(otherwise),
    };
    statements.iter().map(|statement| 1 + inner(statement)).sum()
}

fn prune(statements: &[Statement], index: &mut usize, parts: &dyn Fn(usize) -> bool) -> Vec<Statement> {
    let mut left = Vec::new();
    for statement in statements {
        let dropped = parts(*index);
        *index += 1;
        let pruned = match statement {
            Statement::Line(text) => Statement::Line(text.clone()),
            Statement::Block { head, body, otherwise, tail } => Statement::Block {
                head: head.clone(),
                body: prune(body, index, parts),
                otherwise: prune(otherwise, index, parts),
                tail: tail.clone(),
            },
        };
        if !dropped {
            left.push(pruned);
        }
    }
    left
}

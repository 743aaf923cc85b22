// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs of csmith: a generator that others wrote, for other purposes (Yang et al., "Finding and Understanding Bugs
//! in C Compilers", PLDI 2011). Nothing of its text is in our tree: csmith runs when the instrument does.
//!
//! What csmith prints is read line by line into a [`Program`]: its types and variables stay as they are, and each
//! function begins with `ENTER` and stores its number, as those of our own generator do. `start`, which the emulator
//! calls, sets some variables from the input, and calls `func_1`, or in some programs another function: csmith's own
//! bounds do not depend on the values of variables. Small functions of its library do the arithmetic of a csmith
//! program (`safe_add_func_int8_t_s_s`, ...). In some programs, these are judged too, and in the others they are only
//! code.
//!
//! The order in which C evaluates operands is the compiler's choice, so each compiler tells its own truth. A structure
//! has padding, and a union has only the bits for certain that all its members have: `MASKS` tells which bits have a
//! meaning, by values with all members set to ones.

use crate::random::prng::Prng;
use crate::random::program::{Function, Parameter, Program, START, Statement, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where Debian's package has the functions that its programs use.
const SAFE_MATH: &str = "/usr/include/csmith/safe_math.h";

/// How long csmith may take: it takes milliseconds.
const SECONDS: &str = "20";

/// More than any union has members.
const MEMBERS: usize = 5;

/// What csmith's programs expect of its own header.
const PRELUDE: &str = "#include <stdint.h>
#define INT_MAX __INT_MAX__
#define UNDEFINED(x) (x)
static long __undefined;

";

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsmithError {
    /// csmith cannot be started.
    #[error("cannot run csmith, which ci/setup installs")]
    Start(#[source] std::io::Error),
    /// It failed.
    #[error("csmith failed: {0}")]
    Failed(String),
    /// Its library is not there.
    #[error("{}, which ci/setup installs with libcsmith-dev", .0.display())]
    Library(PathBuf, #[source] std::io::Error),
    /// It printed something that is not as expected.
    #[error("csmith printed something that is not understood: {0}")]
    Text(String),
}

/// Writes the program of a seed.
pub(crate) fn generate(seed: u64) -> Result<Program, CsmithError> {
    let mut prng = Prng::new(seed);
    let text = run(seed, &mut prng)?;
    let library = std::fs::read_to_string(SAFE_MATH).map_err(|error| CsmithError::Library(SAFE_MATH.into(), error))?;
    program(&text, &library, &mut prng)
}

/// Runs csmith with options that keep functions small, so that compilers inline them.
fn run(seed: u64, prng: &mut Prng) -> Result<String, CsmithError> {
    // It writes what it knows about the machine into a file of the folder that it runs in.
    let folder = tempfile::Builder::new().prefix("siteseer-truth-").tempdir().map_err(CsmithError::Start)?;
    let mut command = Command::new("timeout");
    command.current_dir(folder.path());
    command.args([SECONDS, "csmith", "--seed", &seed.to_string()]);
    command.args(["--nomain", "--no-checksum", "--quiet", "--concise", "--no-volatile-pointers"]);
    command.args(["--inline-function", "--no-float"]);
    let mut option = |name: &str, low: usize, high: usize| {
        command.args([name, &prng.between(low, high).to_string()]);
    };
    option("--max-funcs", 15, 40);
    option("--max-block-size", 2, 4);
    option("--max-block-depth", 2, 4);
    option("--max-expr-complexity", 2, 6);
    option("--max-array-dim", 1, 2);
    option("--max-array-len-per-dim", 2, 5);
    option("--max-struct-fields", 2, 6);
    option("--max-union-fields", 2, 4);
    option("--max-pointer-depth", 1, 2);
    option("--inline-function-prob", 20, 80);
    let output = command.stdin(Stdio::null()).output().map_err(CsmithError::Start)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(CsmithError::Failed(format!("{}: {}", output.status, said.lines().next().unwrap_or("nothing"))));
    }
    String::from_utf8(output.stdout).map_err(|error| CsmithError::Text(error.to_string()))
}

/// Makes a program of what csmith printed.
fn program(text: &str, library: &str, prng: &mut Prng) -> Result<Program, CsmithError> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let is_head = |at: usize| !lines[at].starts_with([' ', '}']) && lines.get(at + 1) == Some(&"{");
    let first = (0..lines.len()).find(|at| is_head(*at)).unwrap_or(lines.len());
    let ours = |line: &&&str| !line.starts_with("//") && !line.starts_with("#include") && !line.contains("__undefined");
    let globals: Vec<&str> = lines[..first].iter().filter(ours).copied().collect();
    let mut functions = Vec::new();
    let judges_library = prng.chance(33);
    let used = used(library, text);
    let mut declared = String::new();
    for arithmetic in used {
        if judges_library {
            functions.push(numbered(arithmetic, functions.len()));
        } else {
            let _ = writeln!(declared, "{}\n{{", arithmetic.declared.unwrap_or_default());
            for statement in arithmetic.body {
                if let Statement::Line(text) = statement {
                    let _ = writeln!(declared, "{text}");
                }
            }
            declared.push_str("}\n");
        }
    }
    let mut at = first;
    while at < lines.len() {
        let end = (at..lines.len()).find(|end| lines[*end] == "}").ok_or_else(|| bad(lines[at]))?;
        let mut body = statements(&mut lines[at + 2..end].iter().copied().peekable())?;
        let id = functions.len();
        // Where the number is stored: at once, or after the local variables got their values.
        let is_variable = |statement: &Statement| match statement {
            Statement::Line(text) => {
                text.split(['=', '[', ';']).next().is_some_and(|head| head.contains(" l_") || head.contains(" *l_"))
            }
            Statement::Block { .. } => false,
        };
        let variables = body.iter().take_while(|statement| is_variable(statement)).count();
        let place = if prng.chance(30) { variables } else { 0 };
        body.insert(place, Statement::line(format!("SEQ({id});")));
        functions.push(function(lines[at], body, id)?);
        at = end + 1;
    }
    let start = start(&functions, &globals, prng);
    functions.push(numbered_start(start, functions.len()));
    let globals = format!("{PRELUDE}{}\n{}{declared}\n", globals.join("\n"), masks(&globals)?);
    Ok(Program { globals, functions })
}

fn bad(line: &str) -> CsmithError {
    CsmithError::Text(line.chars().take(80).collect())
}

/// A function of csmith's, by the line that it begins with.
fn function(head: &str, body: Vec<Statement>, id: usize) -> Result<Function, CsmithError> {
    let (name, parameters) = signature(head).ok_or_else(|| bad(head))?;
    Ok(Function {
        id,
        number: id,
        name: name.to_owned(),
        qualifiers: String::new(),
        is_static: true,
        returns: Type::INT,
        parameters,
        body,
        declared: Some(head.to_owned()),
        unit: 0,
    })
}

/// The name and the parameters of a function.
fn signature(head: &str) -> Option<(&str, Vec<Parameter>)> {
    let (before, rest) = head.split_once('(')?;
    let list = rest.strip_suffix(')')?;
    let name = before.rsplit([' ', '*']).next()?;
    let parameters = list.split(',').map(str::trim).filter(|one| *one != "void");
    Some((name, parameters.map(parameter).collect::<Option<_>>()?))
}

fn parameter(text: &str) -> Option<Parameter> {
    let name = text.rsplit([' ', '*']).next()?.to_owned();
    let ty = if text.contains('*') {
        Type::Pointer
    } else if text.contains("struct ") || text.contains("union ") {
        Type::Record
    } else {
        integer(text)?
    };
    Some(Parameter { name, ty })
}

/// The integer type that a declaration names.
fn integer(text: &str) -> Option<Type> {
    const TYPES: [(&str, u32, bool); 9] = [
        ("int8_t", 1, true),
        ("uint8_t", 1, false),
        ("int16_t", 2, true),
        ("uint16_t", 2, false),
        ("int32_t", 4, true),
        ("uint32_t", 4, false),
        ("int64_t", 8, true),
        ("uint64_t", 8, false),
        ("int", 4, true),
    ];
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.contains(&"unsigned") {
        return Some(Type::Integer("unsigned int", 4, false));
    }
    TYPES.iter().find(|(name, ..)| words.contains(name)).map(|(name, size, signed)| Type::Integer(name, *size, *signed))
}

/// Reads statements up to the end of their block.
fn statements<'l, L>(lines: &mut std::iter::Peekable<L>) -> Result<Vec<Statement>, CsmithError>
where
    L: Iterator<Item = &'l str>,
{
    let mut read = Vec::new();
    while let Some(line) = lines.next().map(str::trim) {
        match line {
            "}" => return Ok(read),
            "{" => read.push(Statement::block("", statements(lines)?)),
            "else" => {
                let (Some("{"), Some(Statement::Block { otherwise, .. })) =
                    (lines.next().map(str::trim), read.last_mut())
                else {
                    return Err(bad(line));
                };
                *otherwise = statements(lines)?;
            }
            head if head.starts_with("if (") || head.starts_with("for (") => match lines.next().map(str::trim) {
                Some("{") => read.push(Statement::block(head, statements(lines)?)),
                Some(one) => read.push(Statement::line(format!("{head} {one}"))),
                None => return Err(bad(line)),
            },
            line => read.push(Statement::line(line)),
        }
    }
    Ok(read)
}

/// The functions of csmith's library that a program uses. Their text has conditions of the preprocessor.
fn used(library: &str, text: &str) -> Vec<Function> {
    let one = |part: &str| -> Option<Function> {
        let (head, rest) = part.split_once("\n{\n")?;
        let (body, _) = rest.split_once("\n}\n")?;
        let (returns, rest) = head.trim().split_once('\n')?;
        let (name, rest) = rest.strip_prefix("FUNC_NAME(")?.split_once(")(")?;
        let list = rest.strip_suffix(" LOG_INDEX)")?;
        let name = format!("safe_{name}");
        if !text.contains(&format!("{name}(")) {
            return None;
        }
        let body = body.trim_start().strip_prefix("LOG_EXEC")?.trim();
        function(&format!("static {returns} {name}({list})"), vec![Statement::line(body)], 0).ok()
    };
    library.split("STATIC ").filter_map(one).collect()
}

/// A function of the library with a number of its own.
fn numbered(mut function: Function, id: usize) -> Function {
    (function.id, function.number) = (id, id);
    function.body.insert(0, Statement::line(format!("SEQ({id});")));
    function
}

fn numbered_start(body: Vec<Statement>, id: usize) -> Function {
    Function {
        id,
        number: id,
        name: START.to_owned(),
        qualifiers: "noinline __attribute__((__used__))".to_owned(),
        is_static: false,
        returns: Type::INT,
        parameters: Vec::new(),
        body,
        declared: None,
        unit: 0,
    }
}

/// The statements of the function where a program begins.
fn start(functions: &[Function], globals: &[&str], prng: &mut Prng) -> Vec<Statement> {
    let mut body = Vec::new();
    for variable in globals.iter().filter_map(|line| number(line)) {
        if prng.chance(60) {
            body.push(Statement::line(format!("{variable} = G.in[{}];", prng.between(8, 63))));
        }
    }
    let is_number = |parameter: &Parameter| matches!(parameter.ty, Type::Integer(..));
    let can_begin = |function: &&Function| {
        function.name.starts_with("func_") && function.name != "func_1" && function.parameters.iter().all(is_number)
    };
    let others: Vec<&Function> = functions.iter().filter(can_begin).collect();
    if !others.is_empty() && prng.chance(50) {
        for _ in 0..prng.between(1, 3) {
            let other = *prng.pick(&others);
            let values: Vec<String> =
                other.parameters.iter().map(|_| format!("G.in[{}]", prng.between(0, 63))).collect();
            let call = Statement::line(format!("{}({});", other.name, values.join(", ")));
            let head = format!("if ((G.in[{}] & 3) == 0)", prng.between(0, 7));
            body.push(Statement::block(head, vec![call, Statement::line("return 0;")]));
        }
    }
    body.push(Statement::line("func_1();"));
    body.push(Statement::line("return 0;"));
    body
}

/// The variable that a line defines, if it is a number that may be set.
fn number(line: &str) -> Option<&str> {
    let (declaration, _) = line.strip_prefix("static ")?.split_once(" = ")?;
    let (ty, name) = declaration.rsplit_once(' ')?;
    let is_plain = name.starts_with("g_") && !name.contains('[');
    let is_number = integer(ty).is_some() && !ty.contains("const") && !ty.contains('*');
    (is_plain && is_number).then_some(name)
}

/// A structure or a union: the types of its members.
struct Record<'l> {
    is_union: bool,
    members: Vec<&'l str>,
}

/// The definitions of `MASKS`: values of each structure and union that have all bits set that have a meaning.
fn masks(globals: &[&str]) -> Result<String, CsmithError> {
    let mut records: BTreeMap<&str, Record<'_>> = BTreeMap::new();
    let mut lines = globals.iter();
    while let Some(line) = lines.next() {
        let Some(name) =
            line.strip_suffix(" {").filter(|name| name.starts_with("struct ") || name.starts_with("union "))
        else {
            continue;
        };
        let mut members = Vec::new();
        for member in lines.by_ref().map(|line| line.trim()).take_while(|line| *line != "};") {
            // A bit-field without a name is not a member.
            if !member.split(':').next().is_some_and(|head| head.contains(" f")) {
                continue;
            }
            members.push(member);
        }
        records.insert(name, Record { is_union: name.starts_with("union "), members });
    }
    if records.is_empty() {
        return Ok(String::new());
    }
    // Each choice picks one member of each union; what differs by depth picks for unions in unions.
    let mut out = String::from("#ifdef TRUTH\n");
    let mut generic = String::new();
    for name in records.keys() {
        let symbol = format!("masks_{}", name.replace(' ', "_"));
        let _ = writeln!(out, "static const {name} {symbol}[] = {{");
        let values: Option<BTreeSet<String>> =
            (0..MEMBERS * MEMBERS).map(|choice| value(name, &records, choice)).collect();
        for value in values.ok_or_else(|| bad(name))? {
            let _ = writeln!(out, "\t{value},");
        }
        out.push_str("};\n");
        let _ = write!(generic, ", {name}: {symbol}");
    }
    let _ = writeln!(out, "#define MASKS(p) _Generic((p){generic})\n#endif");
    Ok(out)
}

/// A record with all bits set that have a meaning. A union has one member of its own.
fn value(name: &str, records: &BTreeMap<&str, Record<'_>>, choice: usize) -> Option<String> {
    let record = records.get(name)?;
    let member = |text: &str, choice: usize| {
        let nested = records.keys().find(|known| text.contains(&format!("{known} ")) && !text.contains('*'));
        match nested {
            Some(nested) => value(nested, records, choice),
            // Where a pointer points is not the same in all builds.
            None => Some(if text.contains('*') { "0".to_owned() } else { "-1".to_owned() }),
        }
    };
    if record.is_union {
        let index = (choice % MEMBERS).min(record.members.len().checked_sub(1)?);
        let text = record.members[index];
        let field = text.split(|c: char| !c.is_alphanumeric()).find(|word| is_field(word))?;
        return Some(format!("{{ .{field} = {} }}", member(text, choice / MEMBERS)?));
    }
    let values: Option<Vec<String>> = record.members.iter().map(|text| member(text, choice)).collect();
    Some(format!("{{ {} }}", values?.join(", ")))
}

fn is_field(word: &str) -> bool {
    word.strip_prefix('f')
        .is_some_and(|number| !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#include \"csmith.h\"
struct S0 {
   const int8_t  f0;
   signed : 0;
   unsigned f1 : 5;
};
union U1 {
   int32_t  f0;
   struct S0  f1;
};
static int32_t g_2 = 6L;
static const int32_t g_3 = 6L;
static int32_t *g_4 = &g_2;
static int32_t  func_1(void);
static struct S0  func_5(const int8_t  p_6, struct S0  p_7, int32_t ** p_8);

static int32_t  func_1(void)
{ 
    int32_t l_9 = 1L;
    for (g_2 = 0; (g_2 < 3); g_2 += 1)
    { 
        if (l_9)
            break;
    }
    if (safe_add_func_int8_t_s_s(1, 2))
    { 
        return 1;
    }
    else
    { 
        return 2;
    }
}

static struct S0  func_5(const int8_t  p_6, struct S0  p_7, int32_t ** p_8)
{ 
    return p_7;
}
";
    const LIBRARY: &str = "STATIC int8_t
FUNC_NAME(add_func_int8_t_s_s)(int8_t si1, int8_t si2 LOG_INDEX)
{
  LOG_EXEC
  return
    (si1 + si2);
}

STATIC int8_t
FUNC_NAME(sub_func_int8_t_s_s)(int8_t si1, int8_t si2 LOG_INDEX)
{
  LOG_EXEC
  return (si1 - si2);
}
";

    fn small(seed: u64) -> Program {
        program(TEXT, LIBRARY, &mut Prng::new(seed)).unwrap()
    }

    #[test]
    fn functions_have_their_parameters_and_store_their_numbers() {
        let program = small(1);
        let types = |name: &str| -> Vec<Type> {
            let function = program.named(name).unwrap();
            function.parameters.iter().map(|parameter| parameter.ty).collect()
        };
        assert_eq!(types("func_5"), [Type::Integer("int8_t", 1, true), Type::Record, Type::Pointer]);
        assert_eq!(types("func_1"), []);
        let source = program.source(0);
        for function in program.functions.iter().filter(|function| function.name != START) {
            assert_eq!(source.matches(&format!("SEQ({});", function.id)).count(), 1, "{source}");
        }
        assert!(source.contains("} else {\n"), "{source}");
        assert!(source.contains("if (l_9) break;\n"), "{source}");
    }

    #[test]
    fn the_library_is_judged_in_some_programs_and_has_only_what_is_used() {
        let judged: Vec<bool> = (0..20).map(|seed| small(seed).named("safe_add_func_int8_t_s_s").is_some()).collect();
        assert!(judged.contains(&true) && judged.contains(&false));
        for seed in 0..20 {
            let source = small(seed).source(0);
            assert!(source.contains("safe_add_func_int8_t_s_s(int8_t si1, int8_t si2)\n{"), "{source}");
            assert!(!source.contains("safe_sub"), "{source}");
        }
    }

    #[test]
    fn masks_have_all_members_of_structures_and_one_of_unions() {
        let source = small(1).source(0);
        assert!(source.contains("static const struct S0 masks_struct_S0[] = {\n\t{ -1, -1 },"), "{source}");
        assert!(source.contains("{ .f0 = -1 }") && source.contains("{ .f1 = { -1, -1 } }"), "{source}");
        assert!(source.contains("struct S0: masks_struct_S0, union U1: masks_union_U1"), "{source}");
    }

    #[test]
    fn inputs_set_numbers_that_are_not_constant() {
        let set: Vec<String> = (0..20).map(|seed| small(seed).source(0)).collect();
        assert!(set.iter().any(|source| source.contains("g_2 = G.in[")));
        assert!(!set.iter().any(|source| source.contains("g_3 = G.in[") || source.contains("g_4 = G.in[")));
    }
}

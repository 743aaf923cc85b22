// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The C interface: the header says what the library has, its exports are those that were accepted, and what fails
//! leaves nothing allocated.
//!
//! The library is the one that cargo built for the tests: both forms of it lie beside this program.

mod api;

use siteseer_c::layout::{CONSTANTS, LAYOUT};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn header() -> String {
    fs::read_to_string(root().join("loader/include/siteseer.h")).expect("the header is read")
}

/// The header without comments and preprocessor lines.
fn declarations() -> String {
    let header = header();
    let mut text = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").expect("the comment ends").1;
    }
    text.push_str(rest);
    let mut continued = false;
    let kept = text.lines().filter(|line| {
        let skip = continued || line.starts_with('#');
        continued = skip && line.ends_with('\\');
        !skip
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The last word of a declaration: what it declares.
fn declared(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.trim_end_matches(|c: char| !is_word(c));
    let start = end.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
    end[start..].to_owned()
}

/// Functions and the names of their parameters, as the header declares them.
fn declared_functions() -> BTreeMap<String, Vec<String>> {
    let declarations = declarations();
    let each = declarations.split("LIBSITESEER_API").skip(1).map(|text| text.split_once(';').expect("it ends").0);
    each.map(|text| {
        let (name, parameters) = text.split_once('(').expect("a function");
        let parameters = parameters.trim().trim_end_matches(')');
        let parameters = parameters.split(',').map(str::trim).filter(|parameter| *parameter != "void");
        (declared(name), parameters.map(declared).collect())
    })
    .collect()
}

/// The same, as the library defines them.
fn defined_functions() -> BTreeMap<String, Vec<String>> {
    let mut functions = BTreeMap::new();
    for entry in fs::read_dir(root().join("capi/src")).expect("the folder is read") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("the file is read");
        for text in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (name, rest) = text.split_once('(').expect("a function");
            let parameters = rest.split_once(')').expect("it ends").0;
            // A parameter's type may have a comma in it, never its name.
            let names =
                parameters.split(',').filter_map(|parameter| Some(parameter.split_once(':')?.0.trim().to_owned()));
            functions.insert(declared(name), names.collect());
        }
    }
    functions
}

/// The members of a structure, as the header declares them.
fn members(declarations: &str, structure: &str) -> Vec<String> {
    let begin = format!("struct {structure} {{");
    let body = declarations.split_once(&begin).unwrap_or_else(|| panic!("no struct {structure}")).1;
    let body = body.split_once('}').expect("it ends").0;
    body.split(';').map(str::trim).filter(|text| !text.is_empty() && !text.contains(':')).map(declared).collect()
}

// Proves S24.1.
#[test]
fn every_function_is_declared_and_defined() {
    assert_eq!(declared_functions(), defined_functions());
}

/// Each function has the version of the release that it came with.
#[test]
fn every_function_has_a_version() {
    let script = fs::read_to_string(root().join("capi/siteseer.map")).expect("the version script is read");
    let names =
        script.lines().filter_map(|line| line.trim().strip_suffix(';')).filter(|name| name.starts_with("siteseer_"));
    assert_eq!(names.collect::<Vec<_>>(), declared_functions().keys().collect::<Vec<_>>());
}

#[test]
fn every_member_is_declared() {
    let declarations = declarations();
    let structures = declarations.split("\nstruct ").skip(1).filter_map(|text| {
        let (name, rest) = text.split_once(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        rest.starts_with('{').then_some(name)
    });
    let structures: BTreeSet<&str> = structures.collect();
    assert_eq!(structures, LAYOUT.iter().map(|(name, ..)| *name).collect());
    for (structure, _, own) in LAYOUT {
        let own: Vec<&str> = own.iter().map(|(member, _)| *member).collect();
        assert_eq!(members(&declarations, structure), own, "{structure}");
        let last = format!("#define {structure}__last_field {}", own.last().expect("a member"));
        assert!(header().contains(&last), "{last}");
    }
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-interface-{name}"));
    fs::create_dir_all(&folder).expect("the folder is made");
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

#[test]
fn a_c_compiler_sees_the_same_layout() {
    let folder = scratch("layout");
    let mut source = "#include <siteseer.h>\n".to_owned();
    for (structure, size, members) in LAYOUT {
        source += &format!("_Static_assert(sizeof(struct {structure}) == {size}, \"{structure}\");\n");
        for (member, offset) in *members {
            let what = format!("offsetof(struct {structure}, {member}) == {offset}");
            source += &format!("_Static_assert({what}, \"{structure}.{member}\");\n");
        }
    }
    for (name, value) in CONSTANTS {
        source += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    let file = folder.join("layout.c");
    fs::write(&file, source).expect("the source is written");
    let include = root().join("loader/include");
    for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
        let mut gcc = Command::new("gcc");
        gcc.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-c11-extensions"]);
        if standard == "-std=c99" {
            // _Static_assert is C11's.
            gcc.arg("-Wno-pedantic");
        }
        run(gcc.arg("-fsyntax-only").arg("-I").arg(&include).arg(&file));
    }
    let plus = folder.join("layout.cc");
    fs::write(&plus, "#include <siteseer.h>\nint main() { return siteseer_version_string() == nullptr; }\n")
        .expect("written");
    run(Command::new("gcc")
        .args(["-x", "c++", "-std=c++17", "-Wall", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .arg(&include)
        .arg(&plus));
}

/// The folder where cargo put the library.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    own.parent().expect("it is in a folder").to_owned()
}

/// The library of a form, of the newest build.
fn library(extension: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(built())
        .expect("the folder is read")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("libsiteseer_c") && name.ends_with(extension)
        })
        .collect();
    found.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).expect("a time"));
    found.pop().unwrap_or_else(|| panic!("no libsiteseer_c*{extension} in {}", built().display()))
}

/// Compares with what was accepted. `SITESEER_ACCEPT=1` accepts what is found.
fn accepted(name: &str, found: &str) {
    let path = root().join("tests/golden").join(name);
    if std::env::var_os("SITESEER_ACCEPT").is_some() {
        fs::write(&path, found).expect("the file is written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (golden.lines().collect(), found.lines().collect());
    let gone: Vec<_> = before.difference(&after).map(|line| format!("- {line}")).collect();
    let new: Vec<_> = after.difference(&before).map(|line| format!("+ {line}")).collect();
    assert!(
        golden == found,
        "the interface has changed; accept it by SITESEER_ACCEPT=1 cargo test -p siteseer-conformance, and say so in \
         CHANGELOG.md\n{}\n{}",
        gone.join("\n"),
        new.join("\n")
    );
}

// Proves S24.2.
#[test]
fn exports_are_those_that_were_accepted() {
    use object::{Object, ObjectSymbol};
    let data = fs::read(library(".so")).expect("the shared library is read");
    let file = object::File::parse(&*data).expect("an ELF file");
    let exports = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    let exports: BTreeSet<&str> = exports.filter_map(|symbol| symbol.name().ok()).collect();
    let found: String = exports.iter().map(|name| format!("{name}\n")).collect();
    accepted("c-symbols.txt", &found);
    let declared = declared_functions();
    assert_eq!(exports, declared.keys().map(String::as_str).collect());
    let text = run(Command::new("readelf").arg("-d").arg(library(".so")));
    assert!(text.contains("soname: [libsiteseer.so.0]"), "{text}");
}

#[test]
fn the_rust_interface_is_what_was_accepted() {
    let lines = rust_interface().lines;
    accepted("rust-api.txt", &lines.iter().map(|line| format!("{line}\n")).collect::<String>());
}

fn rust_interface() -> api::Interface {
    api::interface(&root().join("loader/src")).expect("it is parsed")
}

/// More than a page of names is an interface that nobody overlooks.
#[test]
fn the_rust_interface_has_few_names() {
    let names = rust_interface().names;
    assert!(names.len() <= 40, "{} names are public: {names:?}", names.len());
    assert!(names.contains("Attach") && names.contains("Link") && names.contains("register"), "{names:?}");
}

/// Whoever has a value can name its type: those of signatures and members are public too, or of a crate that is
/// re-exported.
#[test]
fn the_rust_interface_names_its_types() {
    // Of the standard library and of libbpf-rs; `Self` and parameters; what `sites` and `libbpf_sys` have.
    const OTHERS: [&str; 41] = [
        "Arc",
        "Argument",
        "AsRawLibbpf",
        "BTreeMap",
        "Box",
        "Clone",
        "Copy",
        "Debug",
        "Default",
        "Display",
        "Doubt",
        "Drop",
        "Duration",
        "Eq",
        "Error",
        "Fn",
        "FromIterator",
        "From",
        "Formatter",
        "Cow",
        "Hash",
        "Into",
        "IntoIterator",
        "Item",
        "Iterator",
        "LibbpfType",
        "Machine",
        "Missing",
        "NonNull",
        "Option",
        "Ord",
        "PartialEq",
        "PartialOrd",
        "PathBuf",
        "Result",
        "Self",
        "Send",
        "SiteKind",
        "String",
        "Sync",
        "Unprobeable",
    ];
    let interface = rust_interface();
    let mut unknown = BTreeSet::new();
    for line in &interface.lines {
        // Names of variants stand after the last `::` of the head.
        let types = line.split_once(": ").map_or(line.as_str(), |(_, text)| text);
        let types = types
            .strip_prefix("enum ")
            .map_or(types, |variant| variant.split_once(['(', '{']).map_or("", |(_, fields)| fields));
        let words = types.split(|c: char| !c.is_alphanumeric() && c != '_');
        let of_types = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.len() > 1);
        let is_known = |word: &str| {
            interface.names.contains(word)
                || OTHERS.contains(&word)
                || word == "Vec"
                || word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        };
        unknown.extend(of_types.filter(|word| !is_known(word)).map(|word| format!("{word} in {line}")));
    }
    assert!(unknown.is_empty(), "types that cannot be named:\n{}", unknown.into_iter().collect::<Vec<_>>().join("\n"));
}

/// libbpf's headers, where the build put them.
fn libbpf_headers(folder: &Path) -> PathBuf {
    let include = folder.join("include");
    let bpf = include.join("bpf");
    fs::create_dir_all(&bpf).expect("the folder is made");
    for (name, text) in libbpf_sys::API_HEADERS {
        fs::write(bpf.join(name), text).expect("the header is written");
    }
    include
}

#[test]
fn the_bpf_header_is_for_both_compilers() {
    use object::{Object, ObjectSection};
    use siteseer::internals::declared::{Declared, Stated};
    let folder = scratch("bpf-header");
    let include = libbpf_headers(&folder);
    // Each has its own word for the same type.
    let compilers = [
        ("clang", "SITESEER_CLANG", &["-target", "bpf"][..], "long"),
        ("bpf-gcc", "SITESEER_BPF_GCC", &["-gbtf"], "long int"),
    ];
    for (name, variable, flags, long) in compilers {
        let compiler = std::env::var(variable).unwrap_or_else(|_| newest(name));
        if name == "bpf-gcc" && Command::new(&compiler).arg("--version").output().is_err() {
            println!("not tried: gcc's BPF backend is not installed (ci/setup installs it where Debian has it)");
            continue;
        }
        let output = folder.join(format!("{name}.o"));
        let mut command = Command::new(&compiler);
        command.args(flags).args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-isystem"]).arg(&include);
        command.arg("-I").arg(root().join("loader/include")).arg("-c").arg(root().join("tests/c/bpf_header.c"));
        run(command.arg("-o").arg(&output));
        let data = fs::read(&output).expect("the object is read");
        let file = object::File::parse(&*data).expect("an ELF file");
        let section =
            |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).expect("a section");
        // Each accessor is a call of a helper by its number.
        let insns = section("fentry/stated").chunks_exact(8);
        let calls: BTreeSet<u32> = insns
            .filter(|insn| insn.first() == Some(&0x85))
            .map(|insn| u32::from_le_bytes(insn[4..8].try_into().expect("four bytes")))
            .collect();
        assert_eq!(calls, [0x5173_e001, 0x5173_e002, 0x5173_e003].into(), "{name}");
        let stated = |program: &str| Declared::find(section(".BTF"), program).expect("the BTF is read");
        let text = stated("stated").map(|stated| stated.text);
        assert_eq!(text, Some(format!("{long} (struct file *, struct pair, int)")), "{name}");
        assert_eq!(stated("bare").map(|stated| stated.text).as_deref(), Some("void (void)"), "{name}");
        let policy = |program: &str| Stated::find(Some(section(".BTF")), program).expect("the BTF is read").policy;
        assert_eq!((policy("bare"), policy("stated")), (Some(siteseer::Policy::Complete), None), "{name}");
    }
}

/// The newest of a compiler's names that is installed.
fn newest(name: &str) -> String {
    let numbered = (14..=22).rev().map(|version| format!("{name}-{version}"));
    let mut names = numbered.chain([name.to_owned()]);
    let is_there = |name: &String| Command::new(name).arg("--version").output().is_ok();
    names.find(is_there).unwrap_or_else(|| name.to_owned())
}

/// Compiles a program of tests/c with the static library.
fn c_program(name: &str, folder: &Path, flags: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let source = root().join("tests/c").join(name).with_extension("c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    gcc.arg("-I").arg(root().join("loader/include")).arg(source).arg(library(".a"));
    run(gcc.args(["-lelf", "-lz", "-lm", "-ldl", "-o"]).arg(&program));
    program
}

#[test]
fn what_fails_leaves_nothing_allocated() {
    let program = c_program("errors", &scratch("valgrind"), &[]);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,indirect"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--track-fds=yes"]);
    let text = run(valgrind.arg(program));
    assert!(text.contains("all as it should be"), "{text}");
}

#[test]
fn threads_have_errors_of_their_own() {
    let program = c_program("errors", &scratch("asan"), &["-fsanitize=address", "-fsanitize-address-use-after-scope"]);
    let text = run(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=1"));
    assert!(text.contains("all as it should be"), "{text}");
}

/// What an application is linked with, and whether it can register.
struct Linked {
    libraries: &'static [&'static str],
    registers: bool,
    /// Whether a caller that does not say which libbpf it calls is told so, too.
    function: bool,
}

/// The library here holds a libbpf of its own. An application may be linked with another one.
const LINKED: [Linked; 4] = [
    Linked { libraries: &["-l:libsiteseer_c.a"], registers: true, function: true },
    Linked { libraries: &["-l:libsiteseer_c.a", "-lbpf"], registers: true, function: true },
    Linked { libraries: &["-lsiteseer", "-lbpf"], registers: false, function: false },
    // What is linked statically no symbol table need have.
    Linked { libraries: &["-lsiteseer", "-l:libbpf.a"], registers: false, function: true },
];

// Proves S24.2.
/// Handlers that the application's libbpf would never ask are refused.
#[test]
fn another_libbpf_is_refused() {
    use std::os::unix::fs::symlink;
    let folder = scratch("two-libbpfs");
    for (file, name) in [(".so", "libsiteseer.so"), (".so", "libsiteseer.so.0"), (".a", "libsiteseer_c.a")] {
        let _ = fs::remove_file(folder.join(name));
        symlink(library(file), folder.join(name)).expect("the library is linked");
    }
    for Linked { libraries, registers, function } in LINKED {
        for position in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
            let program = folder.join("program");
            let mut gcc = Command::new("gcc");
            gcc.args(["-g", "-Wall", "-Wextra", "-Werror", "-s"]).args(position);
            gcc.arg("-I").arg(root().join("loader/include"));
            gcc.arg(root().join("tests/c/two_libbpfs.c")).arg("-L").arg(&folder).args(libraries);
            run(gcc.args(["-lelf", "-lz", "-lm", "-ldl", "-lpthread", "-o"]).arg(&program));
            let said = |argument: &str| {
                let said = run(Command::new(&program).arg(argument).env("LD_LIBRARY_PATH", &folder));
                println!("{libraries:?} {position:?} {argument}: {said}");
                said
            };
            let said_by_macro = said("macro");
            if registers {
                assert_eq!(said_by_macro, "0 1 \n", "{libraries:?} {position:?}");
            } else {
                // EEXIST, and the names of both files.
                assert!(said_by_macro.starts_with("-17 0 there are two copies of libbpf"), "{said_by_macro}");
                assert!(said_by_macro.contains("libsiteseer.so.0"), "{said_by_macro}");
            }
            let refused = said("function").starts_with("-17 ");
            assert_eq!(!refused, function, "{libraries:?} {position:?}");
        }
    }
}

/// A tool asks for a name, and gets places and locations. On x86-64 and arm64, the calling convention says where a
/// body's arguments are; do_sys_open() is inlined into the system calls that open files.
#[test]
fn a_tool_asks_for_sites() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to ask for (ci/test sets it)");
        return;
    };
    let program = c_program("sites", &scratch("sites"), &["-fsanitize=address"]);
    let mut command = Command::new(&program);
    let text = run(command.arg(&vmlinux).arg("do_sys_open").env("ASAN_OPTIONS", "detect_leaks=1"));
    let (entries, returns) = text.split_once("returns\n").expect("both ends");
    let body = |registers: [&str; 4]| {
        let names = ["dfd", "filename", "flags", "mode"];
        let sizes = [4, 8, 4, 2];
        let arguments = names.iter().zip(registers).zip(sizes);
        let arguments = arguments.map(|((name, register), size)| format!(" {name} 3 {register} 0 {size} -\n"));
        format!("entries\n0 do_sys_open+0 fentry -\n{}", arguments.collect::<String>())
    };
    let bodies = [body(["rdi", "rsi", "rdx", "rcx"]), body(["x0", "x1", "x2", "x3"])];
    assert!(bodies.iter().any(|body| entries.starts_with(body)), "{entries}");
    let copies = entries.lines().filter(|line| line.starts_with("2 ") && line.ends_with(" kprobe -")).count();
    assert!(copies >= 3, "{entries}");
    assert!(returns.starts_with("0 do_sys_open+0 fexit -\n"), "{returns}");
    assert_eq!(returns.lines().filter(|line| line.ends_with(" - exit_of_inline")).count(), copies, "{returns}");
}

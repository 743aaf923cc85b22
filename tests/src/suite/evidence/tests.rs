// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the machine's own compiler makes of a small file is found in it.

use super::*;
use std::process::Command;

const SOURCE: &str = r#"
volatile int sink, source;
static inline __attribute__((always_inline)) int inner(int a, int unused) { sink = a; return a * 3; }
static inline __attribute__((always_inline)) int outer(int a) { return inner(a, 4) + 1; }
static __attribute__((noinline)) int called(int b) { sink = b; return b * 5; }
int caller(int c) { int first = outer(c); sink = first; return called(source) + first; }
__attribute__((section(".init.text"))) int early(int d) { return outer(d) + inner(source, 5); }
static inline __attribute__((always_inline)) int patched(int e) {
    asm volatile("1: nop; .pushsection __jump_table, \"aw\"; .balign 8; .long 1b - ., 1b - .; .quad sink - .; .popsection");
    return e + source;
}
int switched(int f) { int before = source; return patched(f) * before; }
"#;

fn compiled() -> Evidence {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("a.c"), folder.path().join("a.o"));
    std::fs::write(&source, SOURCE).unwrap();
    let output = Command::new("cc").args(["-O2", "-gdwarf-5", "-c", "-o"]).arg(&object).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Evidence::read(&std::fs::read(&object).unwrap()).unwrap()
}

#[test]
fn copies_are_in_the_symbols_that_hold_them() {
    let evidence = compiled();
    let of = |function: &str| -> Vec<(bool, &str)> {
        let instances = evidence.instances.iter().filter(|instance| instance.function == function);
        let mut all: Vec<_> = instances.map(|instance| (instance.inlined, instance.holder.as_str())).collect();
        all.sort_unstable();
        all
    };
    // `early` is in a section of its own, at the same offset as another function in its.
    assert_eq!(of("inner"), [(true, "caller"), (true, "early"), (true, "early")]);
    assert_eq!(of("outer"), [(true, "caller"), (true, "early")]);
    assert_eq!(of("caller"), [(false, "caller")]);
    assert!(evidence.symbols.iter().any(|symbol| symbol.name == "early"));
    assert_eq!(evidence.describe("outer"), "outer has no symbol, and inlined copies: 1 in caller, 1 in early");
}

#[test]
fn parameters_are_located_at_the_entry() {
    let evidence = compiled();
    let body = evidence.instances.iter().find(|instance| instance.function == "caller").unwrap();
    assert_eq!(body.parameters.get("c"), Some(&Presence { at_entry: true, near: true }));
    assert!(evidence.parameters.get("inner").unwrap().contains("unused"));
}

#[test]
fn calls_are_in_the_symbols_that_make_them() {
    let evidence = compiled();
    let called: Vec<_> = evidence.calls.iter().filter(|call| call.function == "called").collect();
    assert_eq!(called.len(), 1);
    assert_eq!(called[0].holder, "caller");
}

#[test]
fn what_the_kernel_patches_is_where_copies_begin() {
    let evidence = compiled();
    let copy = evidence.instances.iter().find(|instance| instance.function == "patched").unwrap();
    assert_eq!(evidence.patched, [copy.entry].into());
}

#[test]
fn what_is_no_module_is_an_error() {
    assert!(matches!(Evidence::read(b"no ELF"), Err(EvidenceError::Elf(_))));
}

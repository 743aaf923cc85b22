// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Small images made from sources that write the records by themselves, as the plugins would have the compiler do.

use super::check;
use super::code::Code;
use super::pair::pair;
use super::tally::Tally;
use crate::random::build::base_btf;
use siteseer_encoder::elf::image::Image;
use std::process::Command;
use std::slice;

const TEXT: &str = "0xffffffff81000000";

/// `RECORD("f", x)` is what the plugins put at the start of `f(int x)`.
const PRELUDE: &str = r#"
#define RECORD(name, x) __asm__ volatile inline( \
    "99871:\n.pushsection .debug_siteseer,\"\",@progbits\n.balign 4\n.quad 99871b\n" \
    ".asciz \"" name "\"\n.byte 1\n.byte 's'\n.2byte 4\nmovl %0, %%eax\n.popsection" :: "g"(x))
__attribute__((noinline)) int use(int x) { RECORD("use", x); static volatile int seen; return seen += x; }
"#;

/// Compiles and links a source, and checks the image.
fn checked(source: &str) -> Tally {
    check(&image(source)).expect("the image is checked")
}

/// Compiles and links a source.
fn image(source: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("image.c"), format!("{PRELUDE}{source}")).expect("the source is written");
    std::fs::write(path("btf.bin"), base_btf()).expect("the BTF is written");
    let include = format!(".section .BTF,\"a\"\n.incbin \"{}\"\n", path("btf.bin").display());
    std::fs::write(path("btf.s"), include).expect("the assembly is written");
    let mut command = Command::new("cc");
    command.args(["-O2", "-g", "-ffreestanding", "-fno-pic", "-mcmodel=kernel", "-mno-red-zone", "-mno-sse"]);
    command.args(["-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-nostdlib"]);
    command.args(["-static", "-no-pie", "-Wl,-e,0", "-Wl,--build-id"]).arg(format!("-Wl,-Ttext={TEXT}"));
    command.args(["_text", "_stext"].map(|symbol| format!("-Wl,--defsym={symbol}={TEXT}")));
    command.arg(path("image.c")).arg(path("btf.s")).arg("-o").arg(path("image"));
    let status = command.status().expect("cc runs");
    assert!(status.success(), "{command:?}");
    std::fs::read(path("image")).expect("the image is read")
}

#[test]
fn copies_and_bodies_are_right() {
    let tally = checked(
        r#"
        static inline int twice(int x) { RECORD("twice", x); use(x); return x * 2; }
        int entry(int n) { RECORD("entry", n); int kept = use(n); return twice(n + 1) + twice(kept) + twice(7); }
        "#,
    );
    let values = tally.sum(true);
    // Bodies of two, copies of one in three places.
    assert_eq!((tally.sites, tally.records, tally.paired), (5, 5, 5), "{tally}");
    assert_eq!((values.right, values.wrong, values.all_unconfirmed()), (5, 0, 0), "{tally}");
    assert!(tally.missed.is_empty() && tally.extra.is_empty(), "{tally}");
}

#[test]
fn another_value_is_wrong() {
    let tally = checked(
        r#"
        static inline int twice(int x) { RECORD("twice", x + 5); use(x); return x * 2; }
        int entry(int n) { RECORD("entry", n); return twice(use(n)) + twice(7); }
        "#,
    );
    let mut wrong: Vec<_> = tally.findings.iter().map(|finding| (&*finding.kind, &*finding.function)).collect();
    wrong.sort_unstable();
    assert_eq!(wrong, [("wrong", "twice"); 2], "{tally}");
}

#[test]
fn a_record_of_which_no_site_tells_is_missed() {
    let tally = checked(
        r#"
        int entry(int n) { RECORD("entry", n); if (n) RECORD("ghost", n); return use(n); }
        "#,
    );
    let missed: Vec<_> = tally.missed.iter().map(|missed| (&*missed.function, &*missed.container)).collect();
    assert_eq!(missed, [("ghost", "entry")], "{tally}");
}

#[test]
fn a_site_of_which_no_record_tells_is_one_too_many() {
    let tally = checked(
        r#"
        static inline int twice(int x) { use(x); return x * 2; }
        int entry(int n) { RECORD("entry", n); return twice(use(n)); }
        "#,
    );
    let extra: Vec<_> = tally.extra.iter().map(|extra| (extra.site, &*extra.function)).collect();
    assert_eq!(extra, [("inline", "twice")], "{tally}");
    assert_eq!(tally.extra_in_recorded(), 1, "the symbol has a record of its own: {tally}");
}

#[test]
fn sites_without_the_plugin_are_told_apart() {
    let tally = checked(
        r#"
        static inline int twice(int x) { use(x); return x * 2; }
        int plain(int n) { return twice(use(n)); }
        int entry(int n) { RECORD("entry", n); return use(n); }
        "#,
    );
    let extra: Vec<_> = tally.extra.iter().map(|extra| (extra.site, &*extra.container)).collect();
    assert!(extra.contains(&("inline", "plain")), "{tally}");
    assert_eq!(tally.extra_in_recorded(), 0, "{tally}");
}

/// Each body ends with its record, which is where the next call begins.
#[test]
fn a_row_of_calls_with_each_record_at_the_next_site() {
    let tally = checked(
        r#"
        static inline void late(int x) { use(x); RECORD("late", x); }
        void entry(int n) { RECORD("entry", n); late(41); late(42); late(43); }
        "#,
    );
    let values = tally.sum(true);
    assert_eq!((tally.paired, tally.shifted, tally.exchanged), (5, 2, 0), "{tally}");
    assert_eq!((values.right, values.wrong), (5, 0), "{tally}");
    assert!(tally.missed.is_empty() && tally.extra.is_empty(), "{tally}");
}

#[test]
fn in_a_loop_a_record_may_be_just_before_its_site() {
    let bytes = image(
        r#"
        __asm__(".globl turns\n.type turns, @function\nturns: nop\nnop\njz 1f\nnop\njmp turns\n"
                "1: .fill 30, 1, 0x90\njnz turns\nret\n.size turns, . - turns");
        "#,
    );
    let image = Image::parse(&bytes).expect("the image is read");
    let symbol = image.symbols_named("turns").next().expect("the function");
    let start = symbol.address;
    let code = Code::decode(&image, slice::from_ref(&(start..start + symbol.size)));
    // The first site follows its record; from it to the record there is a long way, too, through the next turn.
    let pairs = pair(&code, &[start + 1, start + 4], &[start, start + 4]);
    assert_eq!(pairs.pairs, [(0, 0), (1, 1)]);
}

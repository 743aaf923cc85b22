// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

use super::*;
use crate::elf::test_image::{TEXT, TestImage, relative};
use proptest::prelude::*;

mod begins;
mod paths;

/// Builds a kernel of these bytes, with what `add` adds, and decodes all of it as one function.
fn with<R>(
    machine: Machine,
    text: &[u8],
    add: impl FnOnce(&mut TestImage),
    check: impl FnOnce(&FunctionText<'_, '_>) -> R,
) -> R {
    let mut test = TestImage::kernel(machine, text);
    add(&mut test);
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    let range = TEXT..TEXT + text.len() as u64;
    check(&FunctionText::decode(&image, &[range], &Known::default()))
}

pub(crate) fn x86<R>(text: &[u8], check: impl FnOnce(&FunctionText<'_, '_>) -> R) -> R {
    with(Machine::X86_64, text, |_| {}, check)
}

pub(super) fn arm64<R>(words: &[u32], check: impl FnOnce(&FunctionText<'_, '_>) -> R) -> R {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    with(Machine::Aarch64, &bytes, |_| {}, check)
}

fn offsets(text: &FunctionText<'_, '_>) -> Vec<u64> {
    text.addresses().map(|address| address - TEXT).collect()
}

fn branches(text: &FunctionText<'_, '_>) -> Vec<(u64, u64)> {
    text.branches().map(|(source, target)| (source - TEXT, target - TEXT)).collect()
}

/// A walk as (offset, registers written, stores, ends).
fn walk(text: &FunctionText<'_, '_>, from: u64) -> Vec<(u64, Vec<u16>, bool, bool)> {
    let registers = |set: RegisterSet| (0..64).filter(|&r| set.contains(r)).collect();
    text.walk_block(TEXT + from).map(|s| (s.address - TEXT, registers(s.writes), s.stores, s.ends)).collect()
}

fn ranges(ranges: &[(u64, u64)]) -> Vec<Range<u64>> {
    ranges.iter().map(|&(start, end)| TEXT + start..TEXT + end).collect()
}

/// Whether control may come through a body past its only entry, where nothing is known of other entries and copies.
fn passes_by(text: &FunctionText<'_, '_>, entry: u64, body: &[Range<u64>]) -> bool {
    text.bypasses(&[entry], body, false, &|_| false)
}

const COUNTED_LOOP: &[u8] = &[
    0x31, 0xc0, // 0: xor %eax,%eax
    0x01, 0xf8, // 2: add %edi,%eax
    0xff, 0xce, // 4: dec %esi
    0x75, 0xfa, // 6: jne 2
    0xc3, // 8: ret
    0x90, // 9: nop
    0x89, 0xf8, // 10: mov %edi,%eax
    0xc3, // 12: ret
];

#[test]
fn boundaries_and_branches() {
    x86(COUNTED_LOOP, |text| {
        assert_eq!(offsets(text), [0, 2, 4, 6, 8, 9, 10, 12]);
        assert_eq!(branches(text), [(6, 2)]);
        assert!(text.is_boundary(TEXT + 4));
        assert!(!text.is_boundary(TEXT + 5));
        assert!(!text.is_boundary(TEXT - 1));
        assert!(!text.is_boundary(TEXT + 13));
        assert!(!text.has_unknown_targets());
    });
}

#[test]
fn a_walk_says_what_instructions_do() {
    let code = [
        0x89, 0xf8, // 0: mov %edi,%eax
        0x48, 0x89, 0x07, // 2: mov %rax,(%rdi)
        0x55, // 5: push %rbp
        0x88, 0xe6, // 6: mov %ah,%dh
        0x0f, 0x1f, 0x00, // 8: nopl (%rax)
        0xe8, 0, 0, 0, 0,    // 11: call
        0xc3, // 16: ret
    ];
    x86(&code, |text| {
        let expected = [
            (0, vec![0], false, false),
            (2, vec![], true, false),
            (5, vec![7], true, false),
            (6, vec![1], false, false),
            (8, vec![], false, false),
        ];
        let steps = walk(text, 0);
        assert_eq!(steps[..5], expected);
        assert!(steps[5].3, "a call ends the walk");
        assert_eq!(steps.len(), 6);
        assert!(walk(text, 1).is_empty(), "not an instruction");
    });
}

#[test]
fn a_walk_stops_before_a_leader() {
    x86(COUNTED_LOOP, |text| {
        assert_eq!(walk(text, 0), [(0, vec![0], false, true)]);
        assert_eq!(walk(text, 2).len(), 3);
    });
}

#[test]
fn a_walk_stops_at_what_is_not_plain() {
    let not_plain: [&[u8]; 9] = [
        &[0xf0, 0xff, 0x07], // lock incl (%rdi)
        &[0x87, 0x07],       // xchg %eax,(%rdi)
        &[0xf3, 0x48, 0xa5], // rep movsq
        &[0x0f, 0x31],       // rdtsc
        &[0xfa],             // cli
        &[0x0f, 0x22, 0xd8], // mov %rax,%cr3
        &[0x8e, 0xd0],       // mov %eax,%ss
        &[0x0f, 0xae, 0xf0], // mfence
        &[0x0f, 0x01, 0xcb], // stac
    ];
    for code in not_plain {
        x86(&[code, &[0x90, 0xc3]].concat(), |text| {
            let steps = walk(text, 0);
            assert!(steps.len() == 1 && steps[0].3, "{code:x?}");
        });
    }
}

#[test]
fn a_loop_header_is_reentered() {
    x86(COUNTED_LOOP, |text| {
        // The body is the loop: its entry is the header.
        assert!(text.reentered_from(TEXT + 2, &ranges(&[(2, 8)])));
        // The loop is the caller's: the branch back is not of the body.
        assert!(!text.reentered_from(TEXT + 2, &ranges(&[(2, 4)])));
        // The body holds the loop, but is entered before it.
        assert!(!text.reentered_from(TEXT, &ranges(&[(0, 8)])));
        // The branch goes into the straight run that leads to the entry.
        assert!(text.reentered_from(TEXT + 4, &ranges(&[(2, 8)])));
    });
}

#[test]
fn padding_leads_nowhere() {
    x86(COUNTED_LOOP, |text| {
        // ret; nop; entry: the no-op is not reached.
        assert!(!text.reentered_from(TEXT + 10, &ranges(&[(8, 13)])));
        assert_eq!(text.entries(&ranges(&[(10, 13)])), []);
    });
}

#[test]
fn entries_of_a_body() {
    let code = [
        0x85, 0xff, // 0: test %edi,%edi
        0x74, 0x04, // 2: je 8
        0xff, 0xc6, // 4: inc %esi
        0xff, 0xc2, // 6: inc %edx
        0xff, 0xc1, // 8: inc %ecx
        0xff, 0xc0, // 10: inc %eax
        0xc3, // 12: ret
    ];
    x86(&code, |text| {
        let entries = |body: &[(u64, u64)]| text.entries(&ranges(body)).iter().map(|e| e - TEXT).collect::<Vec<_>>();
        assert_eq!(entries(&[(0, 13)]), [0]);
        // Entered both by the branch and by falling in.
        assert_eq!(entries(&[(8, 10)]), [8]);
        assert_eq!(entries(&[(6, 13)]), [6, 8]);
        // Interleaved with instructions of others: left and entered again, in one call.
        assert_eq!(entries(&[(4, 6), (10, 12)]), [4, 10], "by the branch the second part comes first");
        assert_eq!(entries(&[(0, 2), (4, 6), (10, 12)]), [0]);
        assert_eq!(entries(&[]), [0u64; 0]);
    });
}

// Proves S2.10.
#[test]
fn a_body_with_two_ways_in() {
    // 0: test eax, eax; 2: jz 9; 4: inc ebx (the entry); 6: jmp b; 8: nop; 9: inc ecx (the other way); b: inc edx; d:
    // ret
    let code = [0x85, 0xc0, 0x74, 0x05, 0xff, 0xc3, 0xeb, 0x03, 0x90, 0xff, 0xc1, 0xff, 0xc2, 0xc3];
    x86(&code, |text| {
        assert!(passes_by(text, TEXT + 4, &ranges(&[(4, 6), (9, 13)])), "9 is reached past 4, and so is the end");
        assert!(passes_by(text, TEXT + 4, &ranges(&[(4, 6), (11, 13)])), "the end of the body is shared");
        assert!(!passes_by(text, TEXT, &ranges(&[(0, 6), (9, 13)])), "nothing gets past the function's entry");
        assert!(!passes_by(text, TEXT + 4, &ranges(&[(4, 6)])));
        assert!(
            !passes_by(text, TEXT + 4, &ranges(&[(0, 2), (4, 6)])),
            "what was moved up is on every way to the entry"
        );
    });
    // 0: inc ebx; 2: inc ecx (the entry); 4: test eax, eax; 6: jz 2; 8: ret
    x86(&[0xff, 0xc3, 0xff, 0xc1, 0x85, 0xc0, 0x74, 0xfa, 0xc3], |text| {
        assert!(!passes_by(text, TEXT + 2, &ranges(&[(0, 4)])), "what was moved up runs into the entry");
        assert!(!passes_by(text, TEXT + 2, &ranges(&[(2, 4), (8, 9)])), "what comes later comes from the entry");
    });
}

#[test]
fn hot_and_cold_parts_are_one_function() {
    let code = [
        0x85, 0xff, // 0: test %edi,%edi
        0x75, 0x04, // 2: jne 8
        0xc3, 0x90, 0x90, 0x90, // 4: ret, then another function's
        0xff, 0xc0, // 8: inc %eax
        0xeb, 0xf8, // 10: jmp 4
    ];
    let mut test = TestImage::kernel(Machine::X86_64, &code);
    test.function("f", TEXT, 5);
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    // The entry need not be in the lowest range.
    let text =
        FunctionText::decode(&image, &ranges(&[(8, 12), (0, 5)]), &Known { entry: Some(TEXT), ..Known::default() });
    assert_eq!(offsets(&text), [0, 2, 4, 8, 10]);
    assert_eq!(branches(&text), [(10, 4), (2, 8)]);
    assert_eq!(text.entries(&ranges(&[(8, 10)])), [TEXT + 8]);
    assert!(!text.is_boundary(TEXT + 5));
    // Overlapping and empty ranges, and those outside of text, do no harm.
    let mut odd = ranges(&[(0, 5), (2, 5), (3, 1), (8, 12)]);
    odd.push(0..16);
    assert_eq!(offsets(&FunctionText::decode(&image, &odd, &Known::default())), [0, 2, 4, 8, 10]);
}

fn jump_table(test: &mut TestImage, code: u64, target: u64) {
    let place = TEXT + 0x1000;
    let entry = [&relative(place, TEXT + code)[..], &relative(place + 4, TEXT + target), &[0; 8]].concat();
    test.table("__jump_table", "__start___jump_table", "__stop___jump_table", place, &entry);
}

#[test]
fn a_jump_label_is_both_a_jump_and_a_no_op() {
    let code = [
        0xff, 0xc0, // 0: inc %eax
        0xeb, 0x02, // 2: jmp 6, as it is now
        0xff, 0xc1, // 4: inc %ecx
        0xff, 0xc2, // 6: inc %edx
        0x66, 0x90, // 8: xchg %ax,%ax, as it is now
        0xc3, // 10: ret
    ];
    with(
        Machine::X86_64,
        &code,
        |test| jump_table(test, 2, 6),
        |text| {
            assert_eq!(text.entries(&ranges(&[(4, 6)])), [TEXT + 4], "it may fall through");
            assert_eq!(walk(text, 4), [(4, vec![2], false, true)], "and 6 is a leader");
            assert!(walk(text, 2)[0].3);
        },
    );
    with(
        Machine::X86_64,
        &code,
        |test| jump_table(test, 8, 0),
        |text| {
            assert!(text.reentered_from(TEXT, &ranges(&[(0, 10)])));
            assert_eq!(text.entries(&ranges(&[(4, 6)])), [], "nothing is reached after the jump");
        },
    );
}

#[test]
fn an_exception_fixup_is_a_leader() {
    let code = [
        0x8b, 0x07, // 0: mov (%rdi),%eax
        0xff, 0xc0, // 2: inc %eax
        0xff, 0xc1, // 4: inc %ecx
        0xc3, // 6: ret
    ];
    let add = |test: &mut TestImage| {
        let place = TEXT + 0x1000;
        let entry = [&relative(place, TEXT)[..], &relative(place + 4, TEXT + 4), &[0; 4]].concat();
        test.table("__ex_table", "__start___ex_table", "__stop___ex_table", place, &entry);
    };
    with(Machine::X86_64, &code, add, |text| {
        assert_eq!(branches(text), [(0, 4)]);
        assert!(walk(text, 0)[0].3, "it may not go on");
        assert_eq!(walk(text, 2), [(2, vec![0], false, true)]);
    });
}

#[test]
fn text_under_an_alternative_is_not_relied_on() {
    let code = [
        0xff, 0xc0, // 0: inc %eax
        0xeb, 0x07, 0x90, // 2: jmp 11; nop: replaced by nothing, or a jump to 8
        0xff, 0xc1, // 5: inc %ecx
        0xc3, // 7: ret
        0xff, 0xc2, // 8: inc %edx
        0xc3, // 10: ret
        0xc3, // 11: ret
    ];
    let add = |test: &mut TestImage| {
        let (place, replacement) = (TEXT + 0x1000, TEXT + 0x2000);
        let field = |at: u64, target: u64| relative(place + at, target);
        // cpuid word and flags, length, length of the replacement.
        let entry = [&field(0, TEXT + 2)[..], &field(4, replacement), &[0, 0, 0, 0, 3, 2]].concat();
        test.table(".altinstructions", "__alt_instructions", "__alt_instructions_end", place, &entry);
        let to = (TEXT + 8).wrapping_sub(replacement + 5) as u32;
        test.section(".altinstr_replacement", 0x6, replacement, &[&[0xe9][..], &to.to_le_bytes()].concat()[..]);
    };
    with(Machine::X86_64, &code, add, |text| {
        assert!(text.is_boundary(TEXT + 2));
        assert!(!text.is_boundary(TEXT + 4), "inside what is replaced");
        assert_eq!(text.entries(&ranges(&[(5, 7)])), [TEXT + 5], "a replacement by no-ops falls through");
        assert!(walk(text, 2)[0].3);
    });
}

#[test]
fn static_cpu_has_jumps_back_from_another_section() {
    let aux = TEXT + 0x2000;
    let to_aux = (aux.wrapping_sub(TEXT + 5) as u32).to_le_bytes();
    let code = [
        &[0xe9][..],
        &to_aux, // 0: jmp aux
        &[
            0xff, 0xc0, // 5: inc %eax
            0xc3, // 7: ret
            0xff, 0xc1, // 8: inc %ecx
            0xc3, // 10: ret
        ],
    ]
    .concat();
    let add = |test: &mut TestImage| {
        let jump = |at: u64, len: u64, target: u64| ((TEXT + target).wrapping_sub(aux + at + len) as u32).to_le_bytes();
        // testb $1,(%rdi); jne 8; jmp 5
        let bytes = [&[0xf6, 0x07, 0x01, 0x0f, 0x85][..], &jump(3, 6, 8), &[0xe9], &jump(9, 5, 5)].concat();
        test.section(".altinstr_aux", 0x6, aux, &bytes);
    };
    with(Machine::X86_64, &code, add, |text| {
        assert_eq!(branches(text), [(0, 5), (0, 8)]);
    });
}

#[test]
fn traps_stop_unless_they_warn() {
    let code = [
        0x0f, 0x0b, // 0: ud2
        0xff, 0xc0, // 2: inc %eax
        0xc3, // 4: ret
    ];
    let body = ranges(&[(2, 4)]);
    x86(&code, |text| assert_eq!(text.entries(&body), []));
    let add = |flags: u8| {
        move |test: &mut TestImage| {
            let place = TEXT + 0x1000;
            let entry = [&relative(place, TEXT)[..], &relative(place + 4, TEXT + 0x9000), &[1, 0, flags, 9]].concat();
            test.table("__bug_table", "__start___bug_table", "__stop___bug_table", place, &entry);
        }
    };
    with(Machine::X86_64, &code, add(1), |text| assert_eq!(text.entries(&body), [TEXT + 2]));
}

#[test]
fn calls_that_never_return_are_known() {
    let code = [
        0xe8, 3, 0, 0, 0, // 0: call panic
        0xff, 0xc0, // 5: inc %eax
        0xc3, // 7: ret
        0xc3, // 8: panic
    ];
    let body = ranges(&[(5, 7)]);
    x86(&code, |text| assert_eq!(text.entries(&body), [TEXT + 5]));
    with(
        Machine::X86_64,
        &code,
        |test| test.function("panic", TEXT + 8, 1),
        |text| {
            assert_eq!(text.entries(&body), []);
        },
    );
    let bytes = TestImage::kernel(Machine::X86_64, &code).build();
    let image = Image::parse(&bytes).expect("a kernel");
    let noreturn = |address: u64| address == TEXT + 8;
    let known = Known { noreturn: Some(&noreturn), ..Known::default() };
    assert_eq!(FunctionText::decode(&image, &ranges(&[(0, 9)]), &known).entries(&body), []);
}

#[test]
fn stores_to_the_frame_are_not_acts() {
    let arm64 = [0xf81d_83a4u32, 0xb900_0109, 0xd65f_03c0]; // stur x4,[x29,#-40]; str w9,[x8]; ret
    let arm64: Vec<u8> = arm64.iter().flat_map(|word| word.to_le_bytes()).collect();
    // mov %rax,-8(%rbp); mov %rax,(%rdi); ret
    let x86 = [0x48, 0x89, 0x45, 0xf8, 0x48, 0x89, 0x07, 0xc3];
    for (machine, code, frame_pointer) in [(Machine::Aarch64, &arm64[..], 29), (Machine::X86_64, &x86, 6)] {
        let bytes = TestImage::kernel(machine, code).build();
        let image = Image::parse(&bytes).expect("a kernel");
        let first_acts = |frame_pointer| {
            let known = Known { frame_pointer, ..Known::default() };
            FunctionText::decode(&image, &ranges(&[(0, code.len() as u64)]), &known).first_acts(TEXT)
        };
        assert_eq!(first_acts(None), [TEXT], "{machine:?}: it may be any memory");
        assert_eq!(first_acts(Some(frame_pointer)), [TEXT + 4], "{machine:?}");
    }
}

#[test]
fn acts_up_to_a_branch() {
    let code = [
        0x89, 0x07, // 0: mov %eax,(%rdi)
        0x89, 0x06, // 2: mov %eax,(%rsi)
        0x75, 0x02, // 4: jne 8
        0x89, 0x02, // 6: mov %eax,(%rdx)
        0x89, 0x01, // 8: mov %eax,(%rcx)
        0xc3, // 10: ret
    ];
    x86(&code, |text| {
        assert_eq!(text.acts_in_line(TEXT), [TEXT, TEXT + 2]);
        assert_eq!(text.acts_in_line(TEXT + 6), [TEXT + 6], "control comes in after it");
    });
}

#[test]
fn indirect_jumps_make_leaders_unknown() {
    let code = [
        0xff, 0xc0, // 0: inc %eax
        0xff, 0xc1, // 2: inc %ecx
        0xff, 0xe0, // 4: jmp *%rax
        0xff, 0xc2, // 6: inc %edx
        0xc3, // 8: ret
    ];
    x86(&code, |text| {
        assert!(text.has_unknown_targets());
        assert_eq!(walk(text, 0), [(0, vec![0], false, true)]);
        assert!(!text.prefix_preserves(TEXT, TEXT + 2, 5));
        assert!(text.reentered_from(TEXT + 2, &ranges(&[(2, 6)])));
        assert!(!text.reentered_from(TEXT, &ranges(&[(0, 4)])), "the jump is not of the body");
    });
    let bytes = TestImage::kernel(Machine::X86_64, &code).build();
    let image = Image::parse(&bytes).expect("a kernel");
    let known = Known { no_jump_tables: true, ..Known::default() };
    let text = FunctionText::decode(&image, &ranges(&[(0, 9)]), &known);
    assert!(!text.has_unknown_targets());
    assert_eq!(walk(&text, 0).len(), 3);
}

/// A copy that is a case of a switch, as clang for arm64 compiles it: its tail is reached by way of instructions that
/// are not its own.
#[test]
fn what_only_an_unknown_jump_leads_to_is_an_entry() {
    let code = [
        0xff, 0xe0, // 0: jmp *%rax
        0xff, 0xc0, // 2: inc %eax
        0x74, 0x01, // 4: je 7
        0xc3, // 6: ret
        0xff, 0xc1, // 7: inc %ecx
        0xff, 0xc2, // 9: inc %edx
        0xc3, // 11: ret
    ];
    x86(&code, |text| {
        assert_eq!(text.entries(&ranges(&[(2, 6), (9, 11)])), [TEXT + 2]);
        assert_eq!(text.entries(&ranges(&[(9, 11)])), [TEXT + 9]);
    });
}

/// The end of a copy, which sets an error, is shared with the code before it.
#[test]
fn the_entry_leads_to_ends_that_other_code_shares() {
    let code = [
        0x74, 0x04, // 0: je 6
        0xff, 0xc0, // 2: inc %eax
        0x75, 0x02, // 4: jne 8
        0xff, 0xc1, // 6: inc %ecx
        0xc3, // 8: ret
    ];
    x86(&code, |text| {
        let body = ranges(&[(2, 8)]);
        assert_eq!(text.entries(&body), [TEXT + 2, TEXT + 6]);
        assert_eq!(text.principal(&text.entries(&body), &body), Some(TEXT + 2));
        assert!(passes_by(text, TEXT + 2, &body), "it may be a second way in all the same");
        // Two ways in that meet: neither leads to the other.
        let apart = ranges(&[(2, 4), (6, 8)]);
        assert_eq!(text.principal(&text.entries(&apart), &apart), None);
    });
}

#[test]
fn a_retpoline_is_a_tail_call() {
    let code = [
        0xff, 0xc0, // 0: inc %eax
        0xeb, 0x02, // 2: jmp to the thunk
        0xff, 0xc1, // 4: inc %ecx
        0xff, 0xe0, // 6: the thunk: jmp *%rax
    ];
    let mut test = TestImage::kernel(Machine::X86_64, &code);
    test.function("__x86_indirect_thunk_rax", TEXT + 6, 2);
    let bytes = test.build();
    let image = Image::parse(&bytes).expect("a kernel");
    assert!(image.has_retpolines());
    let text = FunctionText::decode(&image, &ranges(&[(0, 6)]), &Known::default());
    assert!(!text.has_unknown_targets());
    assert_eq!(text.entries(&ranges(&[(4, 6)])), []);
}

#[test]
fn a_register_is_preserved_along_a_straight_line() {
    let code = [
        0x55, // 0: push %rbp
        0x48, 0x89, 0xe5, // 1: mov %rsp,%rbp
        0x40, 0xb6, 0x01, // 4: mov $1,%sil
        0x0f, 0x31, // 7: rdtsc
        0xe8, 0, 0, 0, 0,    // 9: call
        0xc3, // 14: ret
    ];
    x86(&code, |text| {
        let preserves = |to: u64, register: u16| text.prefix_preserves(TEXT, TEXT + to, register);
        assert!(preserves(0, 6));
        assert!(preserves(7, 5), "rdi is not written");
        assert!(preserves(4, 4));
        assert!(!preserves(7, 4), "part of rsi is");
        assert!(!preserves(1, 7), "push moves rsp");
        assert!(!preserves(4, 6));
        assert!(preserves(9, 5), "not plain, but its effects are known");
        assert!(!preserves(9, 0), "rdtsc writes rax and rdx");
        assert!(!preserves(14, 5), "a call may write anything");
        assert!(!preserves(2, 5), "not an instruction");
        assert!(!text.prefix_preserves(TEXT + 4, TEXT, 5), "backwards");
    });
    x86(COUNTED_LOOP, |text| assert!(!text.prefix_preserves(TEXT, TEXT + 4, 1), "2 is reached from elsewhere"));
}

#[test]
fn the_call_to_ftrace_preserves_registers() {
    let code = [0xe8, 1, 0, 0, 0, 0xc3, 0xc3];
    let add = |test: &mut TestImage| {
        test.table("__mcount_loc", "__start_mcount_loc", "__stop_mcount_loc", TEXT + 0x1000, &TEXT.to_le_bytes());
    };
    with(Machine::X86_64, &code, add, |text| assert!(text.prefix_preserves(TEXT, TEXT + 5, 5)));
    x86(&code, |text| assert!(!text.prefix_preserves(TEXT, TEXT + 5, 5)));
}

#[test]
fn after_the_call_to_ftrace() {
    let after = |machine, code: &[u8], patched: u64| {
        let mut test = TestImage::kernel(machine, code);
        let address = (TEXT + patched).to_le_bytes();
        test.table("__mcount_loc", "__start_mcount_loc", "__stop_mcount_loc", TEXT + 0x1000, &address);
        let bytes = test.build();
        after_fentry(&Image::parse(&bytes).expect("a kernel"), TEXT).map(|address| address - TEXT)
    };
    let call = [0xe8, 1, 0, 0, 0, 0xc3, 0xc3];
    let landing_pad = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &call].concat();
    assert_eq!(after(Machine::X86_64, &call, 0), Some(5));
    assert_eq!(after(Machine::X86_64, &landing_pad, 4), Some(9));
    assert_eq!(after(Machine::X86_64, &landing_pad, 0x100), None, "nobody patches it");
    assert_eq!(after(Machine::X86_64, &[&[0x55][..], &call].concat(), 1), None, "the function has begun");
    assert_eq!(after(Machine::Aarch64, &[0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5], 0), None);
}

#[test]
fn a_jump_that_is_told_to_be_a_tail_call_is_one() {
    let code = [
        0xff, 0xc0, // 0: inc %eax
        0xff, 0xe0, // 2: jmp *%rax
        0xff, 0xe1, // 4: jmp *%rcx
    ];
    let bytes = TestImage::kernel(Machine::X86_64, &code).build();
    let image = Image::parse(&bytes).expect("a kernel");
    let has_unknown = |tail_calls: &[u64]| {
        FunctionText::decode(&image, &ranges(&[(0, 6)]), &Known { tail_calls, ..Known::default() })
            .has_unknown_targets()
    };
    assert!(has_unknown(&[]) && has_unknown(&[TEXT + 2]));
    assert!(!has_unknown(&[TEXT + 2, TEXT + 4]));
}

#[test]
fn nothing_happens_before_and_at_the_patch_site() {
    let places = |machine, code: &[u8], patched: Option<u64>| {
        let add = |test: &mut TestImage| {
            if let Some(at) = patched {
                let at = (TEXT + at).to_le_bytes();
                test.table("__mcount_loc", "__start_mcount_loc", "__stop_mcount_loc", TEXT + 0x1000, &at);
            }
        };
        with(machine, code, add, |text| idle_prefix(text.image, TEXT).map(|at| at - TEXT).collect::<Vec<_>>())
    };
    // endbr64; call; push %rbx; nop
    let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0, 0, 0, 0, 0x53, 0x90, 0xc3];
    assert_eq!(places(Machine::X86_64, &code, Some(4)), [4, 9], "a push does something");
    assert_eq!(places(Machine::X86_64, &code, None), [4], "any other call goes elsewhere");
    // mov %rsi,%rdi
    assert!(places(Machine::X86_64, &[0x48, 0x89, 0xf7, 0xc3], None).is_empty());
    // bti c; nop; nop; paciasp
    let words = [0xd503_245fu32, 0xd503_201f, 0xd503_201f, 0xd503_233f, 0xd65f_03c0];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(places(Machine::Aarch64, &code, None)[..3], [4, 8, 12]);
}

const ARM64_LOOP: [u32; 9] = [
    0xd503_245f, // 0: bti c
    0xa9bf_7bfd, // 4: stp x29, x30, [sp, #-16]!
    0x8b00_0020, // 8: add x0, x1, x0
    0xf100_0442, // 12: subs x2, x2, #1
    0x54ff_ffc1, // 16: b.ne 8
    0xb400_0060, // 20: cbz x0, 32
    0xf840_8c20, // 24: ldr x0, [x1, #8]!
    0x1400_0001, // 28: b 32
    0xd65f_03c0, // 32: ret
];

#[test]
fn arm64_boundaries_branches_and_effects() {
    arm64(&ARM64_LOOP, |text| {
        assert_eq!(offsets(text), (0..9).map(|n| n * 4).collect::<Vec<_>>());
        assert!(!text.is_boundary(TEXT + 2));
        assert_eq!(branches(text), [(16, 8), (20, 32), (28, 32)]);
        assert_eq!(walk(text, 0), [(0, vec![], false, false), (4, vec![31], true, true)]);
        assert_eq!(walk(text, 8)[..2], [(8, vec![0], false, false), (12, vec![2], false, false)]);
        assert!(walk(text, 16)[0].3);
        assert_eq!(walk(text, 24)[0], (24, vec![0, 1], false, false));
        assert!(text.reentered_from(TEXT + 8, &ranges(&[(8, 20)])));
        assert!(text.prefix_preserves(TEXT, TEXT + 4, 0));
    });
}

#[test]
fn arm64_loads_stores_and_the_zero_register() {
    let one = |word: u32| {
        arm64(&[word, 0xd65f_03c0], |text| {
            let (_, writes, stores, ends) = walk(text, 0)[0].clone();
            (writes, stores, ends)
        })
    };
    assert_eq!(one(0xeb01_001f), (vec![], false, false), "cmp x0, x1");
    assert_eq!(one(0xaa01_03e0), (vec![0], false, false), "mov x0, x1");
    assert_eq!(one(0x9100_43ff), (vec![31], false, false), "add sp, sp, #16");
    assert_eq!(one(0xa940_0440), (vec![0, 1], false, false), "ldp x0, x1, [x2]");
    assert_eq!(one(0xf800_8420), (vec![1], true, false), "str x0, [x1], #8");
    assert_eq!(one(0xb900_0020), (vec![], true, false), "str w0, [x1]");
    assert_eq!(one(0x3980_0020), (vec![0], false, false), "ldrsb x0, [x1]");
    assert_eq!(one(0xd538_4100), (vec![0], false, false), "mrs x0, sp_el0");
    assert_eq!(one(0xfa41_0004), (vec![], false, false), "ccmp x0, x1, #4, eq");
    assert_eq!(one(0xd503_233f), (vec![30], false, false), "paciasp");
    for word in [
        0xc85f_7c20, // ldxr x0, [x1]
        0xc800_7c41, // stxr w0, x1, [x2]
        0xf820_0041, // ldadd x0, x1, [x2]
        0xd503_3bbf, // dmb ish
        0xd518_4100, // msr sp_el0, x0
        0x9400_0001, // bl
        0xd63f_0000, // blr x0
        0xd421_0000, // brk #0x800
        0xd503_205f, // wfe
    ] {
        assert!(one(word).2, "{word:#x}");
    }
}

#[test]
fn arm64_branches_that_are_new_or_not_known() {
    const RET: u32 = 0xd65f_03c0;
    // bc.eq .+8 (FEAT_HBC), as b.eq except for bit 4.
    arm64(&[0x5400_0050, RET, RET], |text| assert_eq!(branches(text), [(0, 8)]));
    // cbgt w0, w1, .+8 (FEAT_CMPBR): the target is not known here, and nothing after it is relied on.
    arm64(&[0xd503_201f, 0x7401_0040, RET], |text| assert_eq!(offsets(text), [0]));
    // blr x1, svc #0, hint #127, dmb ish, msr nzcv, x0 and a system register without a name go on.
    let straight = [0xd63f_0020, 0xd400_0001, 0xd503_2fff, 0xd503_3bbf, 0xd51b_4200, 0xd51f_ffff];
    arm64(&[&straight[..], &[RET]].concat(), |text| {
        assert_eq!((text.len(), branches(text).len()), (7, 0));
        assert!(!text.has_unknown_targets());
    });
}

#[test]
fn arm64_indirect_jumps() {
    let (br_x1, br_x16, bti_j, ret, bti_c) = (0xd61f_0020, 0xd61f_0200, 0xd503_249f, 0xd65f_03c0, 0xd503_245f);
    arm64(&[0xd503_201f, br_x1, bti_j, ret, bti_j, ret], |text| {
        assert!(!text.has_unknown_targets());
        assert_eq!(branches(text), [(4, 8), (4, 16)]);
    });
    arm64(&[bti_c, br_x16, ret], |text| assert!(!text.has_unknown_targets(), "a tail call"));
    arm64(&[0xd503_201f, br_x1, ret], |text| assert!(text.has_unknown_targets()));
}

/// Asks everything about some bytes.
fn ask(machine: Machine, code: &[u8], from: u64, body: &[(u64, u64)]) {
    let add = |test: &mut TestImage| {
        jump_table(test, 1, 4);
        let entry =
            [&relative(TEXT + 0x3000, TEXT + 3)[..], &relative(TEXT + 0x3004, TEXT), &[0, 0, 0, 0, 200, 9]].concat();
        test.table(".altinstructions", "__alt_instructions", "__alt_instructions_end", TEXT + 0x3000, &entry);
    };
    with(machine, code, add, |text| {
        let body = ranges(body);
        let mut last = TEXT + from;
        for step in text.walk_block(TEXT + from) {
            assert_eq!(step.address, last);
            last = step.next;
        }
        text.reentered_from(TEXT + from, &body);
        passes_by(text, TEXT + from, &body);
        for entry in text.entries(&body) {
            assert!(text.is_empty() || body.iter().any(|r| r.contains(&entry)));
        }
        for to in [from, from.saturating_add(5)] {
            text.prefix_preserves(TEXT, TEXT.saturating_add(to), 3);
        }
        crate::text::probeable::unprobeable(text.image, text, TEXT + from);
        assert!(text.addresses().is_sorted());
    });
}

proptest! {
    #[test]
    fn garbage_does_not_panic(
        arm64: bool,
        code in proptest::collection::vec(any::<u8>(), 0..96),
        from in 0u64..100,
        body in proptest::collection::vec((0u64..100, 0u64..120), 0..4),
    ) {
        ask(if arm64 { Machine::Aarch64 } else { Machine::X86_64 }, &code, from, &body);
    }

    #[test]
    fn short_branches_do_not_loop(
        code in proptest::collection::vec(prop_oneof![Just(0xebu8), Just(0x74), Just(0xff), Just(0xc3), Just(0x90), Just(0xf0), any::<u8>()], 1..64),
        from in 0u64..64,
        body in proptest::collection::vec((0u64..64, 0u64..64), 0..4),
    ) {
        ask(Machine::X86_64, &code, from, &body);
    }
}

/// Whether code after a call reads what the call returned.
fn uses_result_of(machine: Machine, text: &[u8]) -> bool {
    let bytes = TestImage::kernel(machine, text).build();
    uses_result(&Image::parse(&bytes).expect("a kernel"), TEXT)
}

#[test]
fn x86_reads_of_a_result() {
    let read: [&[u8]; 12] = [
        &[0x48, 0xff, 0xc0],                               // inc %rax
        &[0x48, 0x83, 0xc0, 0x05],                         // add $5,%rax
        &[0x48, 0x2b, 0x03],                               // sub (%rbx),%rax
        &[0x85, 0xc0],                                     // test %eax,%eax
        &[0x89, 0xc3],                                     // mov %eax,%ebx
        &[0x88, 0x03, 0xc3, 0x88, 0x03],                   // mov %al,(%rbx)
        &[0x48, 0x98],                                     // cltq
        &[0x0f, 0xb6, 0xc0],                               // movzbl %al,%eax
        &[0x48, 0x8b, 0x00],                               // mov (%rax),%rax
        &[0x01, 0xc3],                                     // add %eax,%ebx
        &[0x0f, 0x1f, 0x40, 0x00, 0x89, 0xfb, 0x85, 0xc0], // nopl 0(%rax); mov %edi,%ebx; test %eax,%eax
        &[0xeb, 0x02, 0x31, 0xc0, 0x85, 0xc0],             // jmp over; xor %eax,%eax; test %eax,%eax
    ];
    for text in read {
        assert!(uses_result_of(Machine::X86_64, text), "{text:x?}");
    }
    // Each is followed by `test %eax,%eax`, which then tests something else, or may.
    let over: [&[u8]; 11] = [
        &[0x31, 0xc0],                   // xor %eax,%eax
        &[0x19, 0xc0],                   // sbb %eax,%eax
        &[0x83, 0xc8, 0xff],             // or $-1,%eax
        &[0x83, 0xe0, 0x00],             // and $0,%eax
        &[0x29, 0xc0],                   // sub %eax,%eax
        &[0xb0, 0x01],                   // mov $1,%al
        &[0x50],                         // push %rax
        &[0x93],                         // xchg %eax,%ebx
        &[0x74, 0x00],                   // je
        &[0xe8, 0x00, 0x00, 0x00, 0x00], // call
        &[0x0f, 0x94, 0xc0],             // sete %al
    ];
    for text in over {
        assert!(!uses_result_of(Machine::X86_64, &[text, &[0x85, 0xc0]].concat()), "{text:x?}");
    }
    assert!(!uses_result_of(Machine::X86_64, &[0xeb, 0xfe]), "a loop ends the search");
    assert!(!uses_result_of(Machine::X86_64, &[0x90, 0x06]), "and so does what is not an instruction");
}

#[test]
fn arm64_reads_of_a_result() {
    let uses = |words: &[u32]| {
        uses_result_of(Machine::Aarch64, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    };
    const CMP: u32 = 0x7100_001f;
    let read: [&[u32]; 8] = [
        &[CMP],
        &[0x3400_0040],                   // cbz w0
        &[0xaa00_03f3],                   // mov x19, x0
        &[0xf900_07e0],                   // str x0, [sp, #8]
        &[0xf940_0000],                   // ldr x0, [x0]
        &[0x9340_7c00],                   // sxtw x0, w0
        &[0xd503_201f, 0xaa13_03e1, CMP], // nop; mov x1, x19
        &[0x1400_0002, 0xaa13_03e0, CMP], // b over; mov x0, x19
    ];
    for words in read {
        assert!(uses(words), "{words:x?}");
    }
    let over: [u32; 7] = [
        0xaa13_03e0, // mov x0, x19
        0x5280_0020, // mov w0, #1
        0xf280_0020, // movk x0, #1
        0xca00_0001, // eor x1, x0, x0
        0x9400_0010, // bl
        0x3500_0053, // cbnz w19
        0xd65f_03c0, // ret
    ];
    for word in over {
        assert!(!uses(&[word, CMP]), "{word:x}");
    }
}

#[test]
fn calls_are_known_by_where_they_return() {
    let x86 = [0x90, 0xe8, 0x0a, 0x00, 0x00, 0x00, 0xff, 0xd0];
    let bytes = TestImage::kernel(Machine::X86_64, &x86).build();
    let image = Image::parse(&bytes).expect("a kernel");
    assert_eq!(call_target(&image, TEXT + 6), Some(TEXT + 16));
    assert_eq!((call_target(&image, TEXT + 8), call_target(&image, TEXT + 2)), (None, None));
    let arm64: Vec<u8> = [0x9400_0004u32, 0xd63f_0000].iter().flat_map(|word| word.to_le_bytes()).collect();
    let bytes = TestImage::kernel(Machine::Aarch64, &arm64).build();
    let image = Image::parse(&bytes).expect("a kernel");
    assert_eq!((call_target(&image, TEXT + 4), call_target(&image, TEXT + 8)), (Some(TEXT + 16), None));
}

#[test]
fn registers_that_nothing_has_written() {
    // 0: mov %rdi,%rbx; 3: test %rsi,%rsi; 6: je 11; 8: mov %rsi,%r12; 11: ret
    let code = [0x48, 0x89, 0xfb, 0x48, 0x85, 0xf6, 0x74, 0x03, 0x49, 0x89, 0xf4, 0xc3];
    x86(&code, |text| {
        let mut makers = text.makers();
        assert!(makers.has_written(3, TEXT + 3) && makers.has_written(12, TEXT + 11));
        assert!(
            !makers.has_written(3, TEXT) && !makers.has_written(12, TEXT + 8) && !makers.has_written(13, TEXT + 11)
        );
    });
}

#[test]
fn stores_of_a_register_and_of_a_constant_are_alike() {
    // 0: movl $5,(%rdi); 6: mov %eax,(%rdx); 8: mov %eax,8(%rdx); 11: mov %al,(%rdx); 13: movl $6,(%rdx); 19: ret
    let code = [0xc7, 0x07, 5, 0, 0, 0, 0x89, 0x02, 0x89, 0x42, 8, 0x88, 0x02, 0xc7, 0x02, 6, 0, 0, 0, 0xc3];
    x86(&code, |text| {
        let alike =
            |one: u64, other: u64| text.is_alike(TEXT + one, TEXT + other) && text.is_alike(TEXT + other, TEXT + one);
        assert!(alike(0, 6) && alike(6, 13));
        assert!(!alike(0, 8) && !alike(0, 11), "elsewhere, and not as much");
        assert!(!alike(0, 13), "another constant");
    });
}

#[test]
fn a_modules_call_to_ftrace_is_known_by_its_relocation() {
    let after = |name: &str| {
        let mut test = TestImage::new(Machine::X86_64, object::elf::ET_REL);
        // Allocated, and executable.
        let text = test.section(".text", 6, 0, &[0xe8, 0, 0, 0, 0, 0xc3]);
        let import = test.symbol(name, 0, 0, 0x10, 0);
        test.symbol("f", 0, 6, 0x02, text);
        // R_X86_64_PLT32, four bytes before where the call returns to.
        let rela =
            [&1u64.to_le_bytes()[..], &4u32.to_le_bytes(), &import.to_le_bytes(), &(-4i64).to_le_bytes()].concat();
        // .symtab comes after the relocations.
        test.section_of(4, ".rela.text", 0x40, 0, &rela, u32::from(text) + 2, text.into());
        let bytes = test.build();
        let image = Image::parse(&bytes).expect("a module");
        let f = image.symbols_named("f").next().expect("f").address;
        after_fentry(&image, f).map(|address| address - f)
    };
    assert_eq!(after("__fentry__"), Some(5));
    assert_eq!(after("schedule"), None);
}

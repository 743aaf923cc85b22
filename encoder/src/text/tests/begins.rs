// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where bodies begin, if not at their entry.

use super::*;
use crate::text::begins::MovedUp;

#[test]
fn what_was_moved_up_before_what_others_do() {
    // 0: mov w0, #1; 4: str w8, [x19]; 8: mov w1, #2; 12: str w9, [x19]; 16: ret
    let code = [0x5280_0020, 0xb900_0268, 0x5280_0041, 0xb900_0269, 0xd65f_03c0];
    let body = |ranges: &[(u64, u64)]| -> Vec<Range<u64>> {
        ranges.iter().map(|&(start, end)| TEXT + start..TEXT + end).collect()
    };
    arm64(&code, |text| {
        assert_eq!(text.past_others(TEXT, &body(&[(0, 4), (8, 16)])), Some(TEXT + 8));
        assert_eq!(text.past_others(TEXT, &body(&[(0, 16)])), None, "the store is its own");
        assert_eq!(text.past_others(TEXT, &body(&[(0, 4)])), None, "it is over");
        assert_eq!(text.past_others(TEXT + 8, &body(&[(8, 16)])), None);
    });
    // 0: mov w0, #1; 4: str w8, [x19]; 8: cbz w1, 12; 12: str w9, [x19]; 16: ret
    let code = [0x5280_0020, 0xb900_0268, 0x3400_0021, 0xb900_0269, 0xd65f_03c0];
    arm64(&code, |text| assert_eq!(text.past_others(TEXT, &body(&[(0, 4), (12, 16)])), None, "past a branch"));
}

#[test]
fn what_was_moved_up_past_branches() {
    // 0: mov w0, #1; 4: str w8, [x19]; 8: cbz w1, 16; 12: str w9, [x19]; 16: ret
    let code = [0x5280_0020, 0xb900_0268, 0x3400_0041, 0xb900_0269, 0xd65f_03c0];
    arm64(&code, |text| {
        let past = |entry: u64, body: &[(u64, u64)]| text.past_branches(TEXT + entry, &ranges(body));
        assert_eq!(past(0, &[(0, 4), (12, 16)]), Some(TEXT + 12));
        assert_eq!(past(0, &[(0, 4), (16, 20)]), None, "the rest does nothing that can be seen");
        assert_eq!(past(0, &[(0, 4)]), None, "it is over");
        assert_eq!(past(4, &[(4, 8), (12, 16)]), None, "it has begun");
        assert_eq!(past(8, &[(8, 16)]), None, "the branch is its own");
    });
    // 0: mov w0, #1; 4: cbz w1, 12; 8: str w8, [x19]; 12: str w9, [x19]; 16: ret
    let code = [0x5280_0020, 0x3400_0041, 0xb900_0268, 0xb900_0269, 0xd65f_03c0];
    arm64(&code, |text| {
        let body = ranges(&[(0, 4), (12, 16)]);
        assert_eq!(text.past_branches(TEXT, &body), None, "on one way nothing of others can be seen");
    });
    // 0: mov w0, #1; 4: str w8, [x19]; 8: cbz w1, 16; 12: str w9, [x19]; 16: nop; 20: br x1
    let code = [0x5280_0020, 0xb900_0268, 0x3400_0041, 0xb900_0269, 0xd503_201f, 0xd61f_0020];
    arm64(&code, |text| {
        assert!(text.has_unknown_targets());
        assert_eq!(text.past_branches(TEXT, &ranges(&[(0, 4), (12, 16)])), None, "the jump may lead there");
    });
}

#[test]
fn padding_before_a_loop() {
    // 0: xor %eax,%eax; 2: nopl (3 bytes); 5: nop; 6: inc %eax; 8: jne 6; 10: nop; 11: ret
    let code = [0x31, 0xc0, 0x0f, 0x1f, 0x00, 0x90, 0xff, 0xc0, 0x75, 0xfc, 0x90, 0xc3];
    x86(&code, |text| {
        assert_eq!(text.padding_before(TEXT + 6), Some(TEXT + 2));
        assert_eq!(text.padding_before(TEXT + 11), None, "nothing jumps there");
        assert_eq!(text.padding_before(TEXT + 2), None);
    });
    // 0: jne 6; 2: ret; 3: nopl (3 bytes); 6: ret
    let code = [0x75, 0x04, 0xc3, 0x0f, 0x1f, 0x00, 0xc3];
    x86(&code, |text| assert_eq!(text.padding_before(TEXT + 6), Some(TEXT + 3), "nothing comes through it"));
}

#[test]
fn a_body_on_one_way_of_a_branch() {
    // 0: mov w0, #1; 4: cbz w0, 12; 8: str wzr, [x1]; 12: str w8, [x19]; 16: ret
    let code = [0x5280_0020, 0x3400_0040, 0xb900_003f, 0xb900_0268, 0xd65f_03c0];
    arm64(&code, |text| {
        let begins = |entry, body: &[(u64, u64)]| text.after_branch(TEXT + entry, &ranges(body));
        assert_eq!(begins(0, &[(8, 12)]), Some(TEXT + 8));
        assert_eq!(begins(4, &[(8, 12), (16, 20)]), Some(TEXT + 8));
        assert_eq!(begins(0, &[(4, 12)]), None, "the branch is its own");
        assert_eq!(begins(0, &[(8, 16)]), None, "both ways lead into it");
        assert_eq!(begins(8, &[(8, 12)]), None, "no branch is between");
        assert_eq!(begins(0, &[(12, 16)]), None, "it is reached on both ways");
        assert_eq!(begins(0, &[(0, 4), (8, 12)]), Some(TEXT + 8), "it only computes before the branch");
    });
    // 0: str wzr, [x1] in its place
    let acts = [0xb900_003f, 0x3400_0040, 0xb900_003f, 0xb900_0268, 0xd65f_03c0];
    arm64(&acts, |text| {
        let begins = |body: &[(u64, u64)]| text.after_branch(TEXT, &ranges(body));
        assert_eq!(begins(&[(0, 4), (8, 12)]), None, "it has begun before the branch");
        assert_eq!(begins(&[(8, 12)]), Some(TEXT + 8));
    });
    // 0: cbz w0, 16; 4: cbz w1, 12; 8: str w8, [x19]; 12: str wzr, [x1]; 16: ret
    let apart = [0x3400_0080, 0x3400_0041, 0xb900_0268, 0xb900_003f, 0xd65f_03c0];
    arm64(&apart, |text| {
        let leads_past = |entry, body: &[(u64, u64)]| text.leads_past(TEXT + entry, &ranges(body));
        assert!(leads_past(0, &[(12, 16)]), "the way to it begins with the caller's branch");
        assert!(!leads_past(4, &[(12, 16)]), "one way begins with it, and the other leads to it");
        assert!(!leads_past(0, &[(0, 4), (12, 16)]), "the branch is its own");
        assert!(!leads_past(0, &[(4, 8), (12, 16)]), "the way begins with it");
        assert!(!leads_past(0, &[(16, 20)]), "it does nothing that can be seen");
    });
    // 0: mov w0, #1; 4: cbz w0, 12; 8: str wzr, [x1]; 12: str w8, [x19]; 16: ret
    arm64(&code, |text| {
        let computes = |body: &[(u64, u64)]| text.computes_before_branch(TEXT, &ranges(body));
        assert!(computes(&[(0, 4), (8, 12)]), "the store may be all that there is of it");
        assert!(!computes(&[(0, 8), (8, 12)]), "the branch is its own");
        assert!(!computes(&[(0, 4), (12, 16)]), "both ways lead to it");
    });
    // 8: mov w2, #1: nothing that can be seen
    let code = [0x5280_0020, 0x3400_0040, 0x5280_0022, 0xb900_0268, 0xd65f_03c0];
    arm64(&code, |text| assert_eq!(text.after_branch(TEXT, &ranges(&[(8, 12)])), None));
    // 0: mov w0, #1; 4: cbz w0, 12; 8: str wzr, [x1]; 12: cbnz w2, 0; 16: ret: a loop around both ways
    let code = [0x5280_0020, 0x3400_0040, 0xb900_003f, 0x35ff_ffa2, 0xd65f_03c0];
    arm64(&code, |text| assert_eq!(text.after_branch(TEXT, &ranges(&[(8, 12)])), Some(TEXT + 8)));
}

#[test]
fn two_entries_of_one_call() {
    // 0: str wzr, [x1]; 4: cbz w0, 12; 8: mov w2, #1; 12: str w8, [x19]; 16: ret
    let code = [0xb900_003f, 0x3400_0040, 0x5280_0022, 0xb900_0268, 0xd65f_03c0];
    let entries = [TEXT + 8, TEXT + 12];
    let again = |code: &[u32], body: &[(u64, u64)]| {
        arm64(code, |text| text.is_entered_again(TEXT + 8, TEXT + 12, &entries, &ranges(body)))
    };
    assert!(again(&code, &[(0, 4), (12, 16)]), "what it does first leads to the second entry either way");
    assert!(!again(&code, &[(0, 4)]), "it does nothing after the second entry");
    let with = |nth: usize, word: u32| {
        let mut changed = code;
        changed[nth] = word;
        changed
    };
    assert!(!again(&with(2, 0xb900_003f), &[(0, 4), (12, 16)]), "something is done between the two");
    // 8: cbz w0, 16
    assert!(!again(&with(2, 0x3400_0040), &[(0, 4), (12, 16)]), "control may go elsewhere");
    // 4: nop
    let straight = with(1, 0xd503_201f);
    assert!(!again(&straight, &[(0, 4), (12, 16)]), "the store is of the first call, and the second one stores again");
    assert!(again(&straight, &[(12, 16)]), "the store is the caller's");
    // 4: str wzr, [x1], the caller's
    assert!(!again(&with(1, 0xb900_003f), &[(0, 4), (12, 16)]), "the caller does something between");
    // 16: cbnz w0, 8, and a return after it: a loop around both entries
    let looped = [0xd503_201f, 0xd503_201f, 0x5280_0022, 0xb900_0268, 0x35ff_ffc0, 0xd65f_03c0];
    assert!(again(&looped, &[(12, 16)]), "the store is of the turn before, which the second entry stands for");
    arm64(&code, |text| assert!(!text.is_entered_again(TEXT + 12, TEXT + 12, &entries, &ranges(&[(12, 16)]))));
}

#[test]
fn a_branch_that_leads_to_another_entry() {
    // 0: mov w0, #2; 4: cbz w1, 16; 8: str w0, [x19]; 12: ret; 16: str w0, [x19]; 20: ret
    let code = [0x5280_0040, 0x3400_0061, 0xb900_0260, 0xd65f_03c0, 0xb900_0260, 0xd65f_03c0];
    let body = ranges(&[(0, 4), (8, 12), (16, 20)]);
    let begins = |code: &[u32], other: u64| arm64(code, |text| text.after_branch_to(TEXT + other, TEXT, &body));
    assert_eq!(begins(&code, 16), Some(TEXT + 8));
    assert_eq!(begins(&code, 8), Some(TEXT + 16));
    assert_eq!(begins(&code, 12), None, "the body does something before that");
    let with = |nth: usize, word: u32| {
        let mut changed = code;
        changed[nth] = word;
        changed
    };
    assert_eq!(begins(&with(0, 0xb900_0260), 16), None, "it has done something before the branch");
    assert_eq!(begins(&with(2, 0x5280_0040), 16), None, "it does nothing on the other way");
    // 12: cbnz w1, 8
    assert_eq!(begins(&with(3, 0x35ff_ffe1), 16), None, "control comes to the other way from elsewhere, too");
}

#[test]
fn a_body_that_was_moved_up_before_a_branch() {
    // 0: str w1, [x0]; 4: cbz w2, 12; 8: mov w3, #1; 12: ret
    let code = [0xb900_0001, 0x3400_0042, 0x5280_0023, 0xd65f_03c0];
    arm64(&code, |text| {
        let begins = |entry, body: &[(u64, u64)]| text.moved_before(TEXT + entry, &ranges(body));
        assert_eq!(begins(8, &[(0, 4), (8, 8)]), Some(MovedUp { begin: TEXT, act: TEXT }));
        assert_eq!(begins(8, &[(0, 4), (8, 12)]), None, "something of it is left there");
        assert_eq!(begins(4, &[(0, 4), (4, 4)]), None, "no branch is between");
        assert_eq!(begins(8, &[(4, 8), (8, 8)]), None, "a branch cannot be seen");
        assert_eq!(begins(12, &[(8, 12), (12, 12)]), None, "control comes there without it, too");
    });
    // 8: str w1, [x7]; 12: ret
    let code = [0xb900_0001, 0x3400_0042, 0x5280_0023, 0xb900_00e1, 0xd65f_03c0];
    arm64(&code, |text| {
        let body = ranges(&[(0, 4), (8, 8), (12, 16)]);
        assert_eq!(text.moved_before(TEXT + 8, &body), None, "the body goes on after it");
    });
}

#[test]
fn what_is_on_another_way_than_an_address() {
    // 0: str w1, [x0]; 4: cbz w2, 16; 8: mov w3, #1; 12: ret; 16: mov w3, #2; 20: cbz w2, 8; 24: ret
    let code = [0xb900_0001, 0x3400_0062, 0x5280_0023, 0xd65f_03c0, 0x5280_0043, 0x34ff_ffa2, 0xd65f_03c0];
    arm64(&code, |text| {
        let is = |from, to, avoided: u64| text.is_on_another_way(TEXT + from, TEXT + to, Some(TEXT + avoided));
        assert!(is(0, 16, 8));
        assert!(is(0, 8, 12), "both ways lead there");
        assert!(!is(0, 4, 8), "no branch is between");
        assert!(!is(0, 24, 16), "only past it");
        assert!(!is(8, 16, 12), "it does not lead there");
        assert!(!is(16, 8, 12), "another way leads there, too");
    });
}

#[test]
fn a_loop_that_begins_before_the_body() {
    // 0: ldr w0, [x7]; 4: sub w3, w3, #1; 8: cbnz w3, 0; 12: ret
    let code = [0xb940_00e0, 0x5100_0463, 0x35ff_ffc3, 0xd65f_03c0];
    arm64(&code, |text| {
        let head = |entry, body: &[(u64, u64)]| text.loop_before(TEXT + entry, &ranges(body));
        assert_eq!(head(4, &[(4, 12)]), Some(TEXT));
        assert_eq!(head(8, &[(8, 12)]), Some(TEXT));
        assert_eq!(head(0, &[(0, 12)]), None, "it begins with the body");
        assert_eq!(head(4, &[(0, 2), (4, 8)]), None, "the jump back is the caller's");
    });
}

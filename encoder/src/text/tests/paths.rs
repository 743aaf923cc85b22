// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where bodies begin, and begin again.

use super::*;

#[test]
fn what_is_done_first_and_again() {
    // 0: movl $5,(%rdi); 6: movl $6,(%rsi); 12: movl $5,(%rdx); 18: movl $5,8(%rdx); 25: ret
    let code =
        [0xc7, 0x07, 5, 0, 0, 0, 0xc7, 0x06, 6, 0, 0, 0, 0xc7, 0x02, 5, 0, 0, 0, 0xc7, 0x42, 8, 5, 0, 0, 0, 0xc3];
    x86(&code, |text| {
        assert_eq!(text.first_acts(TEXT), [TEXT]);
        assert_eq!(text.first_acts(TEXT + 6), [TEXT + 6]);
        assert!(text.is_alike(TEXT, TEXT + 12), "whichever register");
        assert!(!text.is_alike(TEXT, TEXT + 6) && !text.is_alike(TEXT, TEXT + 18));
        let body = std::slice::from_ref(&(TEXT..TEXT + 26)).to_vec();
        let mut acts = text.all_acts(&body);
        assert_eq!(acts, [TEXT, TEXT + 6, TEXT + 12, TEXT + 18]);
        text.keep_reached(&[TEXT], &[TEXT + 12], &mut acts);
        assert_eq!(acts, [TEXT + 6]);
    });
}

#[test]
fn what_was_moved_out_of_a_loop() {
    // 0: mov w1, #2; 4: ldr w0, [x7]; 8: str w1, [x7]; 12: str w8, [x19]; 16: cbnz w3, 4; 20: ret
    let code = [0x5280_0041, 0xb940_00e0, 0xb900_00e1, 0xb900_0268, 0x35ff_ffa3, 0xd65f_03c0];
    arm64(&code, |text| {
        let body = ranges(&[(0, 4), (8, 12)]);
        assert!(text.was_moved_out_of_loop(TEXT, &body));
        assert!(!text.was_moved_out_of_loop(TEXT + 8, &body), "each turn passes it");
        assert!(
            text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 4), (8, 20)])),
            "its jump leads back to the caller's code"
        );
        assert!(!text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 20)])), "the loop is the body's");
        assert!(!text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 4), (20, 24)])), "the body runs after the loop");
    });
    // 0: mov w3, #1; 4: cbz w2, 24; 8: sub w1, w1, #1; 12: str w3, [x0]; 16: cmn w1, #1; 20: b.ne 8; 24: ret
    let code = [0x5280_0023, 0x3400_00a2, 0x5100_0421, 0xb900_0003, 0x3100_043f, 0x54ff_ffa1, 0xd65f_03c0];
    arm64(&code, |text| {
        assert!(text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 4), (12, 16)])), "past a branch, too");
        assert!(!text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 4), (8, 24)])), "the loop is the body's");
    });
}

#[test]
fn a_body_that_begins_again_after_others() {
    // 0: mov w1, #2; 4: b 12; 8: sub w3, w3, #1; 12: str w8, [x19]; 16: str w1, [x7]; 20: cbnz w3, 8; 24: ret
    let code = [0x5280_0041, 0x1400_0002, 0x5100_0463, 0xb900_0268, 0xb900_00e1, 0x35ff_ffa3, 0xd65f_03c0];
    arm64(&code, |text| {
        let body = ranges(&[(0, 4), (16, 24)]);
        assert!(text.was_moved_out_of_loop(TEXT, &body), "the jump leads back to the caller's code");
        assert!(text.comes_again_after_others(TEXT, &body));
        assert!(!text.comes_again_after_others(TEXT + 16, &body), "each turn passes it");
        assert!(!text.comes_again_after_others(TEXT, &ranges(&[(0, 24)])), "the loop is the body's");
    });
}

#[test]
fn a_third_way_after_what_two_calls_share_passes_both() {
    // 0: str w1, [x0]; 4: cbz w2, 16; 8: mov w3, #1; 12: ret; 16: cbz w3, 28; 20: mov w3, #2; 24: ret; 28: ret
    let mut code =
        [0xb900_0001, 0x3400_0062, 0x5280_0023, 0xd65f_03c0, 0x3400_0063, 0x5280_0043, 0xd65f_03c0, 0xd65f_03c0];
    let body = ranges(&[(0, 4), (8, 12)]);
    let bypasses = |text: &FunctionText<'_, '_>, entries: &[u64]| text.bypasses(entries, &body, true, &|_| false);
    arm64(&code, |text| assert!(bypasses(text, &[TEXT + 8, TEXT + 20])));
    // 16: mov w4, #1
    code[4] = 0x5280_0024;
    arm64(&code, |text| {
        assert!(bypasses(text, &[TEXT + 8]));
        assert!(!bypasses(text, &[TEXT + 8, TEXT + 20]), "each call has its own");
    });
}

#[test]
fn a_body_that_is_entered_again_after_it_returned_early() {
    // 0: cbz w2, 8; 4: str w1, [x0]; 8: mov w3, #1; 12: cbz w2, 20; 16: str w1, [x0]; 20: ret. The move is the
    // caller's.
    let code = [0x3400_0042, 0xb900_0001, 0x5280_0023, 0x3400_0042, 0xb900_0001, 0xd65f_03c0];
    arm64(&code, |text| {
        let body = ranges(&[(0, 8), (12, 20)]);
        assert!(text.is_past_branch(TEXT, TEXT + 12, &body) && text.is_entered_from_outside(TEXT + 12, &body));
        assert!(!text.is_past_branch(TEXT + 4, TEXT + 12, &body), "no branch is between");
        assert!(!text.is_past_branch(TEXT, TEXT + 12, &body[1..]), "the branch is the caller's");
        assert!(!text.is_entered_from_outside(TEXT + 4, &body));
        assert!(!text.is_entered_from_outside(TEXT + 8, &body), "a branch of the body leads there, too");
    });
}

#[test]
fn a_straight_line_to_where_a_loop_begins() {
    x86(COUNTED_LOOP, |text| {
        assert!(text.falls_through(TEXT, TEXT + 2) && !text.is_straight(TEXT, TEXT + 2));
        assert!(!text.falls_through(TEXT, TEXT + 4), "the loop comes in between");
        assert!(text.is_straight(TEXT + 2, TEXT + 4) && !text.falls_through(TEXT + 4, TEXT + 8));
    });
}

#[test]
fn a_body_in_a_loop_that_comes_back_to_after_its_first_instruction() {
    // 0: add w2, w2, #1; 4: cbz w1, 16; 8: cbnz w2, 4; 12: ret; 16: str w8, [x19]; 20: b 8. What the body does is after
    // the loop.
    let code = [0x1100_0442, 0x3400_0061, 0x35ff_ffe2, 0xd65f_03c0, 0xb900_0268, 0x17ff_fffd];
    arm64(&code, |text| {
        assert!(text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 8), (16, 24)])));
        assert!(!text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 12), (16, 24)])), "the loop is its own");
        assert!(!text.was_moved_out_of_loop(TEXT + 4, &ranges(&[(4, 8), (16, 24)])), "it comes back to the entry");
        assert!(!text.was_moved_out_of_loop(TEXT, &ranges(&[(0, 8)])), "it does nothing in the loop");
    });
}

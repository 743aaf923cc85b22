// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Makes a program small that shows a failure: leaves out functions and statements for as long as it does.

use crate::random::program::Program;

/// The smallest program found that still `fails`. A program that cannot be compiled does not fail.
pub(crate) fn reduce(program: &Program, fails: &dyn Fn(&Program) -> bool) -> Program {
    let mut program = program.clone();
    loop {
        let mut is_smaller = false;
        let mut size = (program.parts() / 2).max(1);
        loop {
            let mut from = 0;
            while from < program.parts() {
                // From the end: what is used comes before what uses it.
                let end = program.parts() - from;
                let range = end.saturating_sub(size)..end;
                let candidate = program.without(&|part| range.contains(&part));
                if candidate.parts() < program.parts() && fails(&candidate) {
                    program = candidate;
                    is_smaller = true;
                } else {
                    from += size;
                }
            }
            if size == 1 {
                break;
            }
            size /= 2;
        }
        if !is_smaller {
            return program;
        }
    }
}

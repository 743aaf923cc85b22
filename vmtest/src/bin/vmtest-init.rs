// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Init for programs that know nothing of it: the host names the program, this runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    siteseer_vmtest::guest::main(|| {
        eprintln!("vmtest-init is process 1 of a virtual machine; vmtest-run starts one");
        ExitCode::FAILURE
    })
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A BPF object file: its programs are taken apart, what they use is found out, and their statements are read from its
//! BTF.
#![no_main]

use siteseer::internals::declared::Declared;
use siteseer::internals::object_file::read_all;
use siteseer::internals::program::analyse;
use siteseer::internals::symbols::Symbols;

siteseer_fuzz::target!(|data| {
    if let Ok((programs, plain)) = read_all(data) {
        for program in programs.iter().take(64) {
            let _ = analyse(&program.program);
            if let Some(btf) = &program.btf {
                let _ = Declared::find(btf, &program.program.name);
            }
        }
        let _ = plain.len();
    }
    let _ = Symbols::of_elf(data);
});

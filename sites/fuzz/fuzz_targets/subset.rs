// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A subset over small BTF: as it is, and with its checksums made right, so that what they would refuse is parsed too.
//! What comes out is written as a site file, as the loader does.
#![no_main]

#[path = "../../tests/common/subset.rs"]
mod subset;

use siteseer_sites::btf::{IntEncoding, Kind, Linkage, SplitBtf};
use siteseer_sites::file;

siteseer_fuzz::target!(|data| {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let pointer = types.modifier(Kind::Ptr, int);
    let proto = types.func_proto(int, &[("p", pointer)], false);
    types.func("foo", proto, Linkage::Static);
    let btf = types.to_bytes();
    let mut sealed = data.to_vec();
    subset::reseal_subset(&mut sealed);
    for data in [data, &sealed] {
        for set in subset::exercise_subset(data, &btf).unwrap_or_default() {
            let _ = file::write(&set);
        }
    }
});

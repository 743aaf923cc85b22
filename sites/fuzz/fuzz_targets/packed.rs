// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Packed site files, with a kernel's BTF beside them and without. What comes out is packed again and must come out the
//! same.
#![no_main]

use siteseer_sites::btf::{IntEncoding, Kind, Linkage, SplitBtf};
use siteseer_sites::file::packed::{pack, parts, unpack};

const LIMIT: usize = 1 << 20;

siteseer_fuzz::target!(|data| {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let pointer = types.modifier(Kind::Ptr, int);
    let proto = types.func_proto(int, &[("p", pointer)], false);
    types.func("foo", proto, Linkage::Static);
    let btf = types.to_bytes();
    let _ = parts(data);
    for btf in [None, Some(&btf[..])] {
        if let Ok(files) = unpack(data, btf, LIMIT) {
            let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            assert_eq!(unpack(&pack(&slices, btf), btf, 4 * LIMIT).as_ref(), Ok(&files));
        }
    }
    // Whatever the data is, it can be packed.
    let files = unpack(&pack(&[data], Some(&btf)), Some(&btf), 64 << 20);
    assert_eq!(files, Ok(vec![data.to_vec()]));
});

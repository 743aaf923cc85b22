// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a program states of its function, in the BTF of its object: the input, for a program of the name `p`.
#![no_main]

use siteseer::internals::declared::{Signature, Stated};
use siteseer_sites::btf::{Btf, Kind};

siteseer_fuzz::target!(|data| {
    let _ = Stated::find(Some(data), "p");
    let Ok(btf) = Btf::parse(data) else { return };
    let protos = btf.types().filter(|ty| ty.kind() == Kind::FuncProto).take(32);
    let signatures: Vec<Signature> = protos.filter_map(|ty| Signature::of(&btf, ty.id())).collect();
    for one in &signatures {
        for other in &signatures {
            // A type that cannot be told is compatible with none, not even with itself.
            assert_eq!(one.difference(other).is_none(), other.difference(one).is_none(), "compatible both ways");
        }
    }
});

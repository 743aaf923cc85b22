// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What all fuzz targets share: the bound on memory ([`bound`]), the images whose sections they replace ([`images`]),
//! and reading an input as a list of replacements ([`patch`]).

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;

mod bound;
pub mod images;
pub mod patch;

pub use bound::bounded;
// Those who link this link the fuzzer, also where they only make seeds: instrumented code refers to it.
pub use libfuzzer_sys;

/// A fuzz target: what is done with an input, within the bound on memory.
#[macro_export]
macro_rules! target {
    (|$data:ident| $body:block) => {
        $crate::libfuzzer_sys::fuzz_target!(|$data: &[u8]| {
            $crate::bounded($data.len(), || $body);
        });
    };
}

/// Runs work of the encoder's in this thread: a pool of threads for each input would be what most time is spent on.
pub fn alone(work: impl FnOnce()) {
    static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
        let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        pool.build().expect("this thread is there")
    });
    LazyLock::force(&POOL);
    work();
}

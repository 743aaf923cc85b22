// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site file.
#![no_main]

#[path = "../../tests/common/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;
use siteseer_sites::file::SiteFile;

fuzz_target!(|data: &[u8]| {
    if let Ok(file) = SiteFile::parse(data) {
        let _ = exercise::exercise_file(&file);
    }
});

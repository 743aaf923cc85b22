// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site file: as it is, and with its checksums made right, so that what they would refuse is parsed too.
#![no_main]

#[path = "../../tests/common/exercise.rs"]
mod exercise;
#[path = "../../tests/common/reseal.rs"]
mod reseal;

use siteseer_sites::file::SiteFile;

siteseer_fuzz::target!(|data| {
    let mut sealed = data.to_vec();
    reseal::reseal(&mut sealed);
    for data in [data, &sealed] {
        if let Ok(file) = SiteFile::parse(data) {
            let _ = exercise::exercise_file(&file);
        }
    }
});

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Instructions: the input is a function of a kernel for x86-64 or for arm64, as its first byte says, and what of it
//! can be probed is asked for each address.
#![no_main]

#[allow(dead_code, reason = "the encoder's own tests use the rest")]
#[path = "../../src/elf/test_image.rs"]
mod test_image;

use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::probeable::Prober;
use siteseer_encoder::text::{FunctionText, Known};
use siteseer_sites::Machine;
use test_image::{TEXT, TestImage};

siteseer_fuzz::target!(|data| {
    let Some(([choice, split], text)) = data.split_first_chunk() else { return };
    let machine = if choice & 1 == 0 { Machine::X86_64 } else { Machine::Aarch64 };
    let end = TEXT + text.len() as u64;
    let middle = end.min(TEXT + u64::from(*split));
    let mut built = TestImage::kernel(machine, text);
    built.function("function", TEXT, middle - TEXT);
    built.function("function.cold", middle, end - middle);
    let bytes = built.build();
    let Ok(image) = Image::parse(&bytes) else { return };
    // In one piece, and as a function whose cold part is elsewhere.
    let whole = [TEXT..end];
    let parts = [TEXT..TEXT + u64::from(*split / 2), middle..end];
    let ranges: &[_] = if choice & 2 == 0 { &whole } else { &parts };
    let decoded = FunctionText::decode(&image, ranges, &Known::default());
    let addresses: Vec<u64> = decoded.addresses().collect();
    assert_eq!(addresses.len(), decoded.len());
    let mut prober = Prober::new(&image);
    for &address in addresses.iter().take(256) {
        assert!(decoded.is_boundary(address));
        let _ = (prober.check(&decoded, address), prober.check_address(address));
        let _ = decoded.walk_block(address).take(64).count();
        let _ = decoded.prefix_preserves(TEXT, address, 5);
    }
    let _ = (decoded.branches().count(), decoded.has_unknown_targets(), decoded.is_empty());
});

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Encodes an image and prints the census, with the time it took: `census [--exits] VMLINUX [FUNCTION...]`.
//! With `--exits`, it also counts at how many inlined copies a program could run when the copy returns.

use siteseer_encoder::{Options, encode};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let exits = arguments.next_if_eq("--exits").is_some();
    let path = arguments.next().ok_or("usage: census [--exits] VMLINUX [FUNCTION...]")?;
    let functions: Vec<String> = arguments.collect();
    let file = std::fs::File::open(&path)?;
    // SAFETY: the mapping is read-only and private; an image that another process truncates meanwhile ends this
    // example with SIGBUS, which is acceptable in an example.
    let image = unsafe { memmap2::Mmap::map(&file)? };
    let start = Instant::now();
    let wanted = !functions.is_empty();
    let options = Options { functions: wanted.then_some(functions), exits, ..Options::default() };
    let (set, census) = encode(&image, &options)?;
    let taken = start.elapsed();
    print!("{census}");
    if wanted {
        for site in &set.sites {
            let texts: Vec<String> = set.prototypes[site.prototype as usize]
                .iter()
                .map(|argument| match argument {
                    Ok(located) => located.display(set.machine).to_string(),
                    Err(reason) => format!("<{reason}>"),
                })
                .collect();
            println!(
                "{:#x} {} {} in {} ({}) moved {} marks {:#x} {:?}",
                site.address,
                set.functions[site.function as usize].name,
                site.kind,
                set.containers[site.container as usize].name,
                texts.join(", "),
                site.moved,
                site.marks.0,
                site.unprobeable
            );
        }
    }
    println!("{} sites, {:.2} s", set.sites.len(), taken.as_secs_f64());
    Ok(())
}

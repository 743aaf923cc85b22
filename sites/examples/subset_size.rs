// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How large a subset is, and how long it takes to open: `cargo run --release -p siteseer-sites --example subset_size
//! -- KERNELS CHURN FUNCTION,... FILE...`
//!
//! FILEs are site files of real kernels. So many KERNELS are made of them, one after the other as point releases: in
//! each all symbols lie elsewhere, the build id is another, and of so many sites in a hundred (CHURN) the place in the
//! symbol, the line and the symbol's size are others, as after a change of their code.
//!
//! The last lines show what was measured beside the limits for 1,000 kernels and 10 functions. A time is the shortest
//! of twenty.

use siteseer_sites::SiteSet;
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::subset::{Subset, SubsetWriter};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The limits, for 1,000 kernels and 10 functions.
const BYTES: usize = 2_000_000;
const OPEN: Duration = Duration::from_millis(1);

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The next point release.
fn next(set: &mut SiteSet, churn: u64, numbers: &mut Numbers) {
    let mut order: Vec<usize> = (0..set.containers.len()).collect();
    order.sort_by_key(|&nth| set.containers[nth].address);
    let mut moved = vec![0u64; set.containers.len()];
    let mut so_far = 0;
    for nth in order {
        so_far += numbers.below(5) * 16;
        moved[nth] = so_far;
        set.containers[nth].address += so_far;
    }
    set.sections.iter_mut().for_each(|section| section.size += so_far + 4096);
    for site in &mut set.sites {
        site.address += moved[site.container as usize];
        if numbers.below(100) < churn {
            site.address += 1 + numbers.below(8);
            site.source.line += 1;
            set.containers[site.container as usize].size += 16;
        }
    }
}

/// The shortest of several runs.
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed()
    };
    (0..20).map(time).min().unwrap_or_default()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernels, churn, functions, files @ ..] = arguments.as_slice() else {
        return Err("KERNELS CHURN FUNCTION,... FILE...".into());
    };
    let (kernels, churn): (usize, u64) = (kernels.parse()?, churn.parse()?);
    let names: Vec<&str> = functions.split(',').collect();
    let mut real = SubsetWriter::new(&names);
    let mut images = Vec::new();
    for path in files {
        let data = std::fs::read(path)?;
        let file = SiteFile::parse(&data)?;
        real.add(&file, names.iter().copied())?;
        let btf = file.base_btf_bytes().ok_or("no .BTF")?.to_vec();
        images.push((file.build_id().to_vec(), btf));
    }
    let data = real.finish()?;
    let subset = Subset::parse(&data)?;
    println!(
        "{} kernels as they are: {} bytes, {} for each",
        images.len(),
        data.len(),
        data.len() / images.len().max(1)
    );

    let mut sets = Vec::new();
    for (id, btf) in &images {
        let image = subset.find(id)?.ok_or("it was added")?;
        let join = best(|| image.site_set(btf, None).map(|set| set.sites.len()));
        let set = image.site_set(btf, None)?;
        let write = best(|| file::write(&set).map(|file| file.len()));
        println!("  {} sites: joined with .BTF in {join:.2?}, written as a site file in {write:.2?}", set.sites.len());
        sets.push(set);
    }
    let mut numbers = Numbers(1);
    let mut many = SubsetWriter::new(&names);
    for nth in 0..kernels {
        let set = nth % sets.len();
        let set = &mut sets[set];
        next(set, churn, &mut numbers);
        set.build_id = (0..20).map(|_| numbers.below(256) as u8).collect();
        let written = file::write(set)?;
        many.add(&SiteFile::parse(&written)?, names.iter().copied())?;
    }
    let data = many.finish()?;
    let id = sets.first().ok_or("no kernels")?.build_id.clone();
    println!(
        "{kernels} kernels, {} functions, {churn}% of the sites changed from each to the next, {} bytes for each kernel:",
        names.len(),
        data.len() / kernels.max(1),
    );
    let open = best(|| Subset::parse(&data).map(|subset| subset.len()));
    let found = best(|| Subset::parse(&data).and_then(|subset| Ok(subset.find(&id)?.is_some())));
    println!("  {:<44} {:>12}   {:>9}", "", "measured", "limit");
    println!("  {:<44} {:>12}   {BYTES:>9}", "bytes", data.len());
    println!("  {:<44} {:>12}   {:>9}", "opened", format!("{open:.2?}"), format!("{OPEN:.0?}"));
    println!(
        "  {:<44} {:>12}   {:>9}",
        "opened, and the record of a kernel found",
        format!("{found:.2?}"),
        format!("{OPEN:.0?}")
    );
    let over = [("bytes", data.len() > BYTES), ("time", found > OPEN)];
    let over: Vec<&str> = over.into_iter().filter_map(|(what, is_over)| is_over.then_some(what)).collect();
    println!(
        "  {}",
        if over.is_empty() { "within the limits".to_owned() } else { format!("over the limit: {}", over.join(", ")) }
    );
    Ok(())
}

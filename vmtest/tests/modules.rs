// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds modules for the cached kernel (`SITESEER_TEST_KERNEL`, by default deb-7.3-x86_64), good ones and bad, and
//! loads the good ones in it.

use std::{env, path::Path, time::Duration};

use siteseer_kernels::modules::{self, ModuleSource};
use siteseer_vmtest::{Vm, build_guest_for};

#[test]
fn modules_are_built_for_a_kernel_and_load_in_it() {
    let name = env::var("SITESEER_TEST_KERNEL").unwrap_or_else(|_| "deb-7.3-x86_64".to_owned());
    let kernel = match siteseer_kernels::for_test(&name) {
        Ok(kernel) => kernel,
        Err(absent) if absent.may_skip => {
            eprintln!("SKIPPED: {absent}");
            return;
        }
        Err(absent) => panic!("{absent}"),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modules");
    let module = |name: &str, flags: &[&str]| ModuleSource {
        name: name.to_owned(),
        folder: folder.join(name),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    };
    let wanted = [module("pair", &["-DFACTOR=2"]), module("broken", &[]), module("lacking", &[]), module("plain", &[])];
    let results = modules::build(&kernel, &wanted).unwrap();

    let [pair, broken, lacking, plain] = results.as_slice() else { panic!("{results:?}") };
    let error = broken.as_ref().unwrap_err();
    assert!(error.log.contains("this module cannot be built"), "{error}");
    assert!(!error.log.contains("no_such_function"), "each has its own words: {error}");
    let error = lacking.as_ref().unwrap_err();
    assert!(error.log.contains("no_such_function_of_the_kernel"), "{error}");
    let (pair, plain) = (pair.as_ref().unwrap(), plain.as_ref().unwrap());

    // The same again comes from the cache; something else does not.
    let modified = || std::fs::metadata(pair).unwrap().modified().unwrap();
    let built = modified();
    let again = modules::build(&kernel, &wanted[..1]).unwrap();
    assert_eq!((again[0].as_ref().unwrap(), modified()), (pair, built));
    let tripled = modules::build(&kernel, &[module("pair", &["-DFACTOR=3"])]).unwrap().remove(0).unwrap();
    assert_ne!(&tripled, pair);

    let arch = kernel.record.arch;
    let probe = build_guest_for(arch, "siteseer-vmtest", "vmtest-probe", "dev").unwrap();
    let outcome = Vm::new(arch, &kernel.vmlinuz)
        .init(&probe)
        .args(["load", "/data/pair.ko", "given=21", "/data/plain.ko", ""])
        .file(pair, "/data/pair.ko")
        .file(plain, "/data/plain.ko")
        .time_limit(Duration::from_secs(600))
        .run()
        // The `Debug` form holds the whole console.
        .unwrap_or_else(|error| panic!("{error}"));
    let lines = outcome.result_lines();
    assert!(outcome.success(), "{lines:?}");
    assert_eq!(lines, ["pair: doubled 42, BTF, text", "pair: gone", "plain: doubled 1, BTF", "plain: gone"]);
}

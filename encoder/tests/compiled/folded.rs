// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that GCC folded into equal ones.

use crate::image::Build;
use crate::{arguments, encoded, sites_of};
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::site::{Marks, SiteKind};

/// `kept` and `folded` are equal; `alias` is another name of `named` by the source's will.
const EQUAL: &str = r#"
volatile int seq;
static __attribute__((noinline)) int kept(int a, long b) { seq = a; return b + 3; }
static __attribute__((noinline)) int folded(int x, long y) { seq = x; return y + 3; }
__attribute__((noinline)) int named(int a) { seq = a; seq = 4; return 3; }
int alias(int a) __attribute__((alias("named")));
int user(int a) { return kept(a, 3) + folded(a, 4) + kept(a, 5) + folded(a, 6) + named(7) + alias(8); }
"#;

#[test]
fn a_folded_function_has_a_site_and_each_hit_may_be_the_others() {
    let image = Build::gcc(&["-O2"], &[EQUAL]).link();
    let (set, _) = encoded(&image);
    let abi = abi_arguments(set.machine, &[ParamShape::scalar(4, true), ParamShape::scalar(8, true)], None);
    let mut addresses = Vec::new();
    for name in ["kept", "folded"] {
        let [site] = sites_of(&set, name)[..] else { panic!("{name} has one site") };
        assert_eq!((site.kind, site.marks), (SiteKind::Body, Marks::MAY_REPEAT), "{name}");
        assert_eq!(arguments(&set, site), abi, "{name}");
        addresses.push(site.address);
    }
    assert_eq!(addresses[0], addresses[1], "the compiler folds what this is about");
    assert!(sites_of(&set, "named").iter().all(|site| site.marks == Marks::default()), "an alias is a name of the same function");
    assert!(sites_of(&set, "alias").is_empty());
}

#[test]
fn functions_that_are_kept_apart_have_no_such_marks() {
    let (set, _) = encoded(&Build::gcc(&["-O2", "-fno-ipa-icf"], &[EQUAL]).link());
    for name in ["kept", "folded"] {
        assert!(sites_of(&set, name).iter().all(|site| site.marks == Marks::default()), "{name}");
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arguments that GCC says to be in a variable, since it removed the code that read them there.

use crate::image::Build;
use crate::{arguments, encoded, sites_of};
use siteseer_sites::Doubt;
use siteseer_sites::location::{Computed, Located, Location, Op};

/// The body does not look at its parameter, so nothing reads `kept` for it.
const UNREAD: &str = r#"
volatile int seq;
static long kept;
static inline void ignores(long value) { seq = 1; }
void setter(long x) { kept = x; }
void caller(void) { ignores(kept); seq = 2; kept = 7; }
long reader(void) { return kept; }
"#;

#[test]
fn a_variable_that_is_not_read_for_the_call_is_doubtful() {
    for optimised in ["-O1", "-O2", "-Os"] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[UNREAD]).link());
        let sites = sites_of(&set, "ignores");
        let [site] = sites[..] else { panic!("{optimised}: one copy: {sites:?}") };
        let [Ok(Located { at: Location::Computed(Computed { slots }), doubt, .. })] = arguments(&set, site) else {
            panic!("{optimised}: {:?}", arguments(&set, site))
        };
        assert!(matches!(*slots[0], [Op::Address(_), Op::Load(8)]), "{optimised}: {slots:?}");
        assert_eq!(*doubt, Some(Doubt::Stale), "{optimised}: a store of it may come later");
    }
}

#[test]
fn a_variable_that_the_function_never_stores_to_is_certain() {
    let loads = UNREAD.replace("kept = 7;", "");
    for optimised in ["-O1", "-O2", "-Os"] {
        let (set, _) = encoded(&Build::gcc(&[optimised], &[&loads]).link());
        let sites = sites_of(&set, "ignores");
        let [site] = sites[..] else { panic!("{optimised}: one copy: {sites:?}") };
        let [Ok(located)] = arguments(&set, site) else { panic!("{optimised}: {:?}", arguments(&set, site)) };
        assert!(matches!(located.at, Location::Computed(_)), "{optimised}: {located:?}");
        let is_known = cfg!(target_arch = "x86_64");
        assert!(!is_known || located.is_certain(), "{optimised}: nothing stores to it: {located:?}");
    }
}

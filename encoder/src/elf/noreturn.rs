// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that never return, by name: what follows a call to one of them is not reached from it.
//!
//! Compilers mark most of them in DWARF (DW_AT_noreturn), and the caller of the decoder can tell them; these are the
//! ones that compiled code calls on error paths, so that nothing need be told. A name that is missing costs an
//! uncertain entry, nothing worse. The kernel's own list is tools/objtool/noreturns.h.

/// Whether a function of that name never returns.
pub(crate) fn is_noreturn(name: &str) -> bool {
    // Rust's panics, in either mangling: core::panicking::*.
    NORETURN.binary_search(&name).is_ok() || name.starts_with("_R") && name.contains("4core9panicking")
}

const NORETURN: &[&str] = &[
    "__fortify_panic",
    "__kunit_abort",
    "__module_put_and_kthread_exit",
    "__stack_chk_fail",
    "__tdx_hypercall_failed",
    "__ubsan_handle_builtin_unreachable",
    "arch_cpu_idle_dead",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "fortify_panic",
    "hlt_play_dead",
    "kthread_complete_and_exit",
    "kthread_exit",
    "machine_real_restart",
    "make_task_dead",
    "mwait_play_dead",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rewind_stack_and_make_dead",
    "rust_helper_BUG",
    "sev_es_terminate",
    "skb_panic",
    "stop_this_cpu",
    "usercopy_abort",
    "vpanic",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NORETURN.is_sorted());
        assert!(is_noreturn("panic"));
        assert!(is_noreturn("_RNvNtCs2lKf6AS60Zg_4core9panicking9panic_fmt"));
        assert!(!is_noreturn("pan"));
        assert!(!is_noreturn("kfree"));
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is known about BPF helpers: names, how many arguments they take, and what happens to a call in a trampoline.
//!
//! A program of ours is written as if for fentry (program type TRACING), and mostly runs in a kprobe program. Most
//! helpers do not care. Those that do fall into classes:
//! * helpers that take the context in r1 and exist for kprobe programs: they get the real context;
//! * helpers that look into fentry's context (`bpf_get_func_arg` and the like): emulated from the array;
//! * helpers that exist for TRACING programs only: where a kprobe runs the program it is refused by the helper's name,
//!   because no rewriting makes them work;
//! * all others pass as they are, and the kernel's verifier has the last word: which helper a program type may call
//!   changes from version to version.
//!
//! Sources: `tracing_prog_func_proto()` and `kprobe_prog_func_proto()` in kernel/trace/bpf_trace.c; names, numbers and
//! argument counts from include/uapi/linux/bpf.h. The list of helpers is closed since 6.2: what came later are kfuncs.

/// `bpf_map_lookup_elem`
pub const MAP_LOOKUP_ELEM: u32 = 1;
/// `bpf_map_update_elem`
pub const MAP_UPDATE_ELEM: u32 = 2;
/// `bpf_map_delete_elem`
pub const MAP_DELETE_ELEM: u32 = 3;
/// `bpf_perf_event_output`
pub const PERF_EVENT_OUTPUT: u32 = 25;
/// `bpf_probe_read_kernel`
pub const PROBE_READ_KERNEL: u32 = 113;
/// `bpf_get_func_ip`
pub const GET_FUNC_IP: u32 = 173;
/// `bpf_get_attach_cookie`
pub const GET_ATTACH_COOKIE: u32 = 174;
/// `bpf_get_func_arg`
pub const GET_FUNC_ARG: u32 = 183;
/// `bpf_get_func_ret`
pub const GET_FUNC_RET: u32 = 184;

/// `siteseer_arg(ctx, n, *value)` of siteseer.bpf.h: a number that no kernel has a helper for.
pub const SITESEER_ARG: u32 = 0x5173_e001;
/// `siteseer_arg_slot(ctx, n, slot, *value)` of siteseer.bpf.h.
pub const SITESEER_ARG_SLOT: u32 = 0x5173_e002;
/// `siteseer_site(ctx)` of siteseer.bpf.h.
pub const SITESEER_SITE: u32 = 0x5173_e003;

/// What happens to a helper call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Left as it is; the context has no business in its arguments.
    Plain,
    /// Takes the context in r1: gets the real one.
    Context,
    /// `bpf_get_attach_cookie`: becomes a load of the cookie.
    Cookie,
    /// `bpf_get_func_ip`: at an inline site the probe's address, else as [`Treatment::Context`].
    FuncIp,
    /// `bpf_get_func_arg`: emulated.
    FuncArg,
    /// `bpf_get_func_arg_cnt`: emulated.
    FuncArgCount,
    /// `bpf_get_func_ret`: emulated; in an entry program -EOPNOTSUPP, as in a fentry program.
    FuncRet,
    /// `siteseer_arg` and `siteseer_arg_slot`.
    Argument,
    /// `siteseer_site`.
    Site,
    /// `bpf_tail_call`: only under real fentry and fexit, elsewhere the program called would see another context.
    TailCall,
    /// Only programs of type TRACING may call it.
    Tracing,
    /// It may sleep: only programs of type TRACING that are loaded as sleepable may call it.
    Sleeps,
    /// Refused by name wherever the program runs, with the reason.
    Refused(&'static str),
}

/// Why a program is not run by a kprobe if it calls a [`Treatment::Tracing`] helper.
pub const ONLY_TRACING: &str = "only fentry, fexit and the like may call it, and this site requires a kprobe";
/// Why a program is not run by a kprobe if it calls a [`Treatment::Sleeps`] helper.
pub const SLEEPS: &str = "it may sleep, and a kprobe cannot";
/// Why a program is not run by a tracing-multi link if it asks for a stack trace.
pub const DEEPER_STACK_TRACE: &str =
    "the trampoline of a tracing-multi program would be a frame more in it than under fentry";
/// Why a program is not run by a kprobe session if it asks for a stack trace: what `return_to_handler`
/// (arch/x86/kernel/ftrace_64.S) puts into the registers of a session's return changed from version to version, and
/// only late was it what an unwinder needs.
pub const NO_STACK_TRACE: &str =
    "the registers that a kprobe session has at the return do not give a stack trace on every kernel";

/// What happens to a call of this helper.
pub fn treatment(id: u32) -> Treatment {
    const ITERATES: &str = "only iterators may call it";
    const OVERRIDE: &str = "at an inline site it would return from the wrong function";
    match id {
        PERF_EVENT_OUTPUT | 27 | 67 => Treatment::Context,
        GET_ATTACH_COOKIE => Treatment::Cookie,
        GET_FUNC_IP => Treatment::FuncIp,
        GET_FUNC_ARG => Treatment::FuncArg,
        GET_FUNC_RET => Treatment::FuncRet,
        185 => Treatment::FuncArgCount,
        SITESEER_ARG | SITESEER_ARG_SLOT => Treatment::Argument,
        SITESEER_SITE => Treatment::Site,
        12 => Treatment::TailCall,
        58 => Treatment::Refused(OVERRIDE),
        // skb_output, xdp_output, skc_to_*, sk_storage_*, sock_from_file, get_socket_cookie, xdp_get_buff_len, d_path.
        46 | 107 | 108 | 111 | 121 | 136..=140 | 147 | 162 | 178 | 188 | 196 => Treatment::Tracing,
        // seq_printf, seq_write, seq_printf_btf.
        126 | 127 | 150 => Treatment::Refused(ITERATES),
        // copy_from_user, copy_from_user_task.
        148 | 191 => Treatment::Sleeps,
        _ => Treatment::Plain,
    }
}

/// Whether the helper calls a function of the program, which may look at memory that it is given.
pub fn runs_callback(id: u32) -> bool {
    // for_each_map_elem, timer_set_callback, find_vma, loop, user_ringbuf_drain; and what is not known.
    matches!(id, 164 | 170 | 180 | 181 | 209) || name(id).is_none()
}

/// Whether the helper takes a pointer that the verifier has to trust, so that one made by `bpf_rdonly_cast` is refused.
pub fn wants_trusted(id: u32) -> bool {
    // get_task_stack, inode_storage_*, task_storage_*, task_pt_regs, find_vma, cgrp_storage_*, and what may only be
    // called with pointers that fentry gives.
    matches!(id, 141 | 145 | 146 | 156 | 157 | 175 | 180 | 210 | 211) || treatment(id) == Treatment::Tracing
}

/// Whether the helper takes what it is given as a number, also a pointer.
pub fn takes_numbers(id: u32) -> bool {
    // probe_read, probe_read_str, and their four newer forms.
    matches!(id, 4 | 45 | 112..=115)
}

/// The name of a helper.
pub fn name(id: u32) -> Option<&'static str> {
    match id {
        SITESEER_ARG => Some("siteseer_arg"),
        SITESEER_ARG_SLOT => Some("siteseer_arg_slot"),
        SITESEER_SITE => Some("siteseer_site"),
        _ => row(id).map(|(name, _)| name),
    }
}

/// How many argument registers a helper reads; all five for one that is not known.
pub fn arguments(id: u32) -> u8 {
    match id {
        SITESEER_ARG => 3,
        SITESEER_ARG_SLOT => 4,
        SITESEER_SITE => 1,
        _ => row(id).map_or(5, |(_, arguments)| arguments),
    }
}

fn row(id: u32) -> Option<(&'static str, u8)> {
    HELPERS.get(usize::try_from(id.checked_sub(1)?).ok()?).copied()
}

/// By number from 1: name and number of arguments (five for a variadic one).
#[rustfmt::skip] // One helper per line would be four pages of nothing.
const HELPERS: [(&str, u8); 211] = [
    ("bpf_map_lookup_elem", 2), ("bpf_map_update_elem", 4), ("bpf_map_delete_elem", 2), ("bpf_probe_read", 3),
    ("bpf_ktime_get_ns", 0), ("bpf_trace_printk", 5), ("bpf_get_prandom_u32", 0), ("bpf_get_smp_processor_id", 0),
    ("bpf_skb_store_bytes", 5), ("bpf_l3_csum_replace", 5), ("bpf_l4_csum_replace", 5), ("bpf_tail_call", 3),
    ("bpf_clone_redirect", 3), ("bpf_get_current_pid_tgid", 0), ("bpf_get_current_uid_gid", 0),
    ("bpf_get_current_comm", 2), ("bpf_get_cgroup_classid", 1), ("bpf_skb_vlan_push", 3), ("bpf_skb_vlan_pop", 1),
    ("bpf_skb_get_tunnel_key", 4), ("bpf_skb_set_tunnel_key", 4), ("bpf_perf_event_read", 2), ("bpf_redirect", 2),
    ("bpf_get_route_realm", 1), ("bpf_perf_event_output", 5), ("bpf_skb_load_bytes", 4), ("bpf_get_stackid", 3),
    ("bpf_csum_diff", 5), ("bpf_skb_get_tunnel_opt", 3), ("bpf_skb_set_tunnel_opt", 3), ("bpf_skb_change_proto", 3),
    ("bpf_skb_change_type", 2), ("bpf_skb_under_cgroup", 3), ("bpf_get_hash_recalc", 1),
    ("bpf_get_current_task", 0), ("bpf_probe_write_user", 3), ("bpf_current_task_under_cgroup", 2),
    ("bpf_skb_change_tail", 3), ("bpf_skb_pull_data", 2), ("bpf_csum_update", 2), ("bpf_set_hash_invalid", 1),
    ("bpf_get_numa_node_id", 0), ("bpf_skb_change_head", 3), ("bpf_xdp_adjust_head", 2), ("bpf_probe_read_str", 3),
    ("bpf_get_socket_cookie", 1), ("bpf_get_socket_uid", 1), ("bpf_set_hash", 2), ("bpf_setsockopt", 5),
    ("bpf_skb_adjust_room", 4), ("bpf_redirect_map", 3), ("bpf_sk_redirect_map", 4), ("bpf_sock_map_update", 4),
    ("bpf_xdp_adjust_meta", 2), ("bpf_perf_event_read_value", 4), ("bpf_perf_prog_read_value", 3),
    ("bpf_getsockopt", 5), ("bpf_override_return", 2), ("bpf_sock_ops_cb_flags_set", 2),
    ("bpf_msg_redirect_map", 4), ("bpf_msg_apply_bytes", 2), ("bpf_msg_cork_bytes", 2), ("bpf_msg_pull_data", 4),
    ("bpf_bind", 3), ("bpf_xdp_adjust_tail", 2), ("bpf_skb_get_xfrm_state", 5), ("bpf_get_stack", 4),
    ("bpf_skb_load_bytes_relative", 5), ("bpf_fib_lookup", 4), ("bpf_sock_hash_update", 4),
    ("bpf_msg_redirect_hash", 4), ("bpf_sk_redirect_hash", 4), ("bpf_lwt_push_encap", 4),
    ("bpf_lwt_seg6_store_bytes", 4), ("bpf_lwt_seg6_adjust_srh", 3), ("bpf_lwt_seg6_action", 4),
    ("bpf_rc_repeat", 1), ("bpf_rc_keydown", 4), ("bpf_skb_cgroup_id", 1), ("bpf_get_current_cgroup_id", 0),
    ("bpf_get_local_storage", 2), ("bpf_sk_select_reuseport", 4), ("bpf_skb_ancestor_cgroup_id", 2),
    ("bpf_sk_lookup_tcp", 5), ("bpf_sk_lookup_udp", 5), ("bpf_sk_release", 1), ("bpf_map_push_elem", 3),
    ("bpf_map_pop_elem", 2), ("bpf_map_peek_elem", 2), ("bpf_msg_push_data", 4), ("bpf_msg_pop_data", 4),
    ("bpf_rc_pointer_rel", 3), ("bpf_spin_lock", 1), ("bpf_spin_unlock", 1), ("bpf_sk_fullsock", 1),
    ("bpf_tcp_sock", 1), ("bpf_skb_ecn_set_ce", 1), ("bpf_get_listener_sock", 1), ("bpf_skc_lookup_tcp", 5),
    ("bpf_tcp_check_syncookie", 5), ("bpf_sysctl_get_name", 4), ("bpf_sysctl_get_current_value", 3),
    ("bpf_sysctl_get_new_value", 3), ("bpf_sysctl_set_new_value", 3), ("bpf_strtol", 4), ("bpf_strtoul", 4),
    ("bpf_sk_storage_get", 4), ("bpf_sk_storage_delete", 2), ("bpf_send_signal", 1), ("bpf_tcp_gen_syncookie", 5),
    ("bpf_skb_output", 5), ("bpf_probe_read_user", 3), ("bpf_probe_read_kernel", 3), ("bpf_probe_read_user_str", 3),
    ("bpf_probe_read_kernel_str", 3), ("bpf_tcp_send_ack", 2), ("bpf_send_signal_thread", 1), ("bpf_jiffies64", 0),
    ("bpf_read_branch_records", 4), ("bpf_get_ns_current_pid_tgid", 4), ("bpf_xdp_output", 5),
    ("bpf_get_netns_cookie", 1), ("bpf_get_current_ancestor_cgroup_id", 1), ("bpf_sk_assign", 3),
    ("bpf_ktime_get_boot_ns", 0), ("bpf_seq_printf", 5), ("bpf_seq_write", 3), ("bpf_sk_cgroup_id", 1),
    ("bpf_sk_ancestor_cgroup_id", 2), ("bpf_ringbuf_output", 4), ("bpf_ringbuf_reserve", 3),
    ("bpf_ringbuf_submit", 2), ("bpf_ringbuf_discard", 2), ("bpf_ringbuf_query", 2), ("bpf_csum_level", 2),
    ("bpf_skc_to_tcp6_sock", 1), ("bpf_skc_to_tcp_sock", 1), ("bpf_skc_to_tcp_timewait_sock", 1),
    ("bpf_skc_to_tcp_request_sock", 1), ("bpf_skc_to_udp6_sock", 1), ("bpf_get_task_stack", 4),
    ("bpf_load_hdr_opt", 4), ("bpf_store_hdr_opt", 4), ("bpf_reserve_hdr_opt", 3), ("bpf_inode_storage_get", 4),
    ("bpf_inode_storage_delete", 2), ("bpf_d_path", 3), ("bpf_copy_from_user", 3), ("bpf_snprintf_btf", 5),
    ("bpf_seq_printf_btf", 4), ("bpf_skb_cgroup_classid", 1), ("bpf_redirect_neigh", 4), ("bpf_per_cpu_ptr", 2),
    ("bpf_this_cpu_ptr", 1), ("bpf_redirect_peer", 2), ("bpf_task_storage_get", 4), ("bpf_task_storage_delete", 2),
    ("bpf_get_current_task_btf", 0), ("bpf_bprm_opts_set", 2), ("bpf_ktime_get_coarse_ns", 0),
    ("bpf_ima_inode_hash", 3), ("bpf_sock_from_file", 1), ("bpf_check_mtu", 5), ("bpf_for_each_map_elem", 4),
    ("bpf_snprintf", 5), ("bpf_sys_bpf", 3), ("bpf_btf_find_by_name_kind", 4), ("bpf_sys_close", 1),
    ("bpf_timer_init", 3), ("bpf_timer_set_callback", 2), ("bpf_timer_start", 3), ("bpf_timer_cancel", 1),
    ("bpf_get_func_ip", 1), ("bpf_get_attach_cookie", 1), ("bpf_task_pt_regs", 1), ("bpf_get_branch_snapshot", 3),
    ("bpf_trace_vprintk", 4), ("bpf_skc_to_unix_sock", 1), ("bpf_kallsyms_lookup_name", 4), ("bpf_find_vma", 5),
    ("bpf_loop", 4), ("bpf_strncmp", 3), ("bpf_get_func_arg", 3), ("bpf_get_func_ret", 2),
    ("bpf_get_func_arg_cnt", 1), ("bpf_get_retval", 0), ("bpf_set_retval", 1), ("bpf_xdp_get_buff_len", 1),
    ("bpf_xdp_load_bytes", 4), ("bpf_xdp_store_bytes", 4), ("bpf_copy_from_user_task", 5),
    ("bpf_skb_set_tstamp", 3), ("bpf_ima_file_hash", 3), ("bpf_kptr_xchg", 2), ("bpf_map_lookup_percpu_elem", 3),
    ("bpf_skc_to_mptcp_sock", 1), ("bpf_dynptr_from_mem", 4), ("bpf_ringbuf_reserve_dynptr", 4),
    ("bpf_ringbuf_submit_dynptr", 2), ("bpf_ringbuf_discard_dynptr", 2), ("bpf_dynptr_read", 5),
    ("bpf_dynptr_write", 5), ("bpf_dynptr_data", 3), ("bpf_tcp_raw_gen_syncookie_ipv4", 3),
    ("bpf_tcp_raw_gen_syncookie_ipv6", 3), ("bpf_tcp_raw_check_syncookie_ipv4", 2),
    ("bpf_tcp_raw_check_syncookie_ipv6", 2), ("bpf_ktime_get_tai_ns", 0), ("bpf_user_ringbuf_drain", 4),
    ("bpf_cgrp_storage_get", 4), ("bpf_cgrp_storage_delete", 2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for (id, expected) in [
            (1, "bpf_map_lookup_elem"),
            (12, "bpf_tail_call"),
            (25, "bpf_perf_event_output"),
            (58, "bpf_override_return"),
            (113, "bpf_probe_read_kernel"),
            (148, "bpf_copy_from_user"),
            (173, "bpf_get_func_ip"),
            (174, "bpf_get_attach_cookie"),
            (183, "bpf_get_func_arg"),
            (188, "bpf_xdp_get_buff_len"),
            (196, "bpf_skc_to_mptcp_sock"),
            (211, "bpf_cgrp_storage_delete"),
        ] {
            assert_eq!(name(id), Some(expected));
        }
        assert_eq!(name(0), None);
        assert_eq!(name(212), None);
        assert_eq!(name(u32::MAX), None);
    }

    #[test]
    fn arities() {
        assert_eq!(arguments(14), 0);
        assert_eq!(arguments(113), 3);
        assert_eq!(arguments(25), 5);
        assert_eq!(arguments(6), 5);
        assert_eq!(arguments(9999), 5);
    }
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * For every way to a link: programs at the entry and at the return of a function with a body and inlined copies.
 *
 * do_getpgid() is called by getpgid(2) and inlined into getpgrp(2).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Only this process. */
const volatile __u32 only_tgid = 0;

/* Calls that each program saw, and the sums of the cookies of their links. */
__u64 calls[16];
__u64 cookies[16];

static __always_inline int count(void *ctx, int which)
{
	if (bpf_get_current_pid_tgid() >> 32 == only_tgid) {
		__sync_fetch_and_add(&calls[which], 1);
		__sync_fetch_and_add(&cookies[which], bpf_get_attach_cookie(ctx));
	}
	return 0;
}

SEC("fentry/do_getpgid") int BPF_PROG(enters, int pid)
{
	return count(ctx, 0);
}

SEC("fexit/do_getpgid") int BPF_PROG(leaves, int pid, int result)
{
	return count(ctx, 1);
}

/* Only siteseer can load what it asks for. */
SEC("fentry/do_getpgid") int BPF_PROG(asks, int pid)
{
	const struct siteseer_site *site = siteseer_site(ctx);

	return site ? count(ctx, 2) : 0;
}

SEC("kprobe_maybe_inline/do_getpgid") int BPF_PROG(maybe, int pid)
{
	return count(ctx, 3);
}

SEC("fentry/there_is_no_such_function") int BPF_PROG(nowhere)
{
	return count(ctx, 4);
}

/* Of a module that is loaded and has no site data (tests/modules/siteseer_life). */
SEC("fentry/life_body") int BPF_PROG(in_module)
{
	return count(ctx, 5);
}

/* A function that the verifier checks by itself, and that an extension can replace. */
__noinline int add_global(int which)
{
	if (which >= 0 && which < 16 && bpf_get_current_pid_tgid() >> 32 == only_tgid)
		__sync_fetch_and_add(&calls[which], 1);
	return 0;
}

SEC("fentry/do_getpgid") int BPF_PROG(by_global, int pid)
{
	return add_global(6);
}

/* The kernel does not let an extension replace a function of a program at fentry or fexit. */
SEC("raw_tp") int extended(void *ctx)
{
	return add_global(11);
}

/* The kernel calls it for a test run; programs there may sleep. */
SEC("fentry.s/bpf_fentry_test1") int BPF_PROG(sleeps, int a)
{
	return count(ctx, 7);
}

/* Rather not at all than without the inlined copies, which have no return. */
SITESEER_POLICY(stated, complete);
SEC("fexit/do_getpgid") int BPF_PROG(stated, int pid, int result)
{
	return count(ctx, 8);
}

/* Inlined twice in a function of the module. */
SEC("kprobe_maybe_inline/life_copied") int BPF_PROG(in_module_copied, __u64 first)
{
	return count(ctx, 9);
}

SEC("fentry/there_is_no_such_module:do_getpgid") int BPF_PROG(in_no_module, int pid)
{
	return count(ctx, 10);
}

/* The verifier rejects it: a number is not a pointer. */
SEC("fentry/do_getpgid") int rejected(__u64 *ctx)
{
	return *(volatile int *)ctx[0];
}

/* So it does what lies past the arguments. */
SEC("fentry/do_getpgid") int reads_past_the_end(__u64 *ctx)
{
	return ctx[14];
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_implicit_inlining:mix")
int BPF_PROG(entry, long a, int b)
{
	return SUITE_SEND(a, b);
}

SEC("kprobe_maybe_inline/siteseer_implicit_inlining:mix")
int BPF_PROG(maybe, long a, int b)
{
	return SUITE_SEND(a, b);
}

SEC("fexit/siteseer_implicit_inlining:mix")
int BPF_PROG(leave, long a, int b, long ret)
{
	return SUITE_SEND(a, b, ret);
}

SEC("fentry/siteseer_implicit_inlining:audit")
int BPF_PROG(audited, long a)
{
	return SUITE_SEND(a);
}

SEC("kprobe_maybe_inline/siteseer_implicit_inlining:version")
int BPF_PROG(asked, int kind)
{
	return SUITE_SEND(kind);
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_other_prototypes:settle")
int BPF_PROG(unstated, long amount, int rate)
{
	return SUITE_SEND(amount, rate);
}

SITESEER_PROTO(by_rate, long, long amount, int rate);
SEC("fentry/siteseer_other_prototypes:settle")
int BPF_PROG(by_rate, long amount, int rate)
{
	return SUITE_SEND(amount, rate);
}

SITESEER_PROTO(maybe_by_rate, long, long amount, int rate);
SEC("kprobe_maybe_inline/siteseer_other_prototypes:settle")
int BPF_PROG(maybe_by_rate, long amount, int rate)
{
	return SUITE_SEND(amount, rate);
}

SITESEER_PROTO(by_day, int, unsigned char kind, short day, long amount);
SEC("fentry/siteseer_other_prototypes:settle")
int BPF_PROG(by_day, unsigned char kind, short day, long amount)
{
	return SUITE_SEND(kind, day, amount);
}

SITESEER_PROTO(maybe_by_day, int, unsigned char kind, short day, long amount);
SEC("kprobe_maybe_inline/siteseer_other_prototypes:settle")
int BPF_PROG(maybe_by_day, unsigned char kind, short day, long amount)
{
	return SUITE_SEND(kind, day, amount);
}

SITESEER_PROTO(result, long, long amount, int rate);
SEC("fexit/siteseer_other_prototypes:settle")
int BPF_PROG(result, long amount, int rate, long ret)
{
	return SUITE_SEND(ret);
}

SITESEER_PROTO(by_name, long, const char *name);
SEC("kprobe_maybe_inline/siteseer_other_prototypes:settle")
int BPF_PROG(by_name, const char *name)
{
	return SUITE_SEND((__u64)name);
}

SEC("fentry/siteseer_other_prototypes:settle")
int BPF_PROG(in_file, unsigned char kind, short day, long amount)
{
	return SUITE_SEND(kind, day, amount);
}

SEC("kprobe_maybe_inline/siteseer_other_prototypes:settle")
int any(void *ctx)
{
	return SUITE_SEND(5);
}

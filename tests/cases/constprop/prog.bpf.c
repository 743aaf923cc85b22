// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_constprop:freight")
int BPF_PROG(entry, int zone, long weight)
{
	return SUITE_SEND(zone, weight);
}

SEC("kprobe_maybe_inline/siteseer_constprop:freight")
int BPF_PROG(maybe, int zone, long weight)
{
	return SUITE_SEND(zone, weight);
}

SEC("fexit/siteseer_constprop:freight")
int BPF_PROG(leave, int zone, long weight, long ret)
{
	return SUITE_SEND(zone, weight, ret);
}

SEC("fexit/siteseer_constprop:freight")
int BPF_PROG(result, int zone, long weight, long ret)
{
	return SUITE_SEND(ret);
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry/siteseer_thinlto_promotion:tariff")
int BPF_PROG(entry, int zone, long weight)
{
	return SUITE_SEND(zone, weight);
}

SEC("kprobe_maybe_inline/siteseer_thinlto_promotion:tariff")
int BPF_PROG(maybe, int zone, long weight)
{
	return SUITE_SEND(zone, weight);
}

SEC("fentry/siteseer_thinlto_promotion:quote")
int BPF_PROG(quoted, int zone, long weight)
{
	return SUITE_SEND(zone, weight);
}

SEC("fexit/siteseer_thinlto_promotion:tariff")
int BPF_PROG(leave, int zone, long weight, long ret)
{
	return SUITE_SEND(zone, weight, ret);
}

SEC("fexit/siteseer_thinlto_promotion:tariff")
int BPF_PROG(result, int zone, long weight, long ret)
{
	return SUITE_SEND(ret);
}

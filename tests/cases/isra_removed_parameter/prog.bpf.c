// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_isra_removed_parameter:weigh")
int BPF_PROG(entry, short kind, const void *colour, long pieces)
{
	return SUITE_SEND(kind, pieces);
}

SEC("kprobe_maybe_inline/siteseer_isra_removed_parameter:weigh")
int BPF_PROG(maybe, short kind, const void *colour, long pieces)
{
	return SUITE_SEND(kind, pieces);
}

SEC("fentry/siteseer_isra_removed_parameter:weigh")
int BPF_PROG(all, short kind, const void *colour, long pieces)
{
	return SUITE_SEND(kind, (__u64)colour, pieces);
}

SEC("kprobe_maybe_inline/siteseer_isra_removed_parameter:weigh")
int BPF_PROG(asks, short kind, const void *colour, long pieces)
{
	struct suite_record *record = SUITE_BEGIN();
	__u64 value;

	if (record) {
		suite_put(record, 0, kind);
		if (siteseer_arg(ctx, 1, &value))
			suite_absent(record, 1);
		else
			suite_put(record, 1, value);
		suite_put(record, 2, pieces);
		suite_submit(record);
	}
	return 0;
}

SEC("fexit/siteseer_isra_removed_parameter:weigh")
int BPF_PROG(result, short kind, const void *colour, long pieces, long ret)
{
	return SUITE_SEND(ret);
}

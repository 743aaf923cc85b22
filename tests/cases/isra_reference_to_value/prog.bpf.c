// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_isra_reference_to_value:length")
int BPF_PROG(entry, const int *scale, const void *p, long offset)
{
	return SUITE_SEND(offset);
}

SEC("kprobe_maybe_inline/siteseer_isra_reference_to_value:length")
int BPF_PROG(maybe, const int *scale, const void *p, long offset)
{
	return SUITE_SEND(offset);
}

SEC("fentry/siteseer_isra_reference_to_value:length")
int BPF_PROG(points, const int *scale, const void *p, long offset)
{
	return SUITE_SEND((__u64)p, offset);
}

SEC("kprobe_maybe_inline/siteseer_isra_reference_to_value:length")
int BPF_PROG(scales, const int *scale, const void *p, long offset)
{
	return SUITE_SEND((__u64)scale, offset);
}

SEC("kprobe_maybe_inline/siteseer_isra_reference_to_value:length")
int BPF_PROG(asks, const int *scale, const void *p, long offset)
{
	struct suite_record *record = SUITE_BEGIN();
	__u64 value;

	if (record) {
		if (siteseer_arg(ctx, 0, &value))
			suite_absent(record, 0);
		else
			suite_put(record, 0, value);
		if (siteseer_arg(ctx, 1, &value))
			suite_absent(record, 1);
		else
			suite_put(record, 1, value);
		suite_put(record, 2, offset);
		suite_submit(record);
	}
	return 0;
}

SEC("fexit/siteseer_isra_reference_to_value:length")
int BPF_PROG(result, const int *scale, const void *p, long offset, long ret)
{
	return SUITE_SEND(ret);
}

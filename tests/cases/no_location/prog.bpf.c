// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"
#include "siteseer.bpf.h"

SEC("fentry/siteseer_no_location:note")
int BPF_PROG(note, long key, long detail)
{
	return SUITE_SEND(key, detail);
}

SEC("kprobe_maybe_inline/siteseer_no_location:note")
int BPF_PROG(note_maybe, long key, long detail)
{
	return SUITE_SEND(key, detail);
}

SEC("fentry/siteseer_no_location:note")
int BPF_PROG(key_only, long key)
{
	return SUITE_SEND(key);
}

/* Asks for the detail where there is one. */
SEC("fentry/siteseer_no_location:note")
int BPF_PROG(fallible, long key)
{
	struct suite_record *record = SUITE_BEGIN();
	__u64 detail;

	if (!record)
		return 0;
	suite_put(record, 0, key);
	if (siteseer_arg(ctx, 1, &detail))
		suite_absent(record, 1);
	else
		suite_put(record, 1, detail);
	suite_submit(record);
	return 0;
}

/* What the call says: -ENOENT where this copy lacks the argument, and for one that the function does not have. */
SEC("kprobe_maybe_inline/siteseer_no_location:note")
int answers(void *ctx)
{
	__u64 value = 7777;
	long second = siteseer_arg(ctx, 1, &value);
	long third = siteseer_arg(ctx, 2, &value);

	return SUITE_SEND(second, third, value);
}

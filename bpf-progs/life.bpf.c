// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Programs on the functions of a module that comes and goes (tests/modules/siteseer_life).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "siteseer.bpf.h"
#include "truth.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct life_thing {
	int number;
	struct life_thing *next;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} truth SEC(".maps");

/* Writes down the first of `count` values. */
static __always_inline int record(void *ctx, const __u64 *values, int count)
{
	const struct siteseer_site *site;
	struct truth_record *record;

	record = bpf_ringbuf_reserve(&truth, sizeof(*record), 0);
	if (!record)
		return 0;
	site = siteseer_site(ctx);
	record->program = 0;
	record->kind = site ? site->kind : ~0u;
	record->site = site ? site->id : ~0u;
	record->tgid = bpf_get_current_pid_tgid() >> 32;
	record->cookie = bpf_get_attach_cookie(ctx);
	record->address = site ? site->address : 0;
	record->present = (1ull << count) - 1;
#pragma unroll
	for (int i = 0; i < TRUTH_VALUES; i++)
		record->values[i] = i < count ? values[i] : 0;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

#define RECORD(ctx, ...)                                                             \
	({                                                                           \
		__u64 values[] = { __VA_ARGS__ };                                    \
		record(ctx, values, sizeof(values) / sizeof(values[0]));             \
	})

SEC("kprobe_maybe_inline/siteseer_life:life_copied")
int BPF_PROG(copied, __u64 first, __u32 second)
{
	return RECORD(ctx, first, second);
}

SEC("fentry/siteseer_life:life_body")
int BPF_PROG(entered, struct life_thing *thing, __u64 number)
{
	return RECORD(ctx, thing->number, thing->next->number, number);
}

SEC("fexit/siteseer_life:life_body")
int BPF_PROG(returned, struct life_thing *thing, __u64 number, int result)
{
	return RECORD(ctx, number, (__s64)result);
}

SEC("kprobe_maybe_inline/siteseer_life:life_followed")
int BPF_PROG(followed, struct life_thing *thing)
{
	return RECORD(ctx, thing->number);
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * What helpers that take the context answer: the same program twice, once for siteseer and once for plain libbpf, which is to
 * have it for fentry on the function after the slash although siteseer has taken that section's name over.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FRAMES 16
#define BPF_MAP_TYPE_STACK_TRACE 7

enum {
	OURS,
	PLAIN,
	ANSWERS,
};

struct answer {
	__u64 calls;
	__u64 function;
	__u64 cookie;
	__u64 arguments;
	__s64 first;
	__s64 stack_id;
	__s64 bytes;
	__u64 frames[FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ANSWERS);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

/* A stack is refused if its hash has the bucket of another's: there are many more buckets than stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, 4);
	__uint(value_size, FRAMES * 8);
} stacks SEC(".maps");

const volatile __u32 only_tgid = 0;

static __always_inline int ask(void *ctx, __u32 who)
{
	struct answer *answer = bpf_map_lookup_elem(&answers, &who);
	__u64 first = 0;

	if (!answer || bpf_get_current_pid_tgid() >> 32 != only_tgid)
		return 0;
	answer->calls += 1;
	answer->function = bpf_get_func_ip(ctx);
	answer->cookie = bpf_get_attach_cookie(ctx);
	answer->arguments = bpf_get_func_arg_cnt(ctx);
	bpf_get_func_arg(ctx, 0, &first);
	answer->first = (__s32)first;
	answer->stack_id = bpf_get_stackid(ctx, &stacks, 0);
	answer->bytes = bpf_get_stack(ctx, answer->frames, sizeof(answer->frames), 0);
	return 0;
}

SEC("fentry/do_getpgid")
int ours(void *ctx)
{
	return ask(ctx, OURS);
}

SEC("plain/do_getpgid")
int plain(void *ctx)
{
	return ask(ctx, PLAIN);
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

/* The module's own types: libbpf finds them in its BTF. */
struct siteseer_leaf {
	long weight;
	int colour;
} __attribute__((preserve_access_index));

struct siteseer_branch {
	long length;
	struct siteseer_leaf *leaf;
} __attribute__((preserve_access_index));

/* A body alone: fentry gives the pointer its type. */
SEC("fentry/siteseer_module_types:grow")
int BPF_PROG(grow, struct siteseer_branch *branch, int by)
{
	return SUITE_SEND(branch->length, branch->leaf->weight, branch->leaf->colour, by);
}

SEC("kprobe_maybe_inline/siteseer_module_types:grow")
int BPF_PROG(grow_read, struct siteseer_branch *branch, int by)
{
	return SUITE_SEND(BPF_CORE_READ(branch, length), BPF_CORE_READ(branch, leaf, weight),
			  BPF_CORE_READ(branch, leaf, colour), by);
}

/* At an inlined copy only bpf_rdonly_cast could, which knows the kernel's types alone. */
SEC("fentry/siteseer_module_types:shrink")
int BPF_PROG(shrink, struct siteseer_branch *branch, int by)
{
	return SUITE_SEND(branch->length, branch->leaf->weight, branch->leaf->colour, by);
}

SEC("fentry/siteseer_module_types:shrink")
int BPF_PROG(shrink_read, struct siteseer_branch *branch, int by)
{
	return SUITE_SEND(BPF_CORE_READ(branch, length), BPF_CORE_READ(branch, leaf, weight),
			  BPF_CORE_READ(branch, leaf, colour), by);
}

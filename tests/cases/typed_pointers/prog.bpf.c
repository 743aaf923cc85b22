// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

/* As in vmlinux.h. */
struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} __attribute__((preserve_access_index));

SEC("fentry/siteseer_typed_pointers:visit")
int BPF_PROG(visit, struct rb_node *node, int key)
{
	/* Followed directly, three steps. */
	return SUITE_SEND(node->__rb_parent_color, node->rb_left->__rb_parent_color,
			  node->rb_left->rb_left->__rb_parent_color, key);
}

SEC("kprobe_maybe_inline/siteseer_typed_pointers:visit")
int BPF_PROG(visit_maybe, struct rb_node *node, int key)
{
	/* Followed directly, three steps. */
	return SUITE_SEND(node->__rb_parent_color, node->rb_left->__rb_parent_color,
			  node->rb_left->rb_left->__rb_parent_color, key);
}

SEC("fentry/siteseer_typed_pointers:walk")
int BPF_PROG(walk, struct rb_node *node, unsigned long factor)
{
	return SUITE_SEND(node->__rb_parent_color, node->rb_left->__rb_parent_color, factor);
}

SEC("kprobe_maybe_inline/siteseer_typed_pointers:walk")
int BPF_PROG(walk_maybe, struct rb_node *node, unsigned long factor)
{
	return SUITE_SEND(node->__rb_parent_color, node->rb_left->__rb_parent_color, factor);
}

SEC("kprobe_maybe_inline/siteseer_typed_pointers:visit")
int BPF_PROG(visit_read, struct rb_node *node, int key)
{
	return SUITE_SEND(BPF_CORE_READ(node, __rb_parent_color), BPF_CORE_READ(node, rb_left, __rb_parent_color),
			  BPF_CORE_READ(node, rb_left, rb_left, __rb_parent_color), key);
}

SEC("kprobe_maybe_inline/siteseer_typed_pointers:walk")
int BPF_PROG(walk_read, struct rb_node *node, unsigned long factor)
{
	return SUITE_SEND(BPF_CORE_READ(node, __rb_parent_color), BPF_CORE_READ(node, rb_left, __rb_parent_color),
			  factor);
}

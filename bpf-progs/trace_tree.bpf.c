// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * The programs of `siteseer trace --tree`: calls and returns, with their places in the tree of the calls that a thread is in. The
 * condition is about the outermost call of a tree.
 */
#define TRACE_FILTER
#define TRACE_WITH_FIELDS
#define TRACE_TREE
#include "trace_body.h"

struct placed_record {
	struct trace_record record;
	struct trace_place place;
};

struct placed_record_with_strings {
	struct placed_record placed;
	struct trace_strings strings;
};

struct placed_record_with_fields {
	struct placed_record placed;
	struct trace_strings strings;
	struct trace_field fields[FIELDS];
};

static __always_inline void fill_placed(struct placed_record *to, void *ctx, __u64 id, __u64 tree, __u64 place,
					__u32 flags)
{
	fill(&to->record, ctx, bpf_get_attach_cookie(ctx), id, false);
	to->record.flags |= TRACE_PLACE | flags;
	to->place.tree = tree >> 1;
	to->place.place = place;
}

static __always_inline void send_call(void *ctx, __u64 id, __u64 tree, __u64 place, __u32 flags)
{
	__u32 key = bpf_get_attach_cookie(ctx);
	const struct trace_function *wanted = bpf_map_lookup_elem(&functions, &key);

	if (fields[0].kind != FIELD_NONE) {
		struct placed_record_with_fields *all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);

		if (!all) {
			drop();
			return;
		}
		fill_placed(&all->placed, ctx, id, tree, place, flags | TRACE_MEMBERS);
		if (wanted && wanted->strings)
			fill_strings(&all->placed.record, &all->strings, wanted);
		fill_fields(&all->placed.record, all->fields);
		bpf_ringbuf_submit(all, 0);
	} else if (wanted && wanted->strings) {
		struct placed_record_with_strings *all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);

		if (!all) {
			drop();
			return;
		}
		fill_placed(&all->placed, ctx, id, tree, place, flags);
		fill_strings(&all->placed.record, &all->strings, wanted);
		bpf_ringbuf_submit(all, 0);
	} else {
		struct placed_record *all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);

		if (!all) {
			drop();
			return;
		}
		fill_placed(all, ctx, id, tree, place, flags);
		bpf_ringbuf_submit(all, 0);
	}
}

/* Whether calls at the site are seen when they begin and when they return. */
static __always_inline bool is_return_seen(void *ctx)
{
	const struct siteseer_site *site = siteseer_site(ctx);
	__u64 address;

	if (!site)
		return false;
	address = site->address;
	return bpf_map_lookup_elem(&returning, &address);
}

SEC("kprobe_maybe_inline")
int tree_enter(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), tree, place = 0;
	bool enters;

	if (!is_process(id) || !is_everything_attached())
		return 0;
	enters = is_return_seen(ctx);
	tree = tree_of(id);
	if (tree) {
		place = place_of_call(id, bpf_get_attach_cookie(ctx), enters);
		if (place == NO_PLACE)
			return 0;
	} else {
		bool wanted = is_asked_for(ctx, id, false);

		if (enters)
			tree = begin_tree(id, bpf_get_attach_cookie(ctx), wanted);
		else if (wanted)
			/* It is a tree by itself. */
			tree = bpf_ktime_get_ns() << 1 | 1;
	}
	if (tree & 1)
		send_call(ctx, id, tree, place, enters ? TRACE_ENTER : 0);
	return 0;
}

SEC("fexit")
int tree_leave(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), tree, place;
	struct placed_record *all;

	if (!is_process(id) || !is_everything_attached() || !is_return_seen(ctx))
		return 0;
	tree = tree_of(id);
	if (!tree) {
		not_placed(UNPLACED_RETURN);
		return 0;
	}
	place = place_of_return(id, bpf_get_attach_cookie(ctx));
	if (!(tree & 1))
		return 0;
	all = bpf_ringbuf_reserve(&records, sizeof(*all), 0);
	if (!all) {
		drop();
		return 0;
	}
	fill_head(&all->record, ctx, bpf_get_attach_cookie(ctx), id, true);
	all->record.flags |= TRACE_PLACE | (place == NO_PLACE ? TRACE_BROKEN : 0);
	all->place.tree = tree >> 1;
	all->place.place = place;
	bpf_ringbuf_submit(all, 0);
	return 0;
}

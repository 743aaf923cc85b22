/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * What a BPF program can ask siteseer for beyond its arguments.
 *
 * Include it after vmlinux.h (or linux/types.h) and bpf/bpf_helpers.h. It compiles with clang and with gcc's bpf
 * target, and needs nothing at link time.
 *
 *	SEC("kprobe_maybe_inline/do_sys_openat2")
 *	int BPF_PROG(opened, int dfd, const char *filename, struct open_how *how)
 *	{
 *		const struct siteseer_site *site = siteseer_site(ctx);
 *		__u64 flags;
 *
 *		if (siteseer_arg(ctx, 2, &flags))
 *			return 0;
 *		...
 *	}
 *
 * The functions below are written as calls of helpers that no kernel has. siteseer replaces each by a few
 * instructions when it knows at which sites the program runs: a number that is a constant costs no comparison, and an
 * argument that is never asked for is never gathered. A program that calls them can be loaded by siteseer only, that
 * is, from a section kprobe_maybe_inline, fentry or fexit (or fentry.s, fexit.s) of an object that siteseer handles.
 *
 * `ctx` is the program's context as it got it, with nothing added.
 */
#ifndef SITESEER_BPF_H
#define SITESEER_BPF_H

/* What a site is: siteseer_site.kind. */
enum siteseer_site_kind {
	/* The function's own symbol. */
	SITESEER_BODY = 0,
	/* A symbol that the compiler made from the function: foo.isra.0, foo.constprop.1, ... */
	SITESEER_CLONE = 1,
	/* A copy of the function's body inside another function. */
	SITESEER_INLINE = 2,
};

/* A place where the function's body starts executing. */
struct siteseer_site {
	/* Which of the link's sites this is, from 0, as in the report of what was attached. */
	__u32 id;
	/* One of enum siteseer_site_kind. */
	__u32 kind;
	/* Address of the probe. */
	__u64 address;
	/* Address of the function that contains it: the function itself for a body or clone, its caller for an inline site. */
	__u64 symbol;
	/* address - symbol */
	__u32 offset;
	/* 0 */
	__u32 reserved;
};

/*
 * Fetches the value of parameter `n`, counted from 0 as in the function's declaration, into `*value`.
 *
 * Reading an argument in the ordinary way is a promise: a site that does not have it is not attached, and is reported.
 * Asking for it here is not: the site is attached all the same, and the call says what it has.
 *
 * The value is extended to 64 bits by the parameter's signedness. It is a number, also for a pointer: read through
 * it by bpf_probe_read_kernel() or BPF_CORE_READ(). Of a structure passed by value it is the first 8 bytes.
 *
 * Returns 0, or -ENOENT if this site does not have the argument (or the function no such parameter), or -EFAULT if it
 * lies in memory that could not be read. `*value` is left alone where it is not 0. An argument whose location is doubtful
 * counts as one that the site does not have, unless the program is attached with doubt accepted.
 */
static long (*const siteseer_arg)(void *ctx, __u32 n, __u64 *value) = (void *)0x5173e001;

/*
 * The same for bytes 8 * `slot` and up of a structure passed by value. -ENOENT also where it has no such bytes.
 */
static long (*const siteseer_arg_slot)(void *ctx, __u32 n, __u32 slot, __u64 *value) = (void *)0x5173e002;

/*
 * Which site the program is at.
 *
 * Returns a record that lives as long as the link and must not be written to; NULL only while the link is being taken
 * down.
 */
static const struct siteseer_site *(*const siteseer_site)(void *ctx) = (void *)0x5173e003;

/*
 * States which function a program means: what it returns, and its parameters, as its declaration has them.
 *
 *	SITESEER_PROTO(resumed, int, struct device *dev, bool async);
 *	SEC("kprobe_maybe_inline/resume")
 *	int BPF_PROG(resumed, struct device *dev, bool async)
 *
 * It is for names that several functions have: the program is attached to those of this prototype, and the report lists the
 * others. Without it such a program is refused if the functions take different arguments. Where no function has
 * the prototype, the program is refused with a list of those that there are.
 *
 * `program` is the name of the BPF program, not of its section. A function without parameters has `void`. Types are
 * compared as C does, structures by name (also with a CO-RE flavour, `struct device___new`), so that a forward declaration
 * is enough, but for a structure that is passed by value. Names of parameters are for the reader.
 *
 * It costs nothing at run time: it is a constant that no instruction refers to, in a section of its own, of which libbpf makes
 * no map ("skipping unrecognized data section", it says); only its type is read.
 */
#define SITESEER_PROTO(program, type, ...)                                                     \
	__typeof__(type) (*const __siteseer_proto_##program)(__VA_ARGS__)                      \
		__attribute__((used, visibility("hidden"), section(".siteseer.proto")))

#endif /* SITESEER_BPF_H */

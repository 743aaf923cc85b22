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
 * The functions below look like calls of helpers, but no kernel has helpers with these numbers. siteseer replaces each
 * call with a few instructions once it knows at which sites the program runs. A constant parameter number costs no
 * comparison, and an argument that the program never asks for is never gathered. Only siteseer can load a program that
 * calls these functions. Such a program must be in a section kprobe_maybe_inline, fentry or fexit (or fentry.s,
 * fexit.s) of an object that siteseer handles.
 *
 * `ctx` is the program's context, unchanged: do not add an offset to it.
 *
 * Why they are not `extern ... __weak __ksym`: libbpf resolves such functions before siteseer sees the program. libbpf
 * 1.1 makes the same instruction of every weak one that the kernel lacks (a call of the function with BTF id 0), so
 * nothing tells siteseer_arg() and siteseer_site() apart. From 1.2 on it writes the number of the symbol in a table that
 * libbpf does not show.
 *
 * Why the statements below are constants in sections, and not declaration tags: gcc's bpf target ignores the attribute
 * btf_decl_tag (gcc 12 says so with a warning), and a statement that a compiler drops is a promise that is not kept.
 */
#ifndef SITESEER_BPF_H
#define SITESEER_BPF_H

/* What a site is: siteseer_site.kind. */
enum siteseer_site_kind {
	/* The function's own symbol. */
	SITESEER_KIND_BODY = 0,
	/* A symbol that the compiler made from the function: foo.isra.0, foo.constprop.1, ... */
	SITESEER_KIND_CLONE = 1,
	/* A copy of the function's body inside another function. */
	SITESEER_KIND_INLINE = 2,
};

/* A place where the function's body starts executing. */
struct siteseer_site {
	/* The number of the site within the link, from 0: the number that the link's report gives it. */
	__u32 id;
	/* One of enum siteseer_site_kind. */
	__u32 kind;
	/* Address of the probe. */
	__u64 address;
	/* Address of the function that contains the probe: the body or clone itself, or the caller of an inlined copy. */
	__u64 symbol;
	/* address - symbol */
	__u32 offset;
	/* 0 */
	__u32 reserved;
};

/*
 * Stores the value of parameter `n` in `*value`. Parameters are counted from 0, in the order of the function's
 * declaration.
 *
 * A program that reads an argument in the ordinary way requires it: a site that does not have the argument is not
 * attached, and the report names it. An argument that the program reads by this call is not required: the site is
 * attached all the same, and the return value says whether the site has the argument.
 *
 * The value is extended to 64 bits according to the parameter's signedness. To the verifier it is a number, even if the
 * parameter is a pointer: use bpf_probe_read_kernel() or BPF_CORE_READ() to read through it. For a structure passed by
 * value it is the first 8 bytes.
 *
 * Returns 0 on success; -ENOENT if this site does not have the argument, or if the function has no such parameter;
 * -EFAULT if the argument lies in memory that could not be read. `*value` is unchanged if the result is not 0. An
 * argument with a doubtful location counts as absent, unless the program is attached with accept_doubt.
 */
static long (*const siteseer_arg)(void *ctx, __u32 n, __u64 *value) = (void *)0x5173e001;

/*
 * Like siteseer_arg(), for the 8 bytes of a structure passed by value that begin at byte 8 * `slot`. Also returns
 * -ENOENT if the structure has no such bytes.
 */
static long (*const siteseer_arg_slot)(void *ctx, __u32 n, __u32 slot, __u64 *value) = (void *)0x5173e002;

/*
 * Returns the site at which the program runs.
 *
 * The record lives as long as the link. The program must not write to it. The result is NULL only while the link is
 * being destroyed.
 */
static const struct siteseer_site *(*const siteseer_site)(void *ctx) = (void *)0x5173e003;

/*
 * States which function a program means, by the function's return type and parameters, as its declaration has them.
 *
 *	SITESEER_PROTO(resumed, int, struct device *dev, bool async);
 *	SEC("kprobe_maybe_inline/resume")
 *	int BPF_PROG(resumed, struct device *dev, bool async)
 *
 * Use it for a name that several functions have: the program is attached to the functions with this prototype, and the
 * report lists the others. Without it, siteseer refuses the program if the functions take different arguments. If no
 * function has the stated prototype, siteseer refuses the program and lists the functions of that name.
 *
 * `program` is the name of the BPF program, not of its section. Write `void` for a function without parameters. Types
 * are compared as C compares them. Structures are compared by name; a CO-RE flavour (`struct device___new`) is ignored.
 * A forward declaration of a structure is therefore enough, unless the structure is passed by value. Names of
 * parameters have no meaning.
 *
 * The macro costs nothing at run time. It defines a constant that no instruction refers to, in a section of its own;
 * only the constant's type is read. libbpf makes no map of that section, and reports "skipping unrecognized data
 * section".
 */
#define SITESEER_PROTO(program, type, ...)                                                     \
	__typeof__(type) (*const __siteseer_proto_##program)(__VA_ARGS__)                      \
		__attribute__((used, visibility("hidden"), section(".siteseer.proto")))

/*
 * States how a program is attached if one of its sites cannot be: complete, at_least_libbpf or best_effort, as enum
 * siteseer_policy of siteseer.h explains them.
 *
 *	SITESEER_POLICY(audit, complete);
 *	SEC("fentry/security_file_open")
 *	int BPF_PROG(audit, struct file *file)
 *
 * Use it for a program that must not lie: under `complete`, a program that would miss calls is not attached at all. The
 * policy of the application's own options for this program comes first, then this one, then the policy that
 * siteseer_register() was given for the process, then the default.
 *
 * `program` is the name of the BPF program. Like SITESEER_PROTO(), the macro costs nothing: only a type is read. Plain
 * libbpf ignores it, and reports "skipping unrecognized data section". An unknown policy does not compile.
 */
#define SITESEER_POLICY(program, policy)                                                       \
	siteseer_policy_##policy *const __siteseer_policy_##program                            \
		__attribute__((used, visibility("hidden"), section(".siteseer.policy")))

/* What SITESEER_POLICY() knows. The structures are never defined: their names are all that counts. */
typedef struct siteseer_policy_complete siteseer_policy_complete;
typedef struct siteseer_policy_at_least_libbpf siteseer_policy_at_least_libbpf;
typedef struct siteseer_policy_best_effort siteseer_policy_best_effort;

#endif /* SITESEER_BPF_H */

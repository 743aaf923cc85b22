/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * siteseer(3): BPF programs at every place where a kernel function's body starts executing.
 *
 * A program in SEC("fentry/foo"), SEC("fexit/foo") or SEC("kprobe_maybe_inline/foo") is attached to all sites of foo:
 * the symbol, its clones and the copies that the compiler inlined. There are two ways to attach it.
 *
 * With libbpf's own calls. Make one call before the others; nothing else changes, and skeletons work:
 *
 *	if (siteseer_register(NULL))
 *		fprintf(stderr, "%s\n", siteseer_last_error());
 *	skel = foo_bpf__open_and_load();
 *	foo_bpf__attach(skel);
 *
 * With siteseer's own handle, which can plan, report and detach:
 *
 *	struct siteseer_target *target = siteseer_target__running(NULL);
 *	struct siteseer_link *link = siteseer_program__attach(skel->progs.foo, target, NULL);
 *	printf("%s", siteseer_report__text(siteseer_link__report(link), 0));
 *	siteseer_link__destroy(link);
 *
 * ERRORS
 *
 * As in libbpf 1.0, functions that return int return 0 or more on success, and a negative errno on failure. Functions
 * that return a pointer return NULL and set errno on failure. siteseer_last_error() then returns the message. After an
 * error nothing stays attached.
 *
 *	EINVAL		an argument, a section name or a program is not valid
 *	E2BIG		an options struct has bytes set that this library does not know, or there are more sites than
 *			max_sites allows
 *	EPERM		a privilege is missing: CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_ADMIN
 *	ENODATA		there is no site data for the kernel
 *	ENOENT		there is no function of that name, or none that matches the program's declaration
 *	ENOTUNIQ	several functions of the name take different arguments
 *	EADDRNOTAVAIL	no site can be attached, or, under the policy complete, one of the sites cannot
 *	EOPNOTSUPP	this kernel or siteseer does not support it
 *	EAGAIN		modules were loaded or unloaded during every attempt
 *	EBUSY		the program is already attached
 *	EEXIST		the application uses another copy of libbpf than siteseer
 *	others		the kernel's own errors
 *
 * THREADS
 *
 * siteseer_register() and siteseer_unregister() change libbpf's table of sections, which has no lock. While one of them
 * runs, no other thread may open or load objects, or register handlers. The two functions exclude each other.
 *
 * Any thread may call any other function at any time, also on the same target, plan, report or link. There are two
 * exceptions. libbpf allows only one thread at a time to use a struct bpf_program, bpf_object or bpf_link; this also
 * holds for the functions here that take one. And after a function whose name ends in __free or __destroy, nobody may
 * use the handle.
 *
 * siteseer_last_error() is per thread. The callback of siteseer_set_print() may be called from any thread, and from
 * several threads at once.
 *
 * OPTIONS
 *
 * An options struct begins with its size, and a member that is 0 has its default. Declare such a struct with libbpf's
 * LIBBPF_OPTS(), or set `sz` and zero the rest. This header includes <bpf/libbpf_common.h>, which defines LIBBPF_OPTS(),
 * unless libbpf's headers are not installed. NULL means that all members have their defaults. New members are added at
 * the end.
 */
#ifndef SITESEER_H
#define SITESEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* LIBBPF_OPTS(), and little else. */
#if !defined(__has_include) || __has_include(<bpf/libbpf_common.h>)
#include <bpf/libbpf_common.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LIBSITESEER_API
#define LIBSITESEER_API __attribute__((visibility("default")))
#endif

/* The version of this header. siteseer_version_string() returns the version of the library. */
#define SITESEER_MAJOR_VERSION 0
#define SITESEER_MINOR_VERSION 1

struct bpf_program;
struct bpf_object;
struct bpf_link;

/* A kernel to attach to: its symbols, its capabilities, and the location of its site data. */
struct siteseer_target;
/* The planned or actual outcome for each site of a program's functions. */
struct siteseer_report;
/* A program that is attached to all sites of its functions. */
struct siteseer_link;

LIBSITESEER_API const char *siteseer_version_string(void);

/* --- messages ------------------------------------------------------------------------------------------------------- */

enum siteseer_print_level {
	SITESEER_WARN = 0,
	SITESEER_INFO = 1,
	SITESEER_DEBUG = 2,
};

/*
 * Receives one message, which has one or more lines and no line break at its end. The message is valid only during the
 * call.
 */
typedef void (*siteseer_print_fn_t)(enum siteseer_print_level level, const char *message, void *ctx);

/*
 * Sets the function that receives messages; NULL discards them. By default, warnings go to stderr. Messages report what
 * happens inside libbpf's calls: the errors of bpf_object__load() and bpf_program__attach() for siteseer's programs,
 * which siteseer_last_error() also returns, and at SITESEER_INFO the report of each program that these calls attached.
 */
LIBSITESEER_API void siteseer_set_print(siteseer_print_fn_t print, void *ctx);

/*
 * Returns the message of the last error in this thread, of one or more lines. It is never NULL; it is empty if there
 * was no error. It is valid until the next call of a siteseer function that fails in the same thread.
 */
LIBSITESEER_API const char *siteseer_last_error(void);

/* --- with libbpf's own calls ------------------------------------------------------------------------------------------ */

/* What to do if some sites cannot be attached. */
enum siteseer_policy {
	/*
	 * The policy that the program states by SITESEER_POLICY() of siteseer.bpf.h. Otherwise, for fentry and fexit: at
	 * least libbpf if libbpf's own calls attach the program, complete if siteseer_program__attach() does. For
	 * kprobe_maybe_inline: best effort.
	 */
	SITESEER_POLICY_DEFAULT = 0,
	/* Attach all sites or none. The error lists the sites that cannot be attached. */
	SITESEER_POLICY_COMPLETE = 1,
	/* Attach the sites that can be attached. The report lists the others. */
	SITESEER_POLICY_BEST_EFFORT = 2,
	/*
	 * Attach where plain libbpf attaches, in the same way, and at every other site that can be attached. The report
	 * lists the others, and a warning names them. If nothing can be planned (there is no site data, or a privilege
	 * is missing), attach the program as plain libbpf does.
	 */
	SITESEER_POLICY_AT_LEAST_LIBBPF = 3,
};

/* Where site data comes from. */
struct siteseer_source_opts {
	size_t sz;
	/* A file made by `siteseer encode`, or a vmlinux with DWARF; NULL to search the usual places. */
	const char *file;
	/* Do not read DWARF, which takes longer to read than a site file. */
	bool no_dwarf;
	/*
	 * Also read the DWARF of debug images found in the usual places. Without this, a process with privileges (root,
	 * capabilities) reads DWARF only from the file that is named.
	 */
	bool found_dwarf;
	/*
	 * Site data that the application brings along, made by `siteseer subset`, and its size in bytes; NULL and 0 for
	 * none. It is tried before the usual places, and copied. If it has the running kernel, only the functions that it
	 * was made for can be attached to.
	 */
	const void *embedded;
	size_t embedded_sz;
	/*
	 * Files with the site data of modules, made by `siteseer encode`, or modules with DWARF; `module_cnt` is their
	 * number. The usual places are searched for the other modules.
	 */
	const char *const *modules;
	size_t module_cnt;
	size_t :0;
};
#define siteseer_source_opts__last_field module_cnt

struct siteseer_register_opts {
	size_t sz;
	/* Where site data comes from; NULL for the usual places. The struct is copied. */
	const struct siteseer_source_opts *source;
	/* enum siteseer_policy, for programs whose own options do not set a policy */
	int policy;
	/*
	 * Do not plan any program while its object is loaded. siteseer alone then attaches all fentry and fexit
	 * programs, even those that libbpf could attach as well, and no other call can attach them. Site data is not
	 * searched for until the first program is attached.
	 */
	bool no_plan_at_load;
	/* Doubtful arguments count as located; see siteseer_attach_opts. */
	bool accept_doubt;
	size_t :0;
};
#define siteseer_register_opts__last_field accept_doubt

/*
 * Takes over the sections fentry, fexit, fentry.s, fexit.s and kprobe_maybe_inline from libbpf, for all objects that
 * this process opens from now on. A second call replaces the options.
 *
 * Afterwards bpf_object__load(), bpf_program__attach(), bpf_object__attach_skeleton() and the functions that use them
 * (foo_bpf__load(), foo_bpf__attach()) attach such a program to all sites of its function. The struct bpf_link that
 * they return stands for all of these sites: bpf_link__destroy() (foo_bpf__detach(), foo_bpf__destroy()) detaches every
 * site before it returns. Such a link cannot be pinned or updated, and the kernel cannot be asked about its descriptor.
 * After bpf_link__disconnect() the sites stay attached until the process ends, as with other links. siteseer_link__of()
 * gives access to the report.
 *
 * No fentry or fexit program sees less than with plain libbpf. siteseer loads the program for its own function, so
 * bpf_program__attach_trace(), bpf_link_create() and similar calls do what they always do. bpf_program__attach()
 * attaches it there and at every other site that can be attached; a warning says which calls are missed. Without site
 * data, or without the privilege to read the kernel's addresses, the program is attached as with plain libbpf, and a
 * warning says why. A program that must see all calls or none sets SITESEER_POLICY_COMPLETE. Some programs can only be
 * loaded by siteseer: those that call functions of siteseer.bpf.h, and those whose function has no body. Only
 * bpf_program__attach() and siteseer's own calls can attach them.
 *
 * If siteseer has nothing to add to a program (its function has one body that fentry reaches, and no other site), the
 * program is libbpf's alone. It is loaded and attached as if siteseer were not there, and its link is a tracing link.
 *
 * siteseer does not touch programs in other sections. libbpf moves its table of handlers when a handler is added, so
 * any other code that calls libbpf_register_prog_handler() must do so before objects are opened.
 *
 * A process may have two copies of libbpf, for example one that is linked statically into the program beside the shared
 * one that libsiteseer.so uses. Handlers that are registered with the one are never called by the other. If the caller
 * opens its objects with another copy than siteseer uses, nothing is registered, and the result is -EEXIST.
 *
 * Returns 0 or a negative errno.
 */
LIBSITESEER_API int siteseer_register(const struct siteseer_register_opts *opts);

/* bpf_object__load() of libbpf */
typedef int (*siteseer_object_load_t)(struct bpf_object *obj);

/*
 * Like siteseer_register(), for a caller that says which copy of libbpf it uses, by the address of that copy's
 * bpf_object__load(). If it is NULL, the copy is looked for among the program's dynamic symbols, where a copy that is
 * linked statically may be absent.
 *
 * In C and C++, siteseer_register() is a macro that passes the caller's own. Programs in other languages call this
 * function, if they can be linked with a copy of their own.
 */
LIBSITESEER_API int siteseer_register_for(const struct siteseer_register_opts *opts, siteseer_object_load_t load);

/* Weak, so that a program that does not use libbpf directly can be linked without it. */
static int siteseer__object_load(struct bpf_object *obj) __attribute__((weakref("bpf_object__load"), unused));
#define siteseer_register(opts) siteseer_register_for(opts, siteseer__object_load)

/*
 * Returns the sections to libbpf. Links stay attached and can be destroyed; objects can be closed. libbpf keeps
 * pointers into its table, so programs that were opened before this call must no longer be loaded or attached.
 */
LIBSITESEER_API int siteseer_unregister(void);

/* Whether a fentry and a fexit program of one object, on the same function, are limited to the calls that both see. */
enum siteseer_pairing {
	/* Together if libbpf's own calls attach them under the policy at least libbpf, apart otherwise. */
	SITESEER_PAIRING_DEFAULT = 0,
	SITESEER_PAIRING_TOGETHER = 1,
	SITESEER_PAIRING_APART = 2,
};

/*
 * Returns whether a fentry program that reads all arguments of a function could be attached to it somewhere: by
 * siteseer at one site at least, or in the way of plain libbpf. If `module` is NULL, the function may be in the kernel
 * image or in any module. A function that the kernel's BTF does not have cannot be attached to, because
 * bpf_program__set_attach_target() does not find it. If the result is false, siteseer_last_error() returns the reason.
 *
 * Tools that check the kernel's BTF (fentry_can_attach() of bcc's libbpf-tools) can use this function instead; their own
 * check accepts functions that ftrace does not know. It also looks in the kernel image if the module is not loaded:
 *
 *	#include <siteseer.h>
 *	#define fentry_can_attach(name, mod) \
 *		(siteseer_can_attach(name, mod) || ((mod) && siteseer_can_attach(name, NULL)))
 *
 * Their kprobe_exists() must stay as it is: siteseer does not touch kprobe programs.
 */
LIBSITESEER_API bool siteseer_can_attach(const char *function, const char *module);

/* How a program is attached. */
struct siteseer_attach_opts {
	size_t sz;
	/* enum siteseer_policy */
	int policy;
	/* Attach to all functions of the name, even if their prototypes differ. */
	bool all_prototypes;
	/*
	 * Arm each kprobe separately. By default, many kprobes are armed together by events in tracefs. Separate arming
	 * is slower, but leaves nothing in tracefs if the process is killed.
	 */
	bool no_bulk;
	/* The value that bpf_get_attach_cookie() returns. */
	uint64_t cookie;
	/* Functions, `[module:]name`, in place of the one that the section names; `function_cnt` is their number. */
	const char *const *functions;
	size_t function_cnt;
	/* Attach only to functions that this source file declares: its path, or the last components of the path. */
	const char *file;
	/* The kernel's id of a BPF program. The functions are then that program's, not the kernel's. 0 for none. */
	uint32_t bpf_program_id;
	/*
	 * Doubtful arguments count as located. For a doubtful argument the debug information names a place that may
	 * hold another value; the report gives the reason. By default such an argument counts as missing, and
	 * siteseer_arg() returns -ENOENT for it. If this is false, the member of siteseer_register_opts decides.
	 */
	bool accept_doubt;
	/* enum siteseer_pairing */
	int pairing;
	/*
	 * The largest number of sites at which the program may be attached; 0 for 1024. If there are more, attaching
	 * fails with E2BIG, because so many sites slow down the whole machine and take minutes to arm and to disarm.
	 */
	uint32_t max_sites;
	/*
	 * Attach also at places where a program is a risk to the kernel. By default such sites are skipped, and the
	 * report gives the reason (its key is "risky").
	 */
	bool allow_risky;
	size_t :0;
};
#define siteseer_attach_opts__last_field allow_risky

/*
 * Sets how libbpf's own calls attach a program. Call it after bpf_object__open() and before bpf_object__load().
 * Everything is copied. Returns 0, or -EINVAL if the program is in none of siteseer's sections or was opened before
 * siteseer_register().
 */
LIBSITESEER_API int siteseer_program__set_attach_opts(struct bpf_program *prog, const struct siteseer_attach_opts *opts);

/* --- targets ---------------------------------------------------------------------------------------------------------- */

/*
 * The running kernel. Reads its symbols, which requires CAP_SYSLOG, and finds its site data. This takes some tenths of
 * a second; create one target, and use it for all programs.
 */
LIBSITESEER_API struct siteseer_target *siteseer_target__running(const struct siteseer_source_opts *opts);

/*
 * A kernel image, which need not be running: a file made by `siteseer encode`, or a vmlinux with DWARF. For plans only.
 */
LIBSITESEER_API struct siteseer_target *siteseer_target__image(const char *file, const struct siteseer_source_opts *opts);

/* Describes the kernel in words. The text is valid as long as the target. */
LIBSITESEER_API const char *siteseer_target__describe(const struct siteseer_target *target);

enum siteseer_sites_flags {
	/* Ask for the places where the function returns. By default, for those where it starts. */
	SITESEER_SITES_RETURN = 1,
};

/*
 * Returns every place where a function starts (or returns), for tools that make probes of their own. `function` is
 * "[module:]name". No program is involved: in the report, a site is `attached` if a probe can be there, and `mechanism` is how siteseer
 * would attach one. siteseer_report__argument() says where the arguments are. Functions of one name that take
 * different arguments are all in the report. The caller frees it by siteseer_report__free().
 */
LIBSITESEER_API struct siteseer_report *siteseer_target__sites(const struct siteseer_target *target, const char *function,
							       uint32_t flags);

/* Links and reports do not need the target that they were made with. NULL is allowed. */
LIBSITESEER_API void siteseer_target__free(struct siteseer_target *target);

/* --- planning and attaching --------------------------------------------------------------------------------------------- */

/*
 * Reports what would be attached; changes nothing. The program must be loaded, and its object must have been opened
 * after siteseer_register(). The caller frees the report by siteseer_report__free().
 */
LIBSITESEER_API struct siteseer_report *siteseer_program__plan(const struct bpf_program *prog, const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/*
 * Attaches a loaded program. The object may be closed before the link is destroyed, if nobody needs its maps.
 */
LIBSITESEER_API struct siteseer_link *siteseer_program__attach(const struct bpf_program *prog,
							       const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/*
 * Like siteseer_program__attach(), but returns a link of libbpf's, like the links that bpf_program__attach() returns
 * (see siteseer_register()).
 */
LIBSITESEER_API struct bpf_link *siteseer_program__attach_link(const struct bpf_program *prog,
							       const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/* --- links -------------------------------------------------------------------------------------------------------------- */

/*
 * Returns a handle for a link that libbpf's calls returned, to ask about its sites. bpf_link__destroy() still detaches
 * them; siteseer_link__destroy() only releases the handle. Returns NULL with ENOENT if the link is libbpf's own.
 */
LIBSITESEER_API struct siteseer_link *siteseer_link__of(const struct bpf_link *link);

/*
 * The outcome for every site, as it was when the link was made or last refreshed. Valid as long as the link, also after
 * siteseer_link__refresh().
 */
LIBSITESEER_API const struct siteseer_report *siteseer_link__report(const struct siteseer_link *link);

/* Whether the sites are still attached. For a handle from siteseer_link__of(): until libbpf's link is destroyed. */
LIBSITESEER_API bool siteseer_link__is_attached(const struct siteseer_link *link);

/*
 * siteseer_link__missed() returns the number of hits for which the kernel did not run the program.
 * siteseer_link__faults() returns the number of calls that were missed because an argument lay in memory that could not
 * be read. Both return a negative errno if the kernel does not give the number.
 */
LIBSITESEER_API int64_t siteseer_link__missed(const struct siteseer_link *link);
LIBSITESEER_API int64_t siteseer_link__faults(const struct siteseer_link *link);

/* What a link costs. */
struct siteseer_cost {
	size_t sz;
	/* The number of loaded programs, and the bytes of machine code that the kernel made of them. */
	uint64_t programs;
	uint64_t jited;
	/* The number of files that are kept open. */
	uint64_t files;
	/* The time for loading the programs and for arming the sites, in nanoseconds. */
	uint64_t loading_ns;
	uint64_t arming_ns;
	size_t :0;
};
#define siteseer_cost__last_field arming_ns

/* Fills `cost`, up to the size that its `sz` gives. */
LIBSITESEER_API int siteseer_link__cost(const struct siteseer_link *link, struct siteseer_cost *cost);

/*
 * The functions below tell what has changed since the link was made. Each calls `each`, once for each thing that it
 * found, with the given `ctx`; what the callback gets is valid during the call. NULL only counts. They return the number
 * of things, or a negative errno. The callback may not destroy or refresh the link.
 */

/* Sites that are gone, because their module was unloaded. */
struct siteseer_gone {
	size_t sz;
	const char *module;
	/* The number of sites. */
	uint64_t sites;
	/* A module of that name is loaded again, and the program does not run in it. */
	bool loaded_again;
	size_t :0;
};
#define siteseer_gone__last_field loaded_again

typedef void (*siteseer_gone_fn_t)(const struct siteseer_gone *gone, void *ctx);
LIBSITESEER_API int siteseer_link__gone(const struct siteseer_link *link, siteseer_gone_fn_t each, void *ctx);

typedef void (*siteseer_text_fn_t)(const char *text, void *ctx);

/* The names of modules that were loaded later. They may have copies of the function, at which the program does not run. */
LIBSITESEER_API int siteseer_link__unseen_modules(const struct siteseer_link *link, siteseer_text_fn_t each, void *ctx);

/*
 * Sentences that say what keeps the program from running at its sites at this moment: kprobes or ftrace are switched
 * off, or a live patch has replaced the code.
 */
LIBSITESEER_API int siteseer_link__in_the_way(const struct siteseer_link *link, siteseer_text_fn_t each, void *ctx);

/* A slot of a prog array that holds a program which the link is attached to. */
struct siteseer_tail_slot {
	size_t sz;
	/* The map's name; empty if it has none. The kernel cuts names to 15 bytes. */
	const char *map_name;
	uint32_t program_id;
	uint32_t map_id;
	uint32_t slot;
	size_t :0;
};
#define siteseer_tail_slot__last_field slot

/* For a link to functions of BPF programs: from where they are entered by tail call, which the link does not see. */
typedef void (*siteseer_tail_slot_fn_t)(const struct siteseer_tail_slot *slot, void *ctx);
LIBSITESEER_API int siteseer_link__tail_slots(const struct siteseer_link *link, siteseer_tail_slot_fn_t each, void *ctx);

/*
 * Attaches the program at the sites in modules that were loaded since the link was made or last refreshed. The other
 * arguments must be those that siteseer_program__attach() got. Returns the number of sites that were added to the
 * report, attached or not. On failure the link is as before. A link from siteseer_link__of() cannot be refreshed
 * (EOPNOTSUPP).
 */
LIBSITESEER_API int siteseer_link__refresh(struct siteseer_link *link, const struct bpf_program *prog,
					   const struct siteseer_target *target, const struct siteseer_attach_opts *opts);

/*
 * Releases a handle. If siteseer_program__attach() returned it, this detaches every site: after the call, the program
 * no longer runs. If siteseer_link__of() returned it, nothing is detached, because libbpf's link holds the sites. NULL is
 * allowed. Returns 0.
 */
LIBSITESEER_API int siteseer_link__destroy(struct siteseer_link *link);

/*
 * Removes event definitions that ended processes left in tracefs. These definitions have no effect. Returns how many
 * were removed.
 */
LIBSITESEER_API int siteseer_clean(void);

/* --- reports -------------------------------------------------------------------------------------------------------------- */

/*
 * Returns the last plan or report of a program that libbpf's calls loaded or attached, also if siteseer had nothing to
 * add to it. Returns NULL with ENOENT if there is none. The caller frees the report.
 */
LIBSITESEER_API struct siteseer_report *siteseer_program__report(const struct bpf_program *prog);

enum siteseer_text_flags {
	/* Print one line per site. By default, sites are counted by their outcome. */
	SITESEER_TEXT_LONG = 1,
};

/* The report as text for people, in whole lines. Valid as long as the report. */
LIBSITESEER_API const char *siteseer_report__text(const struct siteseer_report *report, uint32_t flags);

struct siteseer_counts {
	size_t sz;
	/* All sites, those attached, and those skipped. `sites` is the sum of the other two. */
	uint64_t sites;
	uint64_t attached;
	uint64_t skipped;
	/* Skipped sites in code that never runs. */
	uint64_t dead;
	/* Functions, and generated programs. */
	uint64_t functions;
	uint64_t programs;
	size_t :0;
};
#define siteseer_counts__last_field programs

/* Fills `counts`, up to the size that its `sz` gives. */
LIBSITESEER_API int siteseer_report__counts(const struct siteseer_report *report, struct siteseer_counts *counts);

/* The kind of a site. The numbers are those of enum siteseer_site_kind in siteseer.bpf.h. */
enum siteseer_kind {
	SITESEER_KIND_BODY = 0,
	SITESEER_KIND_CLONE = 1,
	SITESEER_KIND_INLINE = 2,
};

/* Strings are valid as long as the report. */
struct siteseer_site_info {
	size_t sz;
	/* The id that siteseer_site() gives the program. */
	uint32_t id;
	/* enum siteseer_kind */
	uint32_t kind;
	/* The function, and the symbol that holds the probe, which lies `offset` bytes after the symbol's start. */
	const char *function;
	const char *symbol;
	uint64_t offset;
	/* The address of the probe in the running kernel, and in the kernel as it was linked. */
	uint64_t address;
	uint64_t link_address;
	/* Where the inlined copy was called, or where the function is declared; NULL and 0 if it is not known. */
	const char *source_file;
	uint32_t source_line;
	bool attached;
	/* may_repeat: there may be more hits than calls here. may_miss: some calls may not be seen here. */
	bool may_repeat;
	bool may_miss;
	/* The mechanism that runs the program: "fentry", "kprobe", ...; NULL if the site is not attached. */
	const char *mechanism;
	/*
	 * Why the site is not attached: a key that never changes ("missing_arguments"), and a sentence. Both are NULL if
	 * the site is attached.
	 */
	const char *reason;
	const char *reason_text;
	/* The function's prototype; NULL if it is not known. */
	const char *prototype;
	size_t :0;
};
#define siteseer_site_info__last_field prototype

LIBSITESEER_API size_t siteseer_report__site_cnt(const struct siteseer_report *report);

/*
 * Fills `info` with the site at position `index`, counted from 0, up to the size that `sz` of `info` gives. Returns
 * -ENOENT past the end of the list.
 */
LIBSITESEER_API int siteseer_report__site(const struct siteseer_report *report, size_t index, struct siteseer_site_info *info);

/* Where an argument is when the probe at the entry is hit. */
enum siteseer_location {
	/* Nowhere: `missing` says why. */
	SITESEER_LOCATION_NONE = 0,
	/* It is `value`. */
	SITESEER_LOCATION_CONSTANT = 1,
	/* It is `value`, an address in the kernel as it was linked; `address` - `link_address` of the site is added. */
	SITESEER_LOCATION_ADDRESS = 2,
	/* It is in the low `size` bytes of `reg`. */
	SITESEER_LOCATION_REGISTER = 3,
	/* Its first 8 bytes are in `reg`, the rest in `reg2`. */
	SITESEER_LOCATION_REGISTER_PAIR = 4,
	/* It is the sum of `reg` and `offset`. */
	SITESEER_LOCATION_REGISTER_OFFSET = 5,
	/* It is in memory, `size` bytes at the sum of `reg` and `offset`. */
	SITESEER_LOCATION_MEMORY = 6,
	/* It is computed, as `text` says. */
	SITESEER_LOCATION_COMPUTED = 7,
};

/* Strings are valid as long as the report. */
struct siteseer_argument_info {
	size_t sz;
	/* The parameter's name and type; NULL if they are not known. */
	const char *name;
	const char *type_name;
	/* enum siteseer_location. Later releases may add numbers. */
	uint32_t location;
	/* Bytes of the value; 0 if it is nowhere. */
	uint32_t size;
	bool is_signed;
	/* Whether nothing is known that would make the location wrong. */
	bool certain;
	/* Registers by name, as "rdi" or "x0"; NULL if the location has none. */
	const char *reg;
	const char *reg2;
	int64_t offset;
	uint64_t value;
	/* The location as text; NULL if there is none. */
	const char *text;
	/* Why there is no location, or why it is doubtful: a key that never changes, and a sentence. NULL if it is certain. */
	const char *missing;
	const char *missing_text;
	size_t :0;
};
#define siteseer_argument_info__last_field missing_text

/*
 * Fills `info` with the argument for parameter number `parameter` at the site at position `index`, both counted from 0,
 * up to the size that `sz` of `info` gives. Returns -ENOENT if there is no such site or parameter.
 */
LIBSITESEER_API int siteseer_report__argument(const struct siteseer_report *report, size_t index, size_t parameter,
					      struct siteseer_argument_info *info);

/* Frees a report that the caller has to free. NULL is allowed. */
LIBSITESEER_API void siteseer_report__free(struct siteseer_report *report);

#ifdef __cplusplus
}
#endif

#endif /* SITESEER_H */

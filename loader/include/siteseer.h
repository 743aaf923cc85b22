/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * siteseer(3): BPF programs at every place where a kernel function's body starts executing.
 *
 * A program in SEC("fentry/foo"), SEC("fexit/foo") or SEC("kprobe_maybe_inline/foo") is attached to all sites of foo: the
 * symbol, its clones and the copies that the compiler inlined. There are two ways.
 *
 * With libbpf's own calls. One call in front of the others, and nothing else changes; skeletons work:
 *
 *	if (siteseer_register(NULL))
 *		fprintf(stderr, "%s\n", siteseer_last_error());
 *	skel = foo_bpf__open_and_load();
 *	foo_bpf__attach(skel);
 *
 * With a handle of one's own, to plan, to ask, and to detach:
 *
 *	struct siteseer_target *target = siteseer_target__running(NULL);
 *	struct siteseer_link *link = siteseer_program__attach(skel->progs.foo, target, NULL);
 *	printf("%s", siteseer_report__text(siteseer_link__report(link), 0));
 *	siteseer_link__destroy(link);
 *
 * ERRORS
 *
 * As in libbpf 1.0: functions that return int give 0 or more, or a negative errno; functions that return a pointer give
 * NULL and set errno. siteseer_last_error() then has the sentence. After an error nothing stays attached.
 *
 *	EINVAL		an argument, a section name or a program that cannot be
 *	E2BIG		an options struct has bytes set that this library does not know
 *	EPERM		a privilege is missing: CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_ADMIN
 *	ENODATA		there are no site data for the kernel
 *	ENOENT		there is no function of that name, or none that is meant
 *	ENOTUNIQ	several functions of the name take different arguments
 *	EADDRNOTAVAIL	sites cannot be attached: none, or under the policy complete one
 *	EOPNOTSUPP	what this kernel or siteseer cannot do
 *	EAGAIN		modules came and went all the while
 *	others		the kernel's own
 *
 * THREADS
 *
 * siteseer_register() and siteseer_unregister() change libbpf's table of sections, which has no lock: no other thread may
 * open or load objects, or register handlers, meanwhile. They exclude each other. All other functions may be called from
 * any thread at any time, also on the same target, plan, report or link; the exceptions are those that take a struct
 * bpf_program, bpf_object or bpf_link, of which libbpf allows one thread at a time, and those that end in __free or
 * __destroy, after which nobody may use the handle. siteseer_last_error() is the calling thread's. The callback of
 * siteseer_set_print() is called from any thread, by several at once.
 *
 * OPTIONS
 *
 * Structs of options begin with their size, and all that is 0 is the default: declare them by LIBBPF_OPTS(), or set `sz`
 * and zero the rest. NULL stands for all defaults. New members come at the end.
 */
#ifndef SITESEER_H
#define SITESEER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LIBSITESEER_API
#define LIBSITESEER_API __attribute__((visibility("default")))
#endif

/* Version of this header; siteseer_version_string() has the library's. */
#define SITESEER_MAJOR_VERSION 0
#define SITESEER_MINOR_VERSION 1

struct bpf_program;
struct bpf_link;

/* A kernel to attach to: its symbols, what it can do, and where its site data are. */
struct siteseer_target;
/* What would become of every site of a program's functions, or what became of it. */
struct siteseer_report;
/* A program attached to all sites of its functions. */
struct siteseer_link;

LIBSITESEER_API const char *siteseer_version_string(void);

/* --- messages ------------------------------------------------------------------------------------------------------- */

enum siteseer_print_level {
	SITESEER_WARN = 0,
	SITESEER_INFO = 1,
	SITESEER_DEBUG = 2,
};

/*
 * Takes one message, of one or more lines, without a line break at its end. It lives through the call.
 */
typedef void (*siteseer_print_fn_t)(enum siteseer_print_level level, const char *message, void *ctx);

/*
 * Sets where messages go; NULL is nowhere. Until it is called, warnings go to stderr. Messages are for what happens inside of
 * libbpf's calls: what siteseer_last_error() has, of a program that bpf_object__load() or bpf_program__attach() was for,
 * and at SITESEER_INFO the report of each program that was attached so.
 */
LIBSITESEER_API void siteseer_set_print(siteseer_print_fn_t print, void *ctx);

/*
 * What went wrong last in this thread: a sentence, or several lines. Never NULL; empty if nothing did. Lives until the thread's
 * next call of siteseer that fails.
 */
LIBSITESEER_API const char *siteseer_last_error(void);

/* --- with libbpf's own calls ------------------------------------------------------------------------------------------ */

/* What to do when not every site can be attached. */
enum siteseer_policy {
	/* complete for fentry and fexit, best effort for kprobe_maybe_inline. */
	SITESEER_POLICY_DEFAULT = 0,
	/* All sites or none; the error lists those in the way. */
	SITESEER_POLICY_COMPLETE = 1,
	/* What can be attached is, and the rest is in the report. */
	SITESEER_POLICY_BEST_EFFORT = 2,
};

/* Where site data are from. */
struct siteseer_source_opts {
	size_t sz;
	/* A file made by `siteseer encode`, or a vmlinux with DWARF; NULL to look in the usual places. */
	const char *file;
	/* Do not read DWARF, which takes longer than a file of sites. */
	bool no_dwarf;
	size_t :0;
};
#define siteseer_source_opts__last_field no_dwarf

struct siteseer_register_opts {
	size_t sz;
	/* Where site data are from; NULL for the usual places. Copied. */
	const struct siteseer_source_opts *source;
	/* enum siteseer_policy of programs of which nothing else is said. */
	int policy;
	/*
	 * Plan no program while its object is loaded. fentry and fexit programs are then all attached by siteseer, also those
	 * that libbpf could attach as well; site data are not looked for before the first is attached.
	 */
	bool no_plan_at_load;
	/* Doubtful arguments count as located; see siteseer_attach_opts. */
	bool accept_doubt;
	size_t :0;
};
#define siteseer_register_opts__last_field accept_doubt

/*
 * Takes the sections fentry, fexit, fentry.s, fexit.s and kprobe_maybe_inline over from libbpf, for all objects that this process
 * opens from now on. Called again, it sets the options anew.
 *
 * bpf_object__load(), bpf_program__attach(), bpf_object__attach_skeleton() and what stands on them (foo_bpf__load(),
 * foo_bpf__attach()) then attach such a program to all sites of its function. The struct bpf_link that they give stands for all
 * of them: bpf_link__destroy() (foo_bpf__detach(), foo_bpf__destroy()) detaches every site before it returns. What cannot be done
 * with it: pin, update, ask the kernel about its descriptor. bpf_link__disconnect() leaves the sites attached until the process
 * ends, as ever. siteseer_link__of() has its report.
 *
 * A program that siteseer has nothing to add to (its function has one body that fentry reaches, and no other site) is
 * libbpf's alone: loaded and attached as if siteseer were not there, the link a tracing link.
 *
 * Programs in other sections are not touched. libbpf moves its table of handlers when one is added: whoever else calls
 * libbpf_register_prog_handler() does so before objects are opened.
 *
 * Returns 0 or a negative errno.
 */
LIBSITESEER_API int siteseer_register(const struct siteseer_register_opts *opts);

/*
 * Gives the sections back to libbpf. Links stay attached, and can be destroyed; objects can be closed. But libbpf keeps pointers
 * into its table: programs that were opened before may not be loaded or attached any more.
 */
LIBSITESEER_API int siteseer_unregister(void);

/* How a program is attached. */
struct siteseer_attach_opts {
	size_t sz;
	/* enum siteseer_policy */
	int policy;
	/* Take all functions of the name, even if their prototypes differ. */
	bool all_prototypes;
	/*
	 * Arm each kprobe by itself, where otherwise many are armed together by events in tracefs: slower, but nothing of it is
	 * left there if the process is killed.
	 */
	bool no_bulk;
	/* What bpf_get_attach_cookie() answers. */
	uint64_t cookie;
	/* Functions, `[module:]name`, in place of the one that the section names; `function_cnt` of them. */
	const char *const *functions;
	size_t function_cnt;
	/* Take only functions that this source file declares: its path, or the last components of it. */
	const char *file;
	/* A BPF program, by the kernel's id, whose functions are meant in place of the kernel's; 0 for none. */
	uint32_t bpf_program_id;
	/*
	 * Doubtful arguments count as located. The debug information names a place for them that may hold another value, for a
	 * reason that the report gives. Otherwise they count as missing, and siteseer_arg() returns -ENOENT for them. If it is
	 * false, siteseer_register_opts decides.
	 */
	bool accept_doubt;
	size_t :0;
};
#define siteseer_attach_opts__last_field accept_doubt

/*
 * Sets how libbpf's own calls attach a program. After bpf_object__open(), and before bpf_object__load(). Everything is copied.
 * Returns 0; -EINVAL for a program that is in no section of siteseer's, or was opened before siteseer_register().
 */
LIBSITESEER_API int siteseer_program__set_attach_opts(struct bpf_program *prog, const struct siteseer_attach_opts *opts);

/* --- targets ---------------------------------------------------------------------------------------------------------- */

/*
 * The running kernel: reads its symbols, which takes CAP_SYSLOG, and finds its site data. Takes some tenths of a second; make one,
 * and use it for all programs.
 */
LIBSITESEER_API struct siteseer_target *siteseer_target__running(const struct siteseer_source_opts *opts);

/*
 * A kernel image that need not run: a file made by `siteseer encode`, or a vmlinux with DWARF. For plans only.
 */
LIBSITESEER_API struct siteseer_target *siteseer_target__image(const char *file, const struct siteseer_source_opts *opts);

/* Which kernel it is, in words. Lives as long as the target. */
LIBSITESEER_API const char *siteseer_target__describe(const struct siteseer_target *target);

/* Links and reports do not need the target that they were made with. NULL is allowed. */
LIBSITESEER_API void siteseer_target__free(struct siteseer_target *target);

/* --- planning and attaching --------------------------------------------------------------------------------------------- */

/*
 * What would be attached, as a report; nothing is changed. The program is loaded, of an object that was opened after
 * siteseer_register(). To be freed by siteseer_report__free().
 */
LIBSITESEER_API struct siteseer_report *siteseer_program__plan(const struct bpf_program *prog, const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/*
 * Attaches a loaded program. The object may be closed before the link, if nobody wants its maps.
 */
LIBSITESEER_API struct siteseer_link *siteseer_program__attach(const struct bpf_program *prog,
							       const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/*
 * The same, as a link of libbpf's, like those that bpf_program__attach() gives (see siteseer_register()).
 */
LIBSITESEER_API struct bpf_link *siteseer_program__attach_link(const struct bpf_program *prog,
							       const struct siteseer_target *target,
							       const struct siteseer_attach_opts *opts);

/* --- links -------------------------------------------------------------------------------------------------------------- */

/*
 * What stands behind a link that libbpf's calls gave, to ask it; bpf_link__destroy() still detaches it. To be released by
 * siteseer_link__destroy(), which detaches nothing then. NULL with ENOENT if the link is libbpf's own.
 */
LIBSITESEER_API struct siteseer_link *siteseer_link__of(const struct bpf_link *link);

/* What became of every site. Lives as long as the link. */
LIBSITESEER_API const struct siteseer_report *siteseer_link__report(const struct siteseer_link *link);

/* Whether its sites are attached still: of a link of libbpf's, until that is destroyed. */
LIBSITESEER_API bool siteseer_link__is_attached(const struct siteseer_link *link);

/*
 * How many hits the kernel did not run the program for, and how many calls it missed because an argument lay in memory that
 * could not be read. Negative errno if the kernel does not say.
 */
LIBSITESEER_API int64_t siteseer_link__missed(const struct siteseer_link *link);
LIBSITESEER_API int64_t siteseer_link__faults(const struct siteseer_link *link);

/* What a link takes of the machine. */
struct siteseer_cost {
	size_t sz;
	/* Programs loaded, and bytes of machine code that the kernel made of them. */
	uint64_t programs;
	uint64_t jited;
	/* Files kept open. */
	uint64_t files;
	/* How long loading the programs and arming the sites took, in nanoseconds. */
	uint64_t loading_ns;
	uint64_t arming_ns;
	size_t :0;
};
#define siteseer_cost__last_field arming_ns

/* Fills as much of `cost` as its `sz` says there is. */
LIBSITESEER_API int siteseer_link__cost(const struct siteseer_link *link, struct siteseer_cost *cost);

/*
 * Detaches every site; when it returns, the program runs no more. NULL is allowed. Returns 0.
 */
LIBSITESEER_API int siteseer_link__destroy(struct siteseer_link *link);

/*
 * Removes the definitions of events that processes which are gone have left in tracefs, where they do nothing. Returns how many.
 */
LIBSITESEER_API int siteseer_clean(void);

/* --- reports -------------------------------------------------------------------------------------------------------------- */

/*
 * The last plan or report of a program that libbpf's calls loaded or attached; also of one that siteseer had nothing to add to.
 * NULL with ENOENT if there is none. To be freed.
 */
LIBSITESEER_API struct siteseer_report *siteseer_program__report(const struct bpf_program *prog);

enum siteseer_text_flags {
	/* A line per site, where otherwise sites are counted by what became of them. */
	SITESEER_TEXT_LONG = 1,
};

/* The report for people, of whole lines. Lives as long as the report. */
LIBSITESEER_API const char *siteseer_report__text(const struct siteseer_report *report, uint32_t flags);

struct siteseer_counts {
	size_t sz;
	/* Sites, of them attached, of them skipped. The sum of the two is the first. */
	uint64_t sites;
	uint64_t attached;
	uint64_t skipped;
	/* Skipped ones in code that never runs. */
	uint64_t dead;
	/* Functions, and programs generated. */
	uint64_t functions;
	uint64_t programs;
	size_t :0;
};
#define siteseer_counts__last_field programs

/* Fills as much of `counts` as its `sz` says there is. */
LIBSITESEER_API int siteseer_report__counts(const struct siteseer_report *report, struct siteseer_counts *counts);

/* What a site is. The numbers are those of enum siteseer_site_kind in siteseer.bpf.h. */
enum siteseer_kind {
	SITESEER_KIND_BODY = 0,
	SITESEER_KIND_CLONE = 1,
	SITESEER_KIND_INLINE = 2,
};

/* Strings live as long as the report. */
struct siteseer_site_info {
	size_t sz;
	/* The number that siteseer_site() tells the program. */
	uint32_t id;
	/* enum siteseer_kind */
	uint32_t kind;
	/* The function, and the symbol that holds the probe, `offset` bytes behind its start. */
	const char *function;
	const char *symbol;
	uint64_t offset;
	/* Address of the probe: where the kernel runs, and where it was linked. */
	uint64_t address;
	uint64_t link_address;
	/* Where the copy was called, or the function declared; NULL and 0 if that is not known. */
	const char *source_file;
	uint32_t source_line;
	bool attached;
	/* Hits may outnumber calls there; some calls may not be seen there. */
	bool may_repeat;
	bool may_miss;
	/* What runs the program: "fentry", "kprobe", ...; NULL if it is not attached. */
	const char *mechanism;
	/* Why it is not attached: a word that stays the same ("missing_arguments"), and a sentence; NULL if it is attached. */
	const char *reason;
	const char *reason_text;
	/* The function's prototype, if it is known. */
	const char *prototype;
	size_t :0;
};
#define siteseer_site_info__last_field prototype

LIBSITESEER_API size_t siteseer_report__site_cnt(const struct siteseer_report *report);

/*
 * The site at a place of the list, from 0: fills as much of `info` as its `sz` says there is. -ENOENT behind the last.
 */
LIBSITESEER_API int siteseer_report__site(const struct siteseer_report *report, size_t index, struct siteseer_site_info *info);

/* For reports that one is told to free. NULL is allowed. */
LIBSITESEER_API void siteseer_report__free(struct siteseer_report *report);

#ifdef __cplusplus
}
#endif

#endif /* SITESEER_H */

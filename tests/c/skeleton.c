// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A C application: registered.bpf.o by a skeleton, as bpftool writes one, and the C interface beside it.
 */
#define _GNU_SOURCE
#include "check.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <siteseer.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/syscall.h>
#include <unistd.h>

int siteseer_test_skeleton(const void *elf, size_t size, char *said, size_t room);

enum { MAYBE, ENTRY, PLAIN, BARE, PROGRAMS };

static const char *const names[PROGRAMS] = { "maybe", "entry", "plain", "bare" };

struct bss {
	uint64_t calls[8];
	uint64_t sums[8];
};

struct application {
	struct bpf_object_skeleton skeleton;
	struct bpf_prog_skeleton prog_skeletons[PROGRAMS];
	struct bpf_map_skeleton map_skeletons[1];
	struct bpf_object *object;
	struct bpf_program *programs[PROGRAMS];
	struct bpf_link *links[PROGRAMS];
	struct bpf_map *rodata;
};

static int messages;

static void print(enum siteseer_print_level level, const char *message, void *ctx)
{
	(void)level;
	if (ctx == &messages && *message)
		messages++;
}

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level, (void)format, (void)arguments;
	return 0;
}

static void call(int times)
{
	while (times--)
		syscall(SYS_semget, IPC_PRIVATE, 0x7fff0000, 0);
}

static uint64_t calls(struct application *app, int which)
{
	struct bpf_map *bss = bpf_object__find_map_by_name(app->object, ".bss");
	struct bss values = { 0 };
	uint32_t key = 0;

	if (!bss || bpf_map_lookup_elem(bpf_map__fd(bss), &key, &values))
		return ~0ull;
	return values.calls[which];
}

/* Opens the object and attaches nothing of it that is not asked for. */
static int open_application(struct application *app, const void *elf, size_t size)
{
	LIBBPF_OPTS(siteseer_attach_opts, opts, .policy = SITESEER_POLICY_BEST_EFFORT);
	struct { uint32_t only_tgid; } *rodata;
	struct bpf_program *program;
	size_t bytes;
	int nth;

	memset(app, 0, sizeof(*app));
	app->skeleton.sz = sizeof(app->skeleton);
	app->skeleton.name = "registered";
	app->skeleton.data = elf;
	app->skeleton.data_sz = size;
	app->skeleton.obj = &app->object;
	app->skeleton.prog_cnt = PROGRAMS;
	app->skeleton.prog_skel_sz = sizeof(app->prog_skeletons[0]);
	app->skeleton.progs = app->prog_skeletons;
	app->skeleton.map_cnt = 1;
	app->skeleton.map_skel_sz = sizeof(app->map_skeletons[0]);
	app->skeleton.maps = app->map_skeletons;
	app->map_skeletons[0].name = "register.rodata";
	app->map_skeletons[0].map = &app->rodata;
	for (nth = 0; nth < PROGRAMS; nth++) {
		app->prog_skeletons[nth].name = names[nth];
		app->prog_skeletons[nth].prog = &app->programs[nth];
		app->prog_skeletons[nth].link = &app->links[nth];
	}
	if (bpf_object__open_skeleton(&app->skeleton, NULL))
		return -errno;
	bpf_object__for_each_program(program, app->object) {
		bool wanted = false;

		for (nth = 0; nth < PROGRAMS; nth++)
			wanted |= program == app->programs[nth];
		bpf_program__set_autoload(program, wanted);
	}
	rodata = bpf_map__initial_value(app->rodata, &bytes);
	if (!rodata)
		return -ENOENT;
	rodata->only_tgid = getpid();
	return siteseer_program__set_attach_opts(app->programs[ENTRY], &opts);
}

/* As foo_bpf__destroy(). */
static void close_application(struct application *app)
{
	bpf_object__detach_skeleton(&app->skeleton);
	bpf_object__close(app->object);
}

int siteseer_test_skeleton(const void *elf, size_t size, char *said, size_t room)
{
	LIBBPF_OPTS(siteseer_register_opts, registering);
	LIBBPF_OPTS(siteseer_attach_opts, best_effort, .policy = SITESEER_POLICY_BEST_EFFORT);
	struct siteseer_site_info site = { .sz = sizeof(site) };
	struct siteseer_counts counts = { .sz = sizeof(counts) };
	struct siteseer_cost cost = { .sz = sizeof(cost) };
	struct siteseer_target *target = NULL;
	struct siteseer_report *report = NULL;
	struct siteseer_link *link = NULL, *behind = NULL;
	struct application app;
	size_t nth, attached = 0;
	int failed = 0;

	memset(&app, 0, sizeof(app));
	libbpf_set_print(silent);
	siteseer_set_print(print, &messages);
	CHECK(!siteseer_register(&registering));
	CHECK(!open_application(&app, elf, size));
	CHECK(!bpf_object__load_skeleton(&app.skeleton));
	CHECK(!bpf_object__attach_skeleton(&app.skeleton));
	/* Two composite links, one of libbpf's own, and none for what names nothing. */
	CHECK(app.links[MAYBE] && app.links[ENTRY] && app.links[PLAIN] && !app.links[BARE]);
	CHECK(messages > 0);
	call(5);
	CHECK(calls(&app, MAYBE) == 5 && calls(&app, ENTRY) == 5);

	behind = siteseer_link__of(app.links[MAYBE]);
	CHECK(behind && siteseer_link__is_attached(behind));
	CHECK(!siteseer_report__counts(siteseer_link__report(behind), &counts));
	CHECK(counts.sites == counts.attached + counts.skipped && counts.attached > 1 && counts.functions == 1);
	CHECK(siteseer_report__site_cnt(siteseer_link__report(behind)) == counts.sites);
	for (nth = 0; nth < counts.sites; nth++) {
		CHECK(!siteseer_report__site(siteseer_link__report(behind), nth, &site));
		CHECK(!strcmp(site.function, "ksys_semget") && site.kind <= SITESEER_KIND_INLINE && site.symbol);
		CHECK(site.attached ? site.mechanism && !site.reason : !site.mechanism && site.reason && site.reason_text);
		attached += site.attached;
	}
	CHECK(attached == counts.attached);
	CHECK(siteseer_report__site(siteseer_link__report(behind), nth, &site) == -ENOENT);
	CHECK(strstr(siteseer_report__text(siteseer_link__report(behind), 0), "ksys_semget: attached at"));
	CHECK(siteseer_link__missed(behind) >= 0 && siteseer_link__faults(behind) == 0);
	CHECK(!siteseer_link__cost(behind, &cost) && cost.programs > 0 && cost.files > 0);
	snprintf(said, room, "%s", siteseer_report__text(siteseer_link__report(behind), SITESEER_TEXT_LONG));
	CHECK(!siteseer_link__of(app.links[PLAIN]) && errno == ENOENT);
	report = siteseer_program__report(app.programs[PLAIN]);
	CHECK(report && siteseer_report__site_cnt(report) == 1);
	siteseer_report__free(report);
	report = NULL;

	/* What is asked of does not detach, and what is detached can be asked. */
	bpf_object__detach_skeleton(&app.skeleton);
	CHECK(!siteseer_link__is_attached(behind));
	CHECK(siteseer_link__faults(behind) == 0);
	call(5);
	CHECK(calls(&app, MAYBE) == 5 && calls(&app, ENTRY) == 5);

	/* The same by handles of one's own. */
	target = siteseer_target__running(NULL);
	CHECK(target && strstr(siteseer_target__describe(target), "Linux"));
	report = siteseer_program__plan(app.programs[ENTRY], target, &best_effort);
	CHECK(report && !siteseer_report__counts(report, &counts) && counts.attached > 1);
	link = siteseer_program__attach(app.programs[ENTRY], target, &best_effort);
	CHECK(link && siteseer_link__is_attached(link));
	app.links[MAYBE] = siteseer_program__attach_link(app.programs[MAYBE], target, NULL);
	CHECK(app.links[MAYBE]);
	call(5);
	CHECK(calls(&app, MAYBE) == 10 && calls(&app, ENTRY) == 10);
	CHECK(!siteseer_link__destroy(link));
	link = NULL;
	call(5);
	CHECK(calls(&app, MAYBE) == 15 && calls(&app, ENTRY) == 10);

	/* Errors. */
	best_effort.policy = 7;
	CHECK(!siteseer_program__attach(app.programs[ENTRY], target, &best_effort) && errno == EINVAL);
	CHECK(strstr(siteseer_last_error(), "policy"));
	CHECK(!siteseer_program__attach(app.programs[BARE], target, NULL) && errno == EINVAL);
	CHECK(siteseer_program__set_attach_opts(NULL, NULL) == -EINVAL);
out:
	siteseer_link__destroy(behind);
	siteseer_link__destroy(link);
	siteseer_report__free(report);
	siteseer_target__free(target);
	close_application(&app);
	siteseer_set_print(NULL, NULL);
	if (!failed)
		failed = siteseer_unregister() ? __LINE__ : 0;
	return failed;
}

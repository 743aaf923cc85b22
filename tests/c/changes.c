// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A C application whose link outlives a module: what the C interface tells of it, and how the program is attached in
 * the module when that is loaded again.
 */
#include "check.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <siteseer.h>
#include <stdio.h>
#include <string.h>

int siteseer_test_changes(const struct bpf_program *prog, const char *module, int (*set_loaded)(bool loaded), char *said,
			  size_t room);

struct found {
	const char *module;
	int calls;
	uint64_t sites;
	bool loaded_again;
	bool is_other;
};

static void gone(const struct siteseer_gone *gone, void *ctx)
{
	struct found *found = ctx;

	found->calls++;
	found->sites += gone->sites;
	found->loaded_again |= gone->loaded_again;
	found->is_other |= strcmp(gone->module, found->module) != 0;
}

static void module_name(const char *name, void *ctx)
{
	struct found *found = ctx;

	found->calls++;
	found->is_other |= strcmp(name, found->module) != 0;
}

int siteseer_test_changes(const struct bpf_program *prog, const char *module, int (*set_loaded)(bool loaded), char *said,
			  size_t room)
{
	LIBBPF_OPTS(siteseer_attach_opts, best_effort, .policy = SITESEER_POLICY_BEST_EFFORT);
	struct siteseer_site_info site = { .sz = sizeof(site) };
	struct found found = { .module = module };
	const struct siteseer_report *before, *after;
	struct siteseer_target *target;
	struct siteseer_link *link = NULL, *of = NULL;
	struct bpf_link *libbpfs = NULL;
	int failed = 0;
	size_t sites;

	target = siteseer_target__running(NULL);
	CHECK(target);
	link = siteseer_program__attach(prog, target, &best_effort);
	CHECK(link);
	CHECK(siteseer_link__gone(link, gone, &found) == 0 && found.calls == 0);
	CHECK(siteseer_link__unseen_modules(link, module_name, &found) == 0 && found.calls == 0);
	CHECK(siteseer_link__in_the_way(link, NULL, NULL) == 0);
	CHECK(siteseer_link__tail_slots(link, NULL, NULL) == 0);
	CHECK(siteseer_link__refresh(link, prog, target, &best_effort) == 0);
	before = siteseer_link__report(link);
	sites = siteseer_report__site_cnt(before);
	CHECK(sites > 0);
	/* Without a change, there is no other report: tools refresh all day. */
	CHECK(siteseer_link__refresh(link, prog, target, &best_effort) == 0 && siteseer_link__report(link) == before);

	CHECK(!set_loaded(false));
	CHECK(siteseer_link__gone(link, gone, &found) == 1 && siteseer_link__gone(link, NULL, NULL) == 1);
	CHECK(found.calls == 1 && found.sites == sites && !found.loaded_again && !found.is_other);
	CHECK(!set_loaded(true));
	found = (struct found){ .module = module };
	CHECK(siteseer_link__gone(link, gone, &found) == 1 && found.calls == 1 && found.loaded_again);
	found = (struct found){ .module = module };
	CHECK(siteseer_link__unseen_modules(link, module_name, &found) == 1 && found.calls == 1 && !found.is_other);

	CHECK(siteseer_link__refresh(link, prog, target, &best_effort) == (int)sites);
	CHECK(siteseer_link__unseen_modules(link, NULL, NULL) == 0);
	found = (struct found){ .module = module };
	CHECK(siteseer_link__gone(link, gone, &found) == 1 && !found.loaded_again);
	after = siteseer_link__report(link);
	CHECK(siteseer_report__site_cnt(after) == 2 * sites);
	CHECK(!siteseer_report__site(after, sites, &site) && site.attached);
	/* What was given out is as it was. */
	CHECK(siteseer_report__site_cnt(before) == sites);
	CHECK(siteseer_report__site(before, sites, &site) == -ENOENT);
	CHECK(!siteseer_link__destroy(link));
	link = NULL;

	/* A link of libbpf's can be asked, and is not refreshed. */
	libbpfs = siteseer_program__attach_link(prog, target, &best_effort);
	CHECK(libbpfs);
	of = siteseer_link__of(libbpfs);
	CHECK(of && siteseer_link__gone(of, NULL, NULL) == 0 && siteseer_link__unseen_modules(of, NULL, NULL) == 0);
	CHECK(siteseer_link__in_the_way(of, NULL, NULL) == 0 && siteseer_link__tail_slots(of, NULL, NULL) == 0);
	CHECK(siteseer_link__refresh(of, prog, target, &best_effort) == -EOPNOTSUPP);
	snprintf(said, room, "%s", siteseer_last_error());
out:
	siteseer_link__destroy(link);
	siteseer_link__destroy(of);
	bpf_link__destroy(libbpfs);
	siteseer_target__free(target);
	return failed;
}

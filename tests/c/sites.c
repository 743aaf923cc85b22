// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Prints the places where a function starts, with its arguments, and then those where it returns, as a tool that makes
 * probes of its own would ask for them.
 *
 *	sites FILE FUNCTION
 */
#include <errno.h>
#include <inttypes.h>
#include <siteseer.h>
#include <stdio.h>

static const char *or_none(const char *text)
{
	return text ? text : "-";
}

/* Prints a report. */
static int print(const struct siteseer_report *report)
{
	struct siteseer_site_info site = { .sz = sizeof(site) };
	struct siteseer_argument_info argument = { .sz = sizeof(argument) };
	size_t nth, parameter;
	int error;

	for (nth = 0; !(error = siteseer_report__site(report, nth, &site)); nth++) {
		printf("%u %s+%" PRIu64 " %s %s\n", site.kind, site.symbol, site.offset, or_none(site.mechanism),
		       or_none(site.reason));
		for (parameter = 0; !(error = siteseer_report__argument(report, nth, parameter, &argument)); parameter++)
			printf(" %s %u %s %" PRId64 " %u %s\n", or_none(argument.name), argument.location,
			       or_none(argument.reg), argument.offset, argument.size, or_none(argument.missing));
		if (error != -ENOENT)
			return error;
	}
	return error == -ENOENT && nth == siteseer_report__site_cnt(report) ? 0 : -EPROTO;
}

int main(int argc, char **argv)
{
	static const uint32_t ends[] = { 0, SITESEER_SITES_RETURN };
	struct siteseer_target *target;
	struct siteseer_report *report;
	size_t nth;

	if (argc != 3)
		return 2;
	target = siteseer_target__image(argv[1], NULL);
	if (!target)
		goto failed;
	if (siteseer_target__sites(target, argv[2], 0x100) || errno != EINVAL)
		return 3;
	if (siteseer_target__sites(target, NULL, 0) || errno != EINVAL)
		return 3;
	if (siteseer_target__sites(target, "not a name", 0) || errno != EINVAL)
		return 3;
	for (nth = 0; nth < 2; nth++) {
		printf(nth ? "returns\n" : "entries\n");
		report = siteseer_target__sites(target, argv[2], ends[nth]);
		if (!report || print(report))
			goto failed;
		siteseer_report__free(report);
	}
	siteseer_target__free(target);
	return 0;
failed:
	fprintf(stderr, "%s\n", siteseer_last_error());
	return 1;
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * fsynclat: a histogram of how long vfs_fsync_range() takes.
 *
 *	fsynclat [-p PID]
 *
 * The function is partly inlined, and an inlined copy has no return. So an exit program cannot be everywhere, and
 * siteseer would warn of this. The tool asks for best effort, and says what it could not measure. The entry program
 * asks which site it is at, and so is not kept to the calls that have a return.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/libbpf.h>
#include <siteseer.h>
#include "fsynclat.h"
#include "fsynclat.skel.h"

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

/* Says where a program runs, and where not and why. */
static void print_sites(const struct bpf_program *program)
{
	struct siteseer_report *report = siteseer_program__report(program);

	if (report)
		printf("%s: %s", bpf_program__name(program), siteseer_report__text(report, 0));
	siteseer_report__free(report);
}

static void print_histogram(const struct fsynclat_bpf *skeleton)
{
	static const char stars[] = "****************************************";
	unsigned long long most = 1, measured = 0;
	int slot, last = -1;

	for (slot = 0; slot < SLOTS; slot++) {
		unsigned long long count = skeleton->bss->histogram[slot];

		measured += count;
		if (count)
			last = slot;
		if (count > most)
			most = count;
	}
	printf("%23s : count\n", "microseconds");
	for (slot = 0; slot <= last; slot++) {
		unsigned long long count = skeleton->bss->histogram[slot];

		printf("%10llu -> %-9llu : %-8llu |%-40.*s|\n", slot ? 1ULL << slot : 0ULL, (2ULL << slot) - 1, count,
		       (int)(count * (sizeof(stars) - 1) / most), stars);
	}
	printf("%llu calls, %llu of them for the data alone: %llu measured, %llu by inlined copies, which have no return\n",
	       (unsigned long long)skeleton->bss->calls, (unsigned long long)skeleton->bss->datasyncs, measured,
	       (unsigned long long)skeleton->bss->inlined);
}

static int run(unsigned int pid)
{
	LIBBPF_OPTS(siteseer_attach_opts, at_returns, .policy = SITESEER_POLICY_BEST_EFFORT);
	struct fsynclat_bpf *skeleton;
	int error;

	error = siteseer_register(NULL);
	if (error) {
		fprintf(stderr, "fsynclat: %s\n", siteseer_last_error());
		return error;
	}
	skeleton = fsynclat_bpf__open();
	if (!skeleton) {
		error = -errno;
		fprintf(stderr, "fsynclat: cannot open the BPF object: %s\n", strerror(-error));
		return error;
	}
	skeleton->rodata->only_pid = pid;
	error = siteseer_program__set_attach_opts(skeleton->progs.returned, &at_returns);
	if (!error)
		error = fsynclat_bpf__load(skeleton);
	if (!error)
		error = fsynclat_bpf__attach(skeleton);
	if (error) {
		fprintf(stderr, "fsynclat: %s: %s\n", strerror(-error), siteseer_last_error());
		goto out;
	}
	print_sites(skeleton->progs.entered);
	print_sites(skeleton->progs.returned);
	printf("Tracing; ctrl-C ends it.\n");
	fflush(stdout);
	while (!stop)
		sleep(1);
	print_histogram(skeleton);
out:
	fsynclat_bpf__destroy(skeleton);
	return error;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	unsigned int pid = 0;
	int option;

	while ((option = getopt(argc, argv, "p:")) != -1) {
		if (option != 'p') {
			fprintf(stderr, "usage: fsynclat [-p PID]\n");
			return 2;
		}
		pid = strtoul(optarg, NULL, 10);
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return run(pid) ? 1 : 0;
}

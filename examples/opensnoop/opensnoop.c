// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * opensnoop: prints each open(2), openat(2) and creat(2).
 *
 *	opensnoop [-p PID] [-l]
 *
 * A skeleton application as any other. What makes it see the calls that the compiler inlined is siteseer_register(), and
 * nothing else; with -l it is not called, and libbpf attaches to the function's symbol alone.
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
#include "opensnoop.h"
#include "opensnoop.skel.h"

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static int print_opened(void *context, void *data, size_t size)
{
	const struct opened *event = data;

	(void)context;
	if (size < sizeof(*event))
		return 0;
	printf("%-8u %-16s %08o %s\n", event->pid, event->comm, event->flags, event->path);
	return 0;
}

static int run(unsigned int pid, bool plain)
{
	struct opensnoop_bpf *skeleton;
	struct ring_buffer *ring = NULL;
	int error;

	if (!plain) {
		error = siteseer_register(NULL);
		if (error) {
			fprintf(stderr, "opensnoop: %s\n", siteseer_last_error());
			return error;
		}
	}
	skeleton = opensnoop_bpf__open();
	if (!skeleton) {
		error = -errno;
		fprintf(stderr, "opensnoop: cannot open the BPF object: %s\n", strerror(-error));
		return error;
	}
	skeleton->rodata->only_pid = pid;
	error = opensnoop_bpf__load(skeleton);
	if (!error)
		error = opensnoop_bpf__attach(skeleton);
	if (error) {
		fprintf(stderr, "opensnoop: cannot load or attach: %s\n", plain ? strerror(-error) : siteseer_last_error());
		goto out;
	}
	ring = ring_buffer__new(bpf_map__fd(skeleton->maps.opens), print_opened, NULL, NULL);
	if (!ring) {
		error = -errno;
		fprintf(stderr, "opensnoop: no ring buffer: %s\n", strerror(-error));
		goto out;
	}
	printf("%-8s %-16s %-8s %s\n", "PID", "COMM", "FLAGS", "PATH");
	while (!stop) {
		fflush(stdout);
		error = ring_buffer__poll(ring, 100);
		if (error < 0 && error != -EINTR)
			goto out;
	}
	error = ring_buffer__consume(ring);
	if (error > 0)
		error = 0;
	if (skeleton->bss->lost)
		fprintf(stderr, "opensnoop: %llu calls lost\n", (unsigned long long)skeleton->bss->lost);
out:
	ring_buffer__free(ring);
	opensnoop_bpf__destroy(skeleton);
	return error;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	unsigned int pid = 0;
	bool plain = false;
	int option;

	while ((option = getopt(argc, argv, "p:l")) != -1) {
		switch (option) {
		case 'p':
			pid = strtoul(optarg, NULL, 10);
			break;
		case 'l':
			plain = true;
			break;
		default:
			fprintf(stderr, "usage: opensnoop [-p PID] [-l]\n");
			return 2;
		}
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return run(pid, plain) ? 1 : 0;
}

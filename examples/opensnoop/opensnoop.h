/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What the BPF program tells about a file that is opened. */
#ifndef OPENSNOOP_H
#define OPENSNOOP_H

#define COMM_LEN 16
#define PATH_LEN 256

struct opened {
	unsigned int pid;
	int flags;
	char comm[COMM_LEN];
	char path[PATH_LEN];
};

#endif

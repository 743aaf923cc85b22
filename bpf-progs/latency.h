/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What the programs that time calls tell user space: src/latency.rs reads the same layout. */
#ifndef SITESEER_LATENCY_H
#define SITESEER_LATENCY_H

/* Why a call has no time: indices of the map `untimed`. */
enum {
	/* There is no room for another thread. */
	UNTIMED_ROOM,
	/* Too many calls are in each other. */
	UNTIMED_DEEP,
	/* Its beginning was not seen, or it is not known which one is its. */
	UNTIMED_START,
	UNTIMED_REASONS,
};

/* 0, and the numbers of 1 to 64 bits. */
#define LATENCY_BUCKETS 65

/* The times of one function's calls; the key is the attachment's cookie. */
struct latencies {
	__u64 sum; /* nanoseconds */
	__u64 counts[LATENCY_BUCKETS];
};

#endif

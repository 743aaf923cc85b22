/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * Goes to `out` with `failed` set to the line if a condition does not hold, and writes it to `said`, which has `room` bytes.
 */
#include <errno.h>
#include <siteseer.h>
#include <stdio.h>

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			snprintf(said, room, "%s: errno %d: %s", #condition, errno, siteseer_last_error()); \
			failed = __LINE__;                                                        \
			goto out;                                                                 \
		}                                                                                 \
	} while (0)

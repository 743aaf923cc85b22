/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * If a condition does not hold: writes it to `said`, which has `room` bytes, sets `failed` to the line, and goes to
 * `out`.
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

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace --field`: calls, with members of structures. */
#define TRACE_FILTER
#define TRACE_WITH_FIELDS
#include "trace_body.h"

SEC("kprobe_maybe_inline")
int trace_fields(void *ctx)
{
	return send(ctx, false);
}

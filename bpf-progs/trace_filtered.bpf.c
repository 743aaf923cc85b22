// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace --where`: calls for which an expression holds. */
#define TRACE_FILTER
#include "trace_body.h"

SEC("kprobe_maybe_inline")
int trace_filtered(void *ctx)
{
	return send(ctx, false);
}

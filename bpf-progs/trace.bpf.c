// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace`: every call. */
#include "trace_body.h"

SEC("kprobe_maybe_inline")
int trace(void *ctx)
{
	return send(ctx, false);
}

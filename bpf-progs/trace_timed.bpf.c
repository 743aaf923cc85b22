// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace --latency --returns`: what was returned, and how long the call took. */
#define TRACE_FILTER
#define TRACE_WITH_FIELDS
#define TRACE_TIMED
#include "trace_body.h"

SEC("fexit")
int trace_timed(void *ctx)
{
	return send(ctx, true);
}

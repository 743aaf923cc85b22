// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace --returns`: what was returned, with the arguments that the call had. */
#define TRACE_FILTER
#include "trace_body.h"

SEC("fexit")
int trace_return(void *ctx)
{
	return send(ctx, true);
}

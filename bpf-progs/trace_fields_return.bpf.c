// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The program of `siteseer trace --field --returns`: what was returned, with members of structures as they are at the return. */
#define TRACE_FILTER
#define TRACE_WITH_FIELDS
#include "trace_body.h"

SEC("fexit")
int trace_fields_return(void *ctx)
{
	return send(ctx, true);
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * The program of `siteseer trace --stack`: calls, with the kernel's stack of each. In section fentry, so that bodies are reached by
 * the kernel's own trampolines, from which all callers are found.
 */
#define TRACE_FILTER
#define TRACE_WITH_FIELDS
#define TRACE_WITH_STACK
#include "trace_body.h"

SEC("fentry")
int trace_stack(void *ctx)
{
	return send(ctx, false);
}

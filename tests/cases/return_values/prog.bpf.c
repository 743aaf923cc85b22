// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fexit/siteseer_return_values:to_int")
int BPF_PROG(to_int, long value, int ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_bool")
int BPF_PROG(to_bool, long value, bool ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_pointer")
int BPF_PROG(to_pointer, long value, void *ret)
{
	return SUITE_SEND(value, (long)ret);
}

SEC("fexit/siteseer_return_values:to_char")
int BPF_PROG(to_char, long value, signed char ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_short")
int BPF_PROG(to_short, long value, short ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_byte")
int BPF_PROG(to_byte, long value, unsigned char ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_long")
int BPF_PROG(to_long, long value, long ret)
{
	return SUITE_SEND(value, ret);
}

SEC("fexit/siteseer_return_values:to_nothing")
int BPF_PROG(to_nothing, long value)
{
	return SUITE_SEND(value);
}

/* There is nothing that it returns. */
SEC("fexit/siteseer_return_values:to_nothing")
int BPF_PROG(nothing_returned, long value, long ret)
{
	return SUITE_SEND(value, ret);
}

/* By the helper that is the kernel's own for it. */
SEC("fexit/siteseer_return_values:to_long")
int helper(void *ctx)
{
	__u64 value = 0, ret = 0;

	if (bpf_get_func_arg(ctx, 0, &value) || bpf_get_func_ret(ctx, &ret))
		return 0;
	return SUITE_SEND(value, ret, bpf_get_func_arg_cnt(ctx));
}

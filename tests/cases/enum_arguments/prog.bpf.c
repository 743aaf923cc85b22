// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

enum direction {
	BACK = -7,
	FORTH = 9,
};

enum flags {
	LOW = 1,
	HIGH = 0x80000000,
};

enum wide {
	NEAR = 5,
	FAR = 0x123456789abLL,
};

enum wide_signed {
	BELOW = -0x123456789aLL,
	ABOVE = 6,
};

SEC("fentry/siteseer_enum_arguments:go")
int BPF_PROG(go, enum direction direction, enum flags flags, enum wide wide, enum wide_signed wide_signed)
{
	return SUITE_SEND(direction, flags, wide, wide_signed);
}

SEC("kprobe_maybe_inline/siteseer_enum_arguments:go")
int BPF_PROG(go_maybe, enum direction direction, enum flags flags, enum wide wide, enum wide_signed wide_signed)
{
	return SUITE_SEND(direction, flags, wide, wide_signed);
}

SEC("kprobe_maybe_inline/siteseer_enum_arguments:go")
int go_slots(void *ctx)
{
	return SUITE_SEND(SUITE_SLOT(ctx, 0), SUITE_SLOT(ctx, 1), SUITE_SLOT(ctx, 2), SUITE_SLOT(ctx, 3));
}

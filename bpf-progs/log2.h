/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
#ifndef SITESEER_LOG2_H
#define SITESEER_LOG2_H

/* The number of the highest bit that is set. */
static __always_inline __u32 log2(__u64 value)
{
	__u32 bit = 0;

#pragma unroll
	for (int width = 32; width > 0; width >>= 1) {
		if (value >> width) {
			value >>= width;
			bit += width;
		}
	}
	return bit;
}

#endif

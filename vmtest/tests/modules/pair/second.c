// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "second.h"

int pair_double(int value)
{
	return value * FACTOR;
}

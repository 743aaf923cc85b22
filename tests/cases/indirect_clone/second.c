// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"
#include "fold.h"

/* There is one of this name in each file. */
static long fold(long value, int factor)
{
	return (value ^ 5) * factor;
}

/* So small that it is copied into other files, which must then know fold by a name of its own. */
fold_function *siteseer_second_fold(void)
{
	return fold;
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.h"
#include "fold.h"

static fold_function *folds[2];

static int case_run(unsigned int number)
{
	WRITE_ONCE(folds[0], siteseer_first_fold());
	WRITE_ONCE(folds[1], siteseer_second_fold());
	SUITE_USE(READ_ONCE(folds[0])(SUITE_OPAQUE(long, 11), SUITE_OPAQUE(int, -12)));
	SUITE_USE(READ_ONCE(folds[1])(SUITE_OPAQUE(long, 21), SUITE_OPAQUE(int, 22)));
	SUITE_USE(READ_ONCE(folds[0])(SUITE_OPAQUE(long, -31), SUITE_OPAQUE(int, 32)));
	return 0;
}

SUITE_CASE(case_run);

/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
#ifndef INDIRECT_CLONE_FOLD_H
#define INDIRECT_CLONE_FOLD_H

typedef long fold_function(long value, int factor);

fold_function *siteseer_first_fold(void);
fold_function *siteseer_second_fold(void);

#endif

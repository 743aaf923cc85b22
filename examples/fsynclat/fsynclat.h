/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What the BPF programs count. */
#ifndef FSYNCLAT_H
#define FSYNCLAT_H

/* Latencies of 2^n to 2^(n+1) - 1 microseconds are counted at n; the last has all longer ones. */
#define SLOTS 26

#endif

/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* Which processes `siteseer trace` is about; user space sets the constants. */
#ifndef SITESEER_PROCESS_H
#define SITESEER_PROCESS_H

/* Only this process; 0 for all. */
const volatile __u32 only_tgid = 0;
/* Never this process: the tracer itself. */
const volatile __u32 except_tgid = 0;

/* Whether the thread, by bpf_get_current_pid_tgid(), is of such a process. */
static __always_inline bool is_process(__u64 id)
{
	__u32 tgid = id >> 32;

	return (!only_tgid || tgid == only_tgid) && (!except_tgid || tgid != except_tgid);
}

#endif

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#include "suite.bpf.h"

SEC("fentry.s/siteseer_sleepable:siteseer_may_sleep")
int BPF_PROG(sleeps, int value, const char *text)
{
	char byte = 0;

	/* Only programs that may sleep can call it. Nothing is mapped at 0: -EFAULT. */
	return SUITE_SEND(value, bpf_copy_from_user(&byte, sizeof(byte), NULL));
}

SEC("fexit.s/siteseer_sleepable:siteseer_may_sleep")
int BPF_PROG(sleeps_after, int value, const char *text)
{
	char byte = 0;

	/* Only programs that may sleep can call it. Nothing is mapped at 0: -EFAULT. */
	return SUITE_SEND(value, bpf_copy_from_user(&byte, sizeof(byte), NULL));
}

SEC("fentry.s/siteseer_sleepable:siteseer_may_not_sleep")
int BPF_PROG(may_not, int value, const char *text)
{
	char byte = 0;

	/* Only programs that may sleep can call it. Nothing is mapped at 0: -EFAULT. */
	return SUITE_SEND(value, bpf_copy_from_user(&byte, sizeof(byte), NULL));
}

SEC("fentry.s/siteseer_sleepable:copied")
int BPF_PROG(copies, int value, const char *text)
{
	char byte = 0;

	/* Only programs that may sleep can call it. Nothing is mapped at 0: -EFAULT. */
	return SUITE_SEND(value, bpf_copy_from_user(&byte, sizeof(byte), NULL));
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * What is in one object beside a program of siteseer's: operations of a structure of the kernel's, and an extension of another
 * program.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Only this process. */
const volatile __u32 only_tgid = 0;

/* Calls that each program saw, and the sums of cookies where ways.bpf.c has them: there are none. */
__u64 calls[16];
__u64 cookies[16];

static __always_inline int count(int which)
{
	if (bpf_get_current_pid_tgid() >> 32 == only_tgid)
		__sync_fetch_and_add(&calls[which], 1);
	return 0;
}

SEC("fentry/do_getpgid") int BPF_PROG(enters, int pid)
{
	return count(0);
}

/* Of ways.bpf.c. */
SEC("freplace/add_global") int replaced(int which)
{
	return count(1);
}

struct sock;

/* The members that are set here; libbpf finds their places in the kernel's structure by their names. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
};

SEC("struct_ops/beside_ssthresh") __u32 BPF_PROG(beside_ssthresh, struct sock *sk)
{
	return 2;
}

SEC("struct_ops/beside_cong_avoid") void BPF_PROG(beside_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
}

SEC("struct_ops/beside_undo_cwnd") __u32 BPF_PROG(beside_undo_cwnd, struct sock *sk)
{
	return 2;
}

/* Whichever task or interrupt the connection is made in. */
SEC("struct_ops/beside_init") void BPF_PROG(beside_init, struct sock *sk)
{
	__sync_fetch_and_add(&calls[2], 1);
}

SEC(".struct_ops") struct tcp_congestion_ops beside = {
	.ssthresh = (void *)beside_ssthresh,
	.cong_avoid = (void *)beside_cong_avoid,
	.undo_cwnd = (void *)beside_undo_cwnd,
	.init = (void *)beside_init,
	.name = "siteseer_beside",
};

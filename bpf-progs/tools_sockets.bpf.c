// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Tools that watch sockets.
 */
#include "tools.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	BINDSNOOP,
	SOLISTEN,
	SHUTDOWNSNOOP,
	SOCKETSNOOP,
	TCPCONNECT,
	RECVMMSG,
	UDPCORK,
	IPSEND,
	KEEPALIVE,
	NODELAY,
	SOCKPRIO,
	OUTQ,
	PEERNAME,
	TCPACCEPT,
};

#define AF_INET 2

struct sockaddr_in {
	unsigned short sin_family;
	__be16 sin_port;
	__be32 sin_addr;
};

#define ntohs(port) __builtin_bswap16(port)

/* bindsnoop: the address is a structure, and its first member tells its real type. */
SEC("fentry/__sys_bind_socket")
int BPF_PROG(bindsnoop, struct socket *sock, const void *address, int len)
{
	struct sockaddr_in in = {};
	unsigned short family;

	if (!watched())
		return 0;
	family = sock->sk->__sk_common.skc_family;
	if (family != AF_INET || len < (int)sizeof(in))
		return 0;
	bpf_probe_read_kernel(&in, sizeof(in), address);
	count(BINDSNOOP, ntohs(in.sin_port));
	return 0;
}

SEC("fentry/__sys_listen_socket")
int BPF_PROG(solisten, struct socket *sock, int backlog)
{
	if (watched())
		count(SOLISTEN, ((__u64)backlog << 32) + sock->sk->__sk_common.skc_num);
	return 0;
}

SEC("fentry/__sys_shutdown_sock")
int BPF_PROG(shutdownsnoop, struct socket *sock, int how)
{
	if (watched())
		count(SHUTDOWNSNOOP, how + sock->type);
	return 0;
}

SEC("fentry/sock_create")
int BPF_PROG(socketsnoop, int family, int type, int protocol)
{
	if (watched())
		count(SOCKETSNOOP, (family << 16) + (type << 8) + protocol);
	return 0;
}

/* tcpconnect: by destination. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
} destinations SEC(".maps");

SEC("fentry/connect_socket")
int BPF_PROG(tcpconnect, struct socket *sock, const void *address, int len)
{
	struct sockaddr_in in = {};
	__u64 key, one = 1;

	if (!watched() || sock->sk->sk_protocol != 6 /* IPPROTO_TCP */)
		return 0;
	bpf_probe_read_kernel(&in, sizeof(in), address);
	key = ((__u64)in.sin_addr << 16) + in.sin_port;
	bpf_map_update_elem(&destinations, &key, &one, BPF_ANY);
	count(TCPCONNECT, ntohs(in.sin_port));
	return 0;
}

SEC("fentry/__sys_recvmmsg")
int BPF_PROG(recvmmsg, int fd, void *mmsg, unsigned int vlen, unsigned int flags)
{
	if (watched())
		count(RECVMMSG, vlen + flags);
	return 0;
}

SEC("fentry/udp_push_pending_frames")
int BPF_PROG(udpcork, struct sock *sk)
{
	if (watched())
		count(UDPCORK, ntohs(sk->__sk_common.skc_dport));
	return 0;
}

SEC("fentry/ip_send_skb")
int BPF_PROG(ipsend, void *net, struct sk_buff *skb)
{
	if (watched())
		count(IPSEND, skb->len + skb->sk->__sk_common.skc_family);
	return 0;
}

SEC("fentry/tcp_sock_set_keepcnt")
int BPF_PROG(keepalive, struct sock *sk, int value)
{
	if (watched())
		count(KEEPALIVE, value);
	return 0;
}

SEC("fentry/__tcp_sock_set_nodelay")
int BPF_PROG(nodelay, struct sock *sk, bool on)
{
	if (watched())
		count(NODELAY, on);
	return 0;
}

SEC("fentry/sock_set_priority")
int BPF_PROG(sockprio, struct sock *sk, unsigned int priority)
{
	if (watched())
		count(SOCKPRIO, priority);
	return 0;
}

SEC("fentry/unix_outq_len")
int BPF_PROG(outq, struct sock *sk)
{
	if (watched())
		count(OUTQ, sk->__sk_common.skc_family);
	return 0;
}

SEC("fentry/unix_peer_get")
int BPF_PROG(peername, struct sock *sk)
{
	if (watched())
		count(PEERNAME, sk->__sk_common.skc_family);
	return 0;
}

/* tcpaccept: the returned socket. Its function is never inlined: both ways see all of it. */
SEC("fexit/inet_csk_accept")
int BPF_PROG(tcpaccept, struct sock *sk, void *arg, struct sock *accepted)
{
	if (watched() && accepted)
		count(TCPACCEPT, accepted->__sk_common.skc_num);
	return 0;
}

// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Calls for the tools that watch sockets. Packets go over the loopback interface.

use super::{Group, Tally, Tool, fails, number, owned};
use crate::guest::calls::syscall;
use siteseer_bpf_progs::TOOLS_SOCKETS;
use std::io;
use std::os::fd::OwnedFd;

/// `tools_sockets.bpf.c`.
pub(super) const GROUP: Group = Group {
    name: "sockets",
    elf: TOOLS_SOCKETS,
    tools: &[
        Tool::new("bindsnoop", bindsnoop),
        Tool::new("solisten", solisten),
        Tool::new("shutdownsnoop", shutdownsnoop),
        Tool::new("socketsnoop", socketsnoop),
        Tool::new("tcpconnect", tcpconnect),
        Tool::new("recvmmsg", recvmmsg),
        Tool::new("udpcork", udpcork),
        Tool::new("ipsend", ipsend),
        Tool::new("keepalive", keepalive),
        Tool::new("nodelay", nodelay),
        Tool::new("sockprio", sockprio),
        Tool::new("outq", outq),
        Tool::new("peername", peername),
        Tool::new("tcpaccept", tcpaccept),
    ],
    others: &[],
};

const STREAM: u64 = libc::SOCK_STREAM as u64;
const DATAGRAM: u64 = libc::SOCK_DGRAM as u64;
const UNIX: u64 = libc::AF_UNIX as u64;
const INET: u64 = libc::AF_INET as u64;
/// Ports from here on are nobody else's in the guest.
const PORT: u16 = 40_100;

fn socket(family: u64, kind: u64, protocol: i32) -> io::Result<OwnedFd> {
    Ok(owned(syscall(libc::SYS_socket, [family, kind, protocol as u64, 0, 0, 0])?))
}

/// 127.0.0.1 and a port: struct sockaddr_in.
fn loopback(port: u16) -> [u8; 16] {
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// `bind()` or `connect()`.
fn to_port(call: libc::c_long, socket: &OwnedFd, port: u16) -> io::Result<()> {
    let address = loopback(port);
    syscall(call, [number(socket), address.as_ptr() as u64, 16, 0, 0, 0]).map(drop)
}

fn bound(kind: u64, port: u16) -> io::Result<OwnedFd> {
    let socket = socket(INET, kind, 0)?;
    // A port may still wait for late segments of a connection of the test before.
    option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    to_port(libc::SYS_bind, &socket, port)?;
    Ok(socket)
}

fn listen(socket: &OwnedFd, backlog: u64) -> io::Result<()> {
    syscall(libc::SYS_listen, [number(socket), backlog, 0, 0, 0, 0]).map(drop)
}

fn option(socket: &OwnedFd, level: i32, name: i32, value: u32) -> io::Result<()> {
    let at = (&raw const value) as u64;
    syscall(libc::SYS_setsockopt, [number(socket), level as u64, name as u64, at, 4, 0]).map(drop)
}

fn pair(kind: u64) -> io::Result<[OwnedFd; 2]> {
    let mut fds = [0i32; 2];
    syscall(libc::SYS_socketpair, [UNIX, kind, 0, fds.as_mut_ptr() as u64, 0, 0])?;
    Ok(fds.map(|fd| owned(i64::from(fd))))
}

fn send(socket: &OwnedFd, bytes: usize, flags: i32) -> io::Result<()> {
    let data = vec![0u8; bytes];
    let at = data.as_ptr() as u64;
    syscall(libc::SYS_sendto, [number(socket), at, bytes as u64, flags as u64, 0, 0]).map(drop)
}

fn bindsnoop(tally: &mut Tally) -> io::Result<()> {
    for port in [PORT, PORT + 1, PORT + 2] {
        tally.call(u64::from(port));
        bound(DATAGRAM, port)?;
    }
    // Of another family: the tool passes it over.
    let socket = socket(UNIX, DATAGRAM, 0)?;
    let mut address = [0u8; 10];
    address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    address[3..].copy_from_slice(b"bind-me");
    syscall(libc::SYS_bind, [number(&socket), address.as_ptr() as u64, 10, 0, 0, 0]).map(drop)
}

fn solisten(tally: &mut Tally) -> io::Result<()> {
    for (port, backlog) in [(PORT + 3, 5u64), (PORT + 4, 77)] {
        let socket = bound(STREAM, port)?;
        tally.call((backlog << 32) + u64::from(port));
        listen(&socket, backlog)?;
    }
    Ok(())
}

fn shutdownsnoop(tally: &mut Tally) -> io::Result<()> {
    let [first, second] = pair(STREAM)?;
    for (socket, how) in [(&first, libc::SHUT_WR), (&first, libc::SHUT_RD), (&second, libc::SHUT_RDWR)] {
        tally.call(how as u64 + STREAM);
        syscall(libc::SYS_shutdown, [number(socket), how as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn socketsnoop(tally: &mut Tally) -> io::Result<()> {
    let seen = |family: u64, kind: u64, protocol: i32| (family << 16) + (kind << 8) + protocol as u64;
    for (family, kind, protocol) in [(UNIX, DATAGRAM, 0), (INET, STREAM, libc::IPPROTO_TCP), (INET, DATAGRAM, 0)] {
        // The flags that come with the type are taken off before.
        tally.call(seen(family, kind, protocol));
        socket(family, kind | libc::SOCK_CLOEXEC as u64, protocol)?;
    }
    // One for each end.
    tally.call(seen(UNIX, STREAM, 0));
    tally.call(seen(UNIX, STREAM, 0));
    pair(STREAM).map(drop)
}

fn tcpconnect(tally: &mut Tally) -> io::Result<()> {
    for port in [PORT + 5, PORT + 6] {
        let listener = bound(STREAM, port)?;
        listen(&listener, 5)?;
        tally.call(u64::from(port));
        to_port(libc::SYS_connect, &socket(INET, STREAM, 0)?, port)?;
        // Of another protocol: the tool passes it over.
        to_port(libc::SYS_connect, &socket(INET, DATAGRAM, 0)?, port)?;
    }
    // Nobody listens there.
    tally.call(1);
    let refused = to_port(libc::SYS_connect, &socket(INET, STREAM, 0)?, 1).map(|()| 0);
    fails(refused, libc::ECONNREFUSED)
}

fn recvmmsg(tally: &mut Tally) -> io::Result<()> {
    let [socket, _other] = pair(DATAGRAM)?;
    let headers = [0u64; 8 * 4];
    for count in [1u64, 4] {
        let flags = libc::MSG_DONTWAIT as u64;
        tally.call(count + flags);
        let at = headers.as_ptr() as u64;
        fails(syscall(libc::SYS_recvmmsg, [number(&socket), at, count, flags, 0, 0]), libc::EAGAIN)?;
    }
    Ok(())
}

fn udpcork(tally: &mut Tally) -> io::Result<()> {
    let _receiver = bound(DATAGRAM, PORT + 7)?;
    let socket = socket(INET, DATAGRAM, 0)?;
    to_port(libc::SYS_connect, &socket, PORT + 7)?;
    for _ in 0..3 {
        send(&socket, 10, libc::MSG_MORE)?;
        tally.call(u64::from(PORT + 7));
        send(&socket, 20, 0)?;
    }
    Ok(())
}

fn ipsend(tally: &mut Tally) -> io::Result<()> {
    /// Bytes of the headers.
    const IP: u64 = 20;
    const UDP: u64 = 8;
    let _receiver = bound(DATAGRAM, PORT + 8)?;
    let udp = socket(INET, DATAGRAM, 0)?;
    to_port(libc::SYS_connect, &udp, PORT + 8)?;
    // An echo reply that nobody asked for: nobody answers it.
    let raw = socket(INET, libc::SOCK_RAW as u64, libc::IPPROTO_ICMP)?;
    to_port(libc::SYS_connect, &raw, 0)?;
    for bytes in [16u64, 100] {
        tally.call(IP + UDP + bytes + INET);
        send(&udp, bytes as usize, 0)?;
        tally.call(IP + bytes + INET);
        send(&raw, bytes as usize, 0)?;
    }
    Ok(())
}

fn keepalive(tally: &mut Tally) -> io::Result<()> {
    let socket = socket(INET, STREAM, 0)?;
    for value in [3u32, 9] {
        tally.call(u64::from(value));
        option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, value)?;
    }
    Ok(())
}

fn nodelay(tally: &mut Tally) -> io::Result<()> {
    let socket = socket(INET, STREAM, 0)?;
    for value in [1u32, 0, 5] {
        tally.call(u64::from(value != 0));
        option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, value)?;
    }
    Ok(())
}

fn sockprio(tally: &mut Tally) -> io::Result<()> {
    let socket = socket(INET, DATAGRAM, 0)?;
    for value in [1u32, 6, 1000] {
        tally.call(u64::from(value));
        option(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, value)?;
    }
    Ok(())
}

fn outq(tally: &mut Tally) -> io::Result<()> {
    let [socket, _other] = pair(STREAM)?;
    for _ in 0..3 {
        let mut bytes = 0i32;
        tally.call(UNIX);
        syscall(libc::SYS_ioctl, [number(&socket), libc::TIOCOUTQ, (&raw mut bytes) as u64, 0, 0, 0])?;
    }
    Ok(())
}

fn peername(tally: &mut Tally) -> io::Result<()> {
    let [socket, _other] = pair(STREAM)?;
    for _ in 0..3 {
        let (mut address, mut len) = ([0u8; 128], 128u32);
        tally.call(UNIX);
        let to = (address.as_mut_ptr() as u64, (&raw mut len) as u64);
        syscall(libc::SYS_getpeername, [number(&socket), to.0, to.1, 0, 0, 0])?;
    }
    Ok(())
}

fn tcpaccept(tally: &mut Tally) -> io::Result<()> {
    let listener = bound(STREAM, PORT + 9)?;
    listen(&listener, 5)?;
    for _ in 0..2 {
        let socket = socket(INET, STREAM, 0)?;
        to_port(libc::SYS_connect, &socket, PORT + 9)?;
        tally.call(u64::from(PORT + 9));
        owned(syscall(libc::SYS_accept4, [number(&listener), 0, 0, 0, 0, 0])?);
    }
    Ok(())
}

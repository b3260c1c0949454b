"""measure.py - what a path does: round trips and the goodput of one stream.

Times are taken where the kernel takes them (arrival stamps, byte counts of a
socket), so that a busy machine disturbs them as little as possible.
"""
import socket
import struct
import threading
import time

from lab import Failed, check

ICMP_ECHO, ICMP6_ECHO = 8, 128
SO_TIMESTAMPNS = 35
TCP_INFO_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff


def ping(a, b, count=20, v6=False, interval_s=0.02):
    """Round trips from a to b in ms, of those that came back. The arrival is
    the kernel's stamp; a lost one costs a second."""
    if v6:
        s = a.socket(socket.SOCK_RAW, socket.AF_INET6, socket.IPPROTO_ICMPV6)
        to, kind = (b.address6, 0), ICMP6_ECHO
    else:
        s = a.socket(socket.SOCK_RAW, proto=socket.IPPROTO_ICMP)
        to, kind = (b.address, 0), ICMP_ECHO
    trips = []
    with s:
        s.settimeout(1)
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for number in range(count):
            body = struct.pack("!BBHHH", kind, 0, 0, 0x4c6f, number)
            body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
            sent = time.clock_gettime_ns(time.CLOCK_REALTIME)
            s.sendto(body, to)
            came = echo_reply(s, number, v6)
            if came:
                trips.append((came - sent) / 1e6)
            time.sleep(interval_s)
    return trips


def echo_reply(s, number, v6):
    """Arrival of reply `number` in ns, or None."""
    while True:
        try:
            data, stamps, _, _ = s.recvmsg(2048, 256)
        except TimeoutError:
            return None
        icmp = data if v6 else data[4 * (data[0] & 15):]
        if icmp[0] == (129 if v6 else 0) and \
                struct.unpack("!HH", icmp[4:8]) == (0x4c6f, number):
            seconds, ns = struct.unpack("qq", stamps[0][2][:16])
            return seconds * 1_000_000_000 + ns


class Stream:
    """One TCP stream from a to b that always has something to send."""

    def __init__(self, a, b, port=5001):
        with b.listener(port) as listener:
            self.source = a.socket()
            self.source.settimeout(30)
            self.source.connect((b.address, port))
            self.sink = listener.accept()[0]
        self.threads = [threading.Thread(target=self.send, daemon=True),
                        threading.Thread(target=self.receive, daemon=True)]
        for thread in self.threads:
            thread.start()

    def send(self):
        data = bytes(1 << 18)
        try:
            while True:
                self.source.sendall(data)
        except OSError:
            pass

    def receive(self):
        data = bytearray(1 << 20)
        try:
            while self.sink.recv_into(data):
                pass
        except OSError:
            pass

    def received(self):
        """Bytes that have arrived in order, and when that was asked."""
        info = self.sink.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return (struct.unpack_from("Q", info, TCP_INFO_RECEIVED)[0],
                time.monotonic())

    def mbits(self, seconds):
        """Mbit/s of goodput over the next seconds."""
        bytes0, began = self.received()
        time.sleep(seconds)  # the window that is measured
        bytes1, ended = self.received()
        return (bytes1 - bytes0) * 8 / (ended - began) / 1e6

    def settled(self, low, high, seconds=20, window_s=1.5):
        """The first goodput in low..high, in windows of window_s; fails after
        `seconds` without one."""
        windows = []
        while len(windows) * window_s < seconds:
            windows.append(self.mbits(window_s))
            if low <= windows[-1] <= high:
                return windows[-1]
        raise Failed(f"never {low} to {high} Mbit/s but "
                     f"{[round(w, 2) for w in windows]}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for s in (self.source, self.sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join(10)
            check(not thread.is_alive() or kind, "a stream does not end")
        self.source.close()
        self.sink.close()

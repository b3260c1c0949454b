"""natpmp.py - a home router of 2008: it speaks NAT-PMP (RFC 6886) and nothing
newer. Runs in the namespace of a box; maps by nftables.

use: python3 natpmp.py WAN OUTER_ADDRESS

The tables are those of lab.py. To a question of another version, such as PCP,
it says that it knows version 0 alone.
"""
import socket
import struct
import subprocess
import sys
import time

PORT = 5351
TCP = 2


def nft(*words):
    done = subprocess.run(["nft", *words], capture_output=True, text=True,
                          check=True)
    return done.stdout


class Router:
    def __init__(self, wan, outer):
        self.wan = wan
        self.outer = socket.inet_aton(outer)
        self.began = time.monotonic()
        self.handles = {}  # (address, inner port): the rule

    def epoch(self):
        return int(time.monotonic() - self.began)

    def unmap(self, key):
        handle = self.handles.pop(key, None)
        if handle is not None:
            nft("delete", "rule", "inet", "nat", "prerouting", "handle",
                handle)

    def map(self, address, inner, outer):
        self.unmap((address, inner))
        said = nft("--echo", "--handle", "add", "rule", "inet", "nat",
                   "prerouting", "iifname", self.wan, "tcp", "dport",
                   str(outer), "dnat", "ip", "to", f"{address}:{inner}")
        self.handles[address, inner] = said.rsplit("# handle", 1)[1].split()[0]

    def answer(self, data, address):
        if len(data) < 2 or data[0] != 0:
            return struct.pack("!BBHI", 0, 128, 1, self.epoch())
        if data[1] == 0:
            return struct.pack("!BBHI4s", 0, 128, 0, self.epoch(), self.outer)
        if data[1] != TCP or len(data) < 12:
            return struct.pack("!BBHI", 0, 128 + data[1], 5, self.epoch())
        inner, outer, lease = struct.unpack("!HHI", data[4:12])
        if lease == 0:
            self.unmap((address, inner))
            outer = 0
        else:
            outer = outer or inner
            self.map(address, inner, outer)
        return struct.pack("!BBHIHHI", 0, 128 + TCP, 0, self.epoch(), inner,
                           outer, lease)


def main(wan, outer):
    router = Router(wan, outer)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("0.0.0.0", PORT))
    while True:
        data, sender = s.recvfrom(2000)
        s.sendto(router.answer(data, sender[0]), sender)


if __name__ == "__main__":
    main(*sys.argv[1:])

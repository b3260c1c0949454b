#!/usr/bin/env python3
"""raw_loop.py - a training loop of its own, from the text of trainer_msg.h.

use: raw_loop.py STATE [--goal G] [--nan-after N] [--hang-after N]
                       [--step-s S] [--read] [--still]

It speaks the packets by itself, without libloco, and so checks what
proto/trainer_msg.h says. "Training" moves each parameter a tenth of the way to
the goal G; with --still nothing moves, and the loop needs no memory of its own
for a large model. What happens is one JSON object a line on stdout. Exit code 0: the
daemon said STOP with code 0.
"""
import argparse
import array
import json
import math
import mmap
import os
import socket
import struct
import sys
import time

HELLO, WELCOME, REFUSED, GO, GIVE, GIVEN, TAKE, TAKEN, STEP, READ, TEXT = \
    range(1, 12)
STOP = 14
VERSION = 1
WELCOME_FIELDS = ("version run_id bytes n n_tensors layout_at layout_bytes "
                  "theta_at tokens_at targets_at batch seq vocab tokens_most "
                  "period run_name preset").split()
TENSOR = struct.Struct("<2Q8Q2I")


def pack(value):
    """One value in msgpack's shortest form."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, bytes):
        return b"\xc4" + bytes([len(value)]) + value
    if isinstance(value, (list, tuple)):
        return bytes([0x90 | len(value)]) + b"".join(map(pack, value))
    for top, head, form in ((128, b"", "B"), (1 << 8, b"\xcc", "B"),
                            (1 << 16, b"\xcd", ">H"), (1 << 32, b"\xce", ">I"),
                            (1 << 64, b"\xcf", ">Q")):
        if value < top:
            return head + struct.pack(form, value)
    raise ValueError(value)


def unpack(b, at=0):
    """(value, place behind it)"""
    c = b[at]
    at += 1
    if c < 0x80:
        return c, at
    if c & 0xf0 == 0x90 or c == 0xdc:
        n = c & 15
        if c == 0xdc:
            n, at = struct.unpack_from(">H", b, at)[0], at + 2
        values = []
        for _ in range(n):
            value, at = unpack(b, at)
            values.append(value)
        return values, at
    if c in (0xc2, 0xc3):
        return c == 0xc3, at
    if c in (0xc4, 0xc5):
        form = ">B" if c == 0xc4 else ">H"
        n = struct.unpack_from(form, b, at)[0]
        at += struct.calcsize(form)
        return b[at:at + n], at + n
    form = {0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q"}[c]
    return struct.unpack_from(form, b, at)[0], at + struct.calcsize(form)


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def tell(**what):
    print(json.dumps(what), flush=True)


class Loop:
    def __init__(self, a):
        self.a = a
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connect(time.monotonic() + 60)
        self.send(HELLO, [VERSION, os.getpid(), False, b"raw_loop"])
        packet, files, _, _ = socket.recv_fds(self.socket, 4096, 1)
        if packet[0] == REFUSED:
            tell(refused=unpack(packet, 1)[0][0].decode())
            sys.exit(3)
        self.w = dict(zip(WELCOME_FIELDS, unpack(packet, 1)[0]))
        self.map = mmap.mmap(files[0], self.w["bytes"])
        os.close(files[0])
        tell(welcome={k: v for k, v in self.w.items()
                      if isinstance(v, int)}, tensors=self.tensors())
        self.params = array.array("f")
        self.steps = 0

    def connect(self, until):
        """A daemon that was killed leaves its socket's file behind."""
        while True:
            try:
                self.socket.connect(os.path.join(self.a.state,
                                                 "trainer.sock"))
                return
            except (ConnectionRefusedError, FileNotFoundError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def tensors(self):
        found, at = {}, self.w["layout_at"]
        for _ in range(self.w["n_tensors"]):
            offset, numel, *rest = TENSOR.unpack_from(self.map, at)
            n_dims, name_bytes = rest[8:]
            at += TENSOR.size
            name = self.map[at:at + name_bytes].decode()
            at += (name_bytes + 7) & ~7
            found[name] = [offset, numel, rest[:n_dims]]
        return found

    def send(self, kind, fields=(0,)):
        try:
            self.socket.sendall(bytes([kind]) + pack(list(fields)))
        except ConnectionError:
            pass  # what is read next says it

    def next_packet(self):
        """b"" at the end of the connection, None: nothing now."""
        try:
            return self.socket.recv(4096)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def receive(self):
        packet = self.next_packet()
        if not packet:
            tell(gone=True)
            sys.exit(4)
        return packet[0], unpack(packet, 1)[0]

    def theta(self):
        at = self.w["theta_at"]
        return at, at + 4 * self.w["n"]

    def train(self):
        goal = self.a.goal
        self.params = array.array("f", [x + 0.1 * (goal - x)
                                        for x in self.params])
        self.steps += 1
        if self.steps == self.a.nan_after:
            self.params[3] = math.nan
        if self.steps == self.a.hang_after:
            tell(hangs=self.steps)
            time.sleep(3600)
        if self.a.step_s:
            time.sleep(self.a.step_s)

    def go(self, steps):
        """Make them, unless something comes in between."""
        for _ in range(steps):
            if self.a.read:
                self.send(READ)
                kind, fields = self.receive()
                if kind == GIVE:
                    assert self.receive()[0] == TEXT
                    self.give()
                    return
                assert kind == TEXT, kind
            self.train()
            self.send(STEP, [self.w["tokens_most"], bits(abs(
                self.params[0] - self.a.goal))])
            self.socket.setblocking(False)
            packet = self.next_packet()
            self.socket.setblocking(True)
            if packet is not None:
                self.on(packet[0] if packet else None,
                        unpack(packet, 1)[0] if packet else None)
                return

    def give(self):
        first, end = self.theta()
        if not self.a.still:
            self.map[first:end] = self.params.tobytes()
        self.send(GIVEN)

    def on(self, kind, fields):
        if kind == GO:
            self.go(fields[0])
        elif kind == GIVE:
            self.give()
        elif kind == TAKE:
            first, end = self.theta()
            if self.a.still:
                end = first + 4
            self.params = array.array("f", self.map[first:end])
            tell(take=fields[0], reset=fields[1], first=self.params[0],
                 last=self.params[-1])
            self.send(TAKEN)
        elif kind == STOP:
            tell(stop=fields[0], text=fields[1].decode(), steps=self.steps)
            sys.exit(0 if fields[0] == 0 else 5)
        else:
            tell(gone=True)
            sys.exit(4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("state")
    parser.add_argument("--goal", type=float, default=1.0)
    parser.add_argument("--nan-after", type=int, default=0)
    parser.add_argument("--hang-after", type=int, default=0)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--still", action="store_true")
    loop = Loop(parser.parse_args())
    while True:
        loop.on(*loop.receive())


if __name__ == "__main__":
    main()

"""press.py - a crowd of strangers that press on a daemon as fast as they can.

A *Press* holds many links in one thread: it dials, shakes hands, says what its
`say` gives for as long as the other side takes it, reads or does not, and
dials again what was closed. What is said was made and signed before, so that
the crowd needs little of a processor and the daemon does the work.

presses.py has the attacks; bench/press.py measures what they cost.
"""
import errno
import os
import random
import selectors
import socket
import struct
import time

import peer
from messages import MESSAGES, Maker, msgpack

SECOND_BYTES = 4 + 204  # of the handshake, with the record's length
RECORD_MAX = 65519  # plain bytes
KEEP, BEAT = 1, 4  # flags of PULSE: I keep this link; send me your HEARTBEAT
SHAKE_S = 6  # the other side gives up after 5


def frame(name, values):
    payload = msgpack.packb(values, use_bin_type=True)
    return struct.pack("<IBBH", len(payload), MESSAGES[name][0], 0, 0) + payload


def records(frames, limit=RECORD_MAX):
    """Frames, gathered to records of about that size."""
    gathered, size = [], 0
    for one in frames:
        if gathered and size + len(one) > limit:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(one)
        size += len(one)
    if gathered:
        yield b"".join(gathered)


def hello_of(life):
    return frame("HELLO", [life, [bytes(10) + b"\xff\xff\x7f\0\0\1", 0], 0,
                           peer.VERSION, peer.VERSION])


class Link:
    def __init__(self, number, identity):
        self.number = number
        self.identity = identity
        self.life = random.getrandbits(63) | 1
        self.connection = None
        self.is_connected = self.is_up = False
        self.sealed = b""  # came, not yet a whole record
        self.began = 0
        self.out = b""  # sealed, not yet taken by the kernel
        self.n_said = 0  # records of this connection
        self.wakes = 0  # when it wants to say more


class Press:
    """say(link): the next record's plain bytes; None or a number: nothing, for
    so many seconds. on_frame(link, number, values): what comes; without it all
    is thrown away unread by us, but read from the kernel if `reads`. once: of
    the handshake only this is done ("connect", "first", "up"). kinds: of the
    connections. sources: local addresses that the links come from, by turns.
    """

    def __init__(self, target, run_id, n_links, say=None, *, on_frame=None,
                 reads=True, once=None, kind=peer.CONTROL, identity=None,
                 new_ids=False, life_s=None, shake_s=SHAKE_S, listens=0, sources=None,
                 window=0):
        self.target, self.run_id = target, run_id
        self.say, self.on_frame, self.reads = say, on_frame, reads
        self.once, self.kind, self.new_ids = once, kind, new_ids
        self.life_s, self.shake_s, self.listens = life_s, shake_s, listens
        self.sources, self.window = sources, window
        self.selector = selectors.DefaultSelector()
        self.links = [Link(i, identity(i) if identity else peer.Identity())
                      for i in range(n_links)]
        self.counts = {"dialled": 0, "up": 0, "closed": 0, "bytes": 0,
                       "heard": 0}
        self.n_up = 0

    def step(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = time.monotonic()
            for link in self.links:
                if link.connection is None and link.wakes <= now:
                    self.dial(link)
                elif link.connection is not None and self.is_old(link, now):
                    self.close(link)
                elif link.is_up and 0 < link.wakes <= now:
                    link.wakes = 0
                    self.watch(link)
            self.poll(0.01)

    def is_old(self, link, now):
        age = now - link.began
        return (age > self.shake_s and not link.is_up and self.once is None) or \
            (self.life_s is not None and age > self.life_s)

    def poll(self, seconds):
        for key, what in self.selector.select(seconds):
            link = key.data
            if link.connection is None or key.fileobj is not \
                    link.connection.sock:
                continue
            try:
                if what & selectors.EVENT_READ:
                    self.read(link)
                if what & selectors.EVENT_WRITE and link.connection:
                    self.write(link)
            except BlockingIOError:
                pass
            except (OSError, ValueError, struct.error):
                self.close(link)
            except Exception:  # pylint: disable=broad-except
                self.close(link)  # a record of another key

    # ---- one link -------------------------------------------------------

    def dial(self, link):
        s = socket.socket()
        s.setblocking(False)
        if self.window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.window)
        try:
            if self.sources:
                s.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
                s.bind((self.sources[link.number % len(self.sources)], 0))
            rc = s.connect_ex(self.target)
        except OSError:
            rc = errno.EADDRNOTAVAIL
        if rc not in (0, errno.EINPROGRESS):
            s.close()
            link.wakes = time.monotonic() + 0.1
            return
        if self.new_ids and link.n_said:
            link.identity = peer.Identity()
        link.connection = peer.Connection(s, link.identity, self.run_id)
        link.is_up, link.out, link.n_said, link.wakes = False, b"", 0, 0
        link.is_connected, link.sealed = False, b""
        link.began = time.monotonic()
        self.counts["dialled"] += 1
        self.selector.register(s, selectors.EVENT_WRITE, link)

    def close(self, link):
        self.selector.unregister(link.connection.sock)
        link.connection.sock.close()
        self.n_up -= link.is_up
        self.counts["closed"] += 1
        link.connection, link.is_up, link.wakes = None, False, 0

    def close_all(self):
        for link in self.links:
            if link.connection is not None:
                self.close(link)

    def watch(self, link, writes=True):
        what = selectors.EVENT_WRITE if writes else 0
        if self.reads or not link.is_up:
            what |= selectors.EVENT_READ
        self.selector.modify(link.connection.sock,
                             what or selectors.EVENT_WRITE, link)

    def connected(self, link):
        why = link.connection.sock.getsockopt(socket.SOL_SOCKET,
                                              socket.SO_ERROR)
        if why:
            raise OSError(why, os.strerror(why))
        link.is_connected = True
        if self.once == "connect":
            if self.say is None:
                return self.watch(link, writes=False)
            link.is_up = True
            self.n_up += 1
            return None
        link.connection.begin(self.kind, self.listens)
        return self.watch(link, writes=False)

    def read(self, link):
        c = link.connection
        if not link.is_up:
            seen = c.sock.recv(SECOND_BYTES, socket.MSG_PEEK)
            if not seen:
                raise OSError("closed")
            if len(seen) < SECOND_BYTES:
                return
            if self.once == "first":
                return self.close(link)
            c.finish()
            link.is_up = True
            self.counts["up"] += 1
            self.n_up += 1
            if self.once == "up":
                return self.close(link)
            if self.kind == peer.CONTROL:
                self.seal(link, hello_of(link.life))
            return self.watch(link)
        data = c.sock.recv(1 << 18)
        if not data:
            raise OSError("closed")
        self.counts["heard"] += len(data)
        if self.on_frame:
            self.take(link, data)
        return None

    def take(self, link, data):
        """Whole records of what came are opened, and whole frames handed on."""
        link.sealed += data
        c = link.connection
        while len(link.sealed) >= 4:
            n = struct.unpack("<I", link.sealed[:4])[0]
            if len(link.sealed) < 4 + n:
                break
            c.plain += bytes(c.noise.decrypt(link.sealed[4:4 + n]))
            link.sealed = link.sealed[4 + n:]
        while len(c.plain) >= 8:
            n, number, _, _ = struct.unpack("<IBBH", c.plain[:8])
            if len(c.plain) < 8 + n:
                break
            values = msgpack.unpackb(c.plain[8:8 + n], raw=False)
            c.plain = c.plain[8 + n:]
            self.on_frame(link, number, values)

    def seal(self, link, plain):
        sealed = link.connection.noise.encrypt(plain)
        link.out += struct.pack("<I", len(sealed)) + bytes(sealed)
        link.n_said += 1

    def write(self, link):
        if not link.is_connected:
            return self.connected(link)
        if not link.out:
            what = self.say(link) if self.say else None
            if what is None or isinstance(what, (int, float)):
                link.wakes = time.monotonic() + (1 if what is None else what)
                return self.watch(link, writes=False)
            if self.once == "connect":  # no handshake: as they are
                link.out = what
                link.n_said += 1
            else:
                self.seal(link, what)
        n = link.connection.sock.send(link.out)
        self.counts["bytes"] += n
        link.out = link.out[n:]
        return None


class Scout:
    """A stranger that only listens: what it hears, attacks name."""

    def __init__(self, target, run_id, seed=1):
        self.heard = {}
        self.maker = Maker(random.Random(seed))
        self.maker.learn("run", ("bin", 32), run_id)
        self.names = {number: name for name, (number, _) in MESSAGES.items()}
        self.press = Press(target, run_id, 1, self.ask, on_frame=self.hear)

    def ask(self, link):
        """What it is not told by itself, again and again."""
        if link.n_said % 2 == 0:
            link.n_said += 1
            return 0.3
        pulse = frame("PULSE", [KEEP | BEAT, 0, 0, 0, 0])
        return pulse + frame("GET_VIEW", [True]) + (
            frame("GET_MANIFEST", [0]) if link.n_said == 1 else b"")

    def hear(self, _, number, values):
        name = self.names.get(number)
        if name is not None:
            self.heard[name] = values
            self.maker.hear(MESSAGES[name][1], values)

    def wait(self, *names, seconds=20):
        end = time.monotonic() + seconds
        while not all(n in self.heard for n in names):
            if time.monotonic() > end:
                raise TimeoutError(f"heard only {sorted(self.heard)}")
            self.press.step(0.05)
        return self

    def beat(self):
        names = [name for name, _ in MESSAGES["HEARTBEAT"][1]]
        return dict(zip(names, self.heard["HEARTBEAT"]))

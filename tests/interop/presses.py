#!/usr/bin/env python3
"""presses.py - what strangers do to a daemon without end, and the program that
does it.

use: presses.py NAME RUN_ID HOST:PORT [HOST:PORT..] [--control HOST:PORT]
                [--sources ADDRESS..] [--seconds S]

It prepares, says "ready", waits for a line, presses until its input ends or
for S seconds, and prints what it did as one JSON object. bench/press.py runs
it in a control group of half a core. A new attack is a function with @attack.
"""
import argparse
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import time

import peer
from messages import MESSAGES, STRUCTS, Maker, msgpack, sign, view_hash
from press import RECORD_MAX, Press, Scout, frame, records

ATTACKS = {}
RNG = random.Random(7)
RELAY = 4  # the kind of a connection
REACH_PUBLIC = 1
BUFFER_STATE, BUFFER_SHARD = 2, 3
POLITE = ("HELLO", "REFUSED")


def attack(name, sentence):
    def register(function):
        ATTACKS[name] = sentence, function
        return function
    return register


class At:
    """Whom an attack is against, and what is known of its run."""

    def __init__(self, targets, run_id, control=None, sources=None):
        self.target, *self.others = targets
        self.run_id = run_id
        self.control, self.sources = control, sources
        self.scout = None

    def look(self, *names):
        self.scout = Scout(self.target, self.run_id).wait("HEARTBEAT", *names)
        return self.scout

    def press(self, n_links, say=None, **options):
        return Press(self.target, self.run_id, n_links, say,
                     sources=self.sources, **options)


def over_and_over(frames):
    """say() of these frames, each link from its own place on."""
    made = list(records(frames))
    return lambda link: made[(link.n_said + 7 * link.number) % len(made)]


def address(n):
    """One that nobody has: 198.18.0.0/15 is for measurements."""
    return [bytes(10) + b"\xff\xff" + struct.pack(">I", 0xC6120000 + n % 131072),
            7700]


def local(n):
    return [bytes(10) + b"\xff\xff" + struct.pack(">I", 0x7F000002 + n % 65000),
            9]


# ---- connections ----------------------------------------------------------------


@attack("silent", "1,000 connections that say nothing")
def silent(at):
    return at.press(1000, once="connect", life_s=60)


@attack("half-open", "first messages of handshakes, and no third")
def half_open(at):
    return at.press(300, once="first")


@attack("handshakes", "whole handshakes of new identities, then the end")
def handshakes(at):
    return at.press(100, once="up", new_ids=True)


@attack("garbage", "connections of random bytes")
def garbage(at):
    made = [RNG.randbytes(RNG.randrange(1, 4096)) for _ in range(100)]
    return at.press(100, lambda link: RNG.choice(made), once="connect")


@attack("links", "400 links, each opened again when it is closed")
def links(at):
    ask = frame("GET_MANIFEST", [1 << 30])
    return at.press(400, lambda link: 5 if link.n_said % 2 else ask)


@attack("bulk", "700 bulk connections that say nothing")
def bulk(at):
    return at.press(700, kind=peer.BULK)


@attack("unread", "250 links that ask and do not read")
def unread(at):
    ask = frame("GET_MANIFEST", [0]) * 300 + frame("GET_VIEW", [True]) * 300
    return at.press(250, lambda link: ask, reads=False, window=4096)


# ---- messages that cost signatures ----------------------------------------------


def founded(at, beat, epoch, identities, addresses):
    """(body, VIEW) that these founded, all of whom signed."""
    members = [[who.public, addresses(i), epoch, epoch, 0]
               for i, who in enumerate(sorted(identities, key=lambda w: w.id))]
    body = [at.run_id, epoch, at.run_id, 2, False, 0, beat["round"] + 9,
            beat["tokens"] + 10**6, RNG.randbytes(32), members, [], [], 0]
    ballot = [1, view_hash(body)]
    return body, [body, 1, [[who.public, sign(who, "ballot_body", ballot)]
                            for who in identities], []]


def named_views(at, n_members, n_views, addresses):
    """Each: a heartbeat that names the view, the view, a lineage."""
    beat = at.look("VIEW").beat()
    pool = [peer.Identity() for _ in range(n_members)]
    for i in range(n_views):
        body, cert = founded(at, beat, beat["epoch"] + 1 + i % 9, pool,
                             lambda k, i=i: addresses(64 * i + k))
        said = dict(beat, life=7, number=i % 256, has_view=True,
                    epoch=body[1], view=view_hash(body))
        yield frame("HEARTBEAT", list(said.values()))
        yield frame("VIEW", cert)
        yield frame("LINEAGE", [beat["epoch"], [beat["view"]]])


@attack("views", "VIEW of mode 2 with made-up addresses, and LINEAGE")
def views(at):
    return at.press(8, over_and_over(named_views(at, 3, 300, address)))


@attack("certificates", "VIEWs with 64 good signatures each")
def certificates(at):
    return at.press(8, over_and_over(named_views(at, 64, 40, local)))


def with_body(name, identity, values):
    """A message of that body with the identity's signature."""
    kind = MESSAGES[name][1][0][1][1]
    return frame(name, [values, sign(identity, kind, values),
                        *([b""] if name == "FORWARD" else [])])


@attack("goodbyes", "GOODBYE and EVALUATED, signed, over 8 links")
def goodbyes(at):
    beat = at.look("VIEW").beat()
    pool = [peer.Identity() for _ in range(8)]
    made = [list(records(
        frames)) for frames in (
            [x for i in range(400) for x in (
                with_body("GOODBYE", who, [at.run_id, who.id,
                                           beat["epoch"] + i]),
                with_body("EVALUATED", who, [beat["commit"],
                                             beat["round"] + i, i]))]
            for who in pool)]
    return at.press(8, lambda link: RNG.choice(made[link.number]),
                    identity=lambda i: pool[i])


class Joins:
    """Identities with a link to each member. They say JOIN until they are in,
    and then what a member says that does not want to be lost."""

    def __init__(self, at, n):
        self.at, self.made = at, {}
        self.scout = at.look("VIEW")
        pool = [peer.Identity() for _ in range(n)]
        lives = [RNG.getrandbits(63) | 1 for _ in range(n)]
        self.presses = [Press(t, at.run_id, n, self.say,
                              identity=lambda i: pool[i])
                        for t in (at.target, *at.others)]
        for press in self.presses:
            for link in press.links:
                link.life = lives[link.number]
        self.counts = self.presses[0].counts

    def linked(self):
        members = dict(zip([n for n, _ in STRUCTS["view_body"]],
                           self.scout.heard["VIEW"][0]))["members"]
        return [struct.unpack("<4xI", peer.blake2b(m[0])[:8])[0]
                for m in members][:64]

    def join(self, link, beat):
        """Signed once for each commit and view."""
        made = self.made.get(link.number)
        if made is None or made[0] != (beat["commit"], beat["view"]):
            fields = dict.fromkeys((n for n, _ in STRUCTS["join_body"]), 0)
            fields.update(run=self.at.run_id, view=beat["view"],
                          round=beat["round"], commit=beat["commit"],
                          state=beat["state_hash"], proof=bytes(32),
                          address=local(link.number),
                          linked=self.linked())
            made = (beat["commit"], beat["view"]), with_body(
                "JOIN", link.identity, list(fields.values()))
            self.made[link.number] = made
        return made[1]

    def say(self, link):
        beat = self.scout.beat()
        if link.n_said % 2 == 0 or not beat["has_view"]:
            link.n_said += 1
            return 0.5
        said = dict(beat, life=link.life, number=link.n_said % 256)
        return frame("HEARTBEAT", list(said.values())) + frame("PULSE", [
            1, link.n_said % 256, int(time.monotonic() * 1000) // 16 % 65536,
            struct.unpack("<H", beat["view"][:2])[0], (1 << 64) - 1]) + \
            self.join(link, beat)

    def step(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.scout.press.step(0.01)
            for press in self.presses:
                press.step(0.02)


@attack("joins", "60 identities of one machine that join and do nothing")
def joins(at):
    return Joins(at, 60)


def of_any(at, names, n):
    """n frames with values that get past the first checks, signed."""
    scout = at.look("VIEW")
    maker = Maker(RNG)
    maker.known = scout.maker.known
    for _ in range(n):
        name = RNG.choice(names)
        values = maker.message(name)[1]
        made = frame(name, values)
        if len(made) < RECORD_MAX:
            yield made


SIGNED = [name for name, (_, fields) in MESSAGES.items()
          if any(f == "sig" for f, _ in fields)]


@attack("signed", "all signed messages, over 8 links")
def signed(at):
    return at.press(8, over_and_over(of_any(at, SIGNED, 3000)))


@attack("forged", "JOIN and GOODBYE with wrong signatures, of new identities")
def forged(at):
    scout = at.look("VIEW")
    beat = scout.beat()

    def say(link):
        bye = [[at.run_id, link.identity.id, beat["epoch"]], bytes(64)]
        return frame("GOODBYE", bye) * 50

    return at.press(40, say, new_ids=True)


@attack("any", "any message of the schema, over 8 links")
def any_message(at):
    names = [n for n in MESSAGES if n not in POLITE]
    return at.press(8, over_and_over(of_any(at, names, 3000)))


# ---- messages that cost something else ------------------------------------------


@attack("called", "CALLED of made-up peers at made-up addresses")
def called(at):
    return at.press(8, over_and_over(
        frame("CALLED", [RNG.randbytes(32), (local if i % 2 else address)(i), 0])
        for i in range(3000)))


def peer_info(maker, i):
    values = maker.struct(STRUCTS["peer_info"])
    names = [n for n, _ in STRUCTS["peer_info"]]
    values[names.index("id")] = RNG.randbytes(32)
    values[names.index("address")] = local(i)
    values[names.index("incarnation")] = RNG.randrange(1000)
    return values


@attack("gossip", "GOSSIP and SHUFFLE of made-up peers and of members")
def gossip(at):
    maker = at.look("VIEW").maker
    made = []
    for i in range(200):
        peers = [peer_info(maker, 24 * i + k) for k in range(24)]
        rumours = [maker.struct(STRUCTS["rumour"]) for _ in range(32)]
        made += [frame("GOSSIP", [rumours, peers]),
                 frame("SHUFFLE", [False, [i] * 64, peers]),
                 frame("NEIGHBOUR", [1])]
    return at.press(8, over_and_over(made))


@attack("heartbeats", "HEARTBEATs that change all the time, PROBE, CALL, PING")
def heartbeats(at):
    names = ("HEARTBEAT", "PULSE", "PROBE", "CALL", "PING", "SUSPECT",
             "BANDWIDTH", "CLAIM")
    return at.press(30, over_and_over(of_any(at, names, 5000)))


@attack("questions", "GET_MANIFEST, GET_VIEW, GET_PROOF, GET_COMMIT, answers read")
def questions(at):
    beat = at.look("VIEW").beat()
    return at.press(30, over_and_over(
        f for i in range(1000) for f in (
            frame("GET_MANIFEST", [0]), frame("GET_VIEW", [True]),
            frame("GET_PROOF", [beat["view"], 0]),
            frame("GET_COMMIT", [max(0, beat["round"] - i % 8)]))))


def fetches(at, identities, reads):
    """FETCH over 16 links, and bulk connections of the same peers, on which
    the bytes come."""
    at.look()

    def ask(link):
        seg = link.n_said * 200
        return b"".join(frame("FETCH", [
            BUFFER_SHARD, 0, (i % 8) << 18, 1 << 18, 1 + link.life % 2**40,
            seg + i, 1 + i % 8, bytes(32)]) for i in range(200)) \
            if link.n_said % 2 else 0.05

    class Both:
        control = at.press(16, ask, identity=lambda i: identities[i])
        bulk = at.press(16 * 4, kind=peer.BULK, reads=reads,
                        window=0 if reads else 4096,
                        identity=lambda i: identities[i % 16])
        counts = bulk.counts

        def step(self, seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self.control.step(0.02)
                self.bulk.step(0.02)

    return Both()


@attack("fetch", "FETCH of the text without end")
def fetch(at):
    return fetches(at, [peer.Identity() for _ in range(16)], True)


@attack("fetch-unread", "FETCH of the text, and nobody reads the bytes")
def fetch_unread(at):
    return fetches(at, [peer.Identity() for _ in range(16)], False)


def record(run_id, port, expiry_s):
    who = peer.Identity()
    body = [run_id, who.public, address(port)[0] + struct.pack("<H", port),
            1, expiry_s]
    return [*body, who.sign(b"loco-record-1",
                            msgpack.packb(body, use_bin_type=True))]


@attack("store", "STOREs of providers that do not exist, half of them forged")
def store(at):
    soon = int(time.time()) + 7000
    made = [record(RNG.choice((at.run_id, RNG.randbytes(32))), 1 + i, soon)
            for i in range(500)]
    made += [[RNG.randbytes(32), *r[1:]] for r in made]
    RNG.shuffle(made)
    return at.press(20, over_and_over(frame("STORE", [i, r])
                                      for i, r in enumerate(made)))


@attack("lookups", "FIND_NODE and FIND_VALUE of random keys, answers read")
def lookups(at):
    return at.press(30, over_and_over(
        f for i in range(1000) for f in (
            frame("FIND_NODE", [i, RNG.randbytes(32)]),
            frame("FIND_VALUE", [i, at.run_id, RNG.randbytes(32)]))))


@attack("contacts", "DHT answers with 20 made-up contacts each")
def contacts(at):
    beat = at.look().beat()
    n = itertools.count()
    queues = {}

    def hear(link, number, values):
        made = [[RNG.randbytes(32), *local(next(n))] for _ in range(20)]
        answer = {MESSAGES["FIND_NODE"][0]: lambda: frame(
                      "NODES", [values[0], made]),
                  MESSAGES["FIND_VALUE"][0]: lambda: frame(
                      "VALUES", [values[0], [], made]),
                  MESSAGES["PING"][0]: lambda: frame("PONG", values)
                  }.get(number)
        if answer is not None:
            queues.setdefault(link.number, []).append(answer())
            link.wakes = 1e-9 + time.monotonic()

    def say(link):
        if link.n_said == 1:
            return frame("HEARTBEAT", list(dict(
                beat, life=link.life, number=1, reach=REACH_PUBLIC).values()))
        queue = queues.pop(link.number, None)
        return b"".join(queue) if queue else \
            frame("FIND_NODE", [1, RNG.randbytes(32)]) \
            if link.n_said % 2 else 0.5

    return at.press(40, say, on_frame=hear, listens=9)


class Pipes:
    """Pipes of a relay: as many as it gives, and one that is always full."""

    def __init__(self, at):
        self.at, self.legs, self.full = at, [], None
        self.tokens = []
        self.counts = {"legs": 0, "bytes": 0}
        self.callees = at.press(3, None, on_frame=self.hear)

    def hear(self, link, number, values):
        if number == MESSAGES["CALLED"][0]:
            self.tokens.append((link.identity, values[0], values[2]))

    def leg(self, identity, other, token):
        c = peer.dial(self.at.target[1], identity, self.at.run_id, 5)
        c.initiate(kind=RELAY)
        c.send_record(c.noise.encrypt(other + struct.pack("<QQ", token, 0)))
        self.counts["legs"] += 1
        return c

    def open_one(self):
        callee = RNG.choice(self.callees.links)
        if not callee.is_up:
            return
        self.legs.append(self.leg(peer.Identity(), callee.identity.id, 0))
        while len(self.legs) > 90:
            self.legs.pop(0).close()

    def join_one(self):
        identity, asker, token = self.tokens.pop()
        x = next((c for c in self.legs if c.identity.id == asker), None)
        if x is None:
            return
        y = self.leg(identity, asker, token)
        for c in (x, y):
            c.noise.decrypt(c.recv_record())
            c.sock.setblocking(False)
        self.legs.remove(x)
        self.full = x, y

    def carry(self):
        for c, what in zip(self.full, (lambda s: s.send(bytes(65536)),
                                       lambda s: len(s.recv(1 << 18)))):
            try:
                self.counts["bytes"] += what(c.sock)
            except BlockingIOError:
                pass

    def step(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.callees.step(0.02)
            try:
                self.open_one()
                if self.tokens and self.full is None:
                    self.join_one()
                if self.full is not None:
                    self.carry()
            except (OSError, ValueError, IndexError):
                self.full = None
            except Exception:  # pylint: disable=broad-except
                self.full = None


@attack("relay", "90 legs of a relay, and a pipe without end")
def relay(at):
    return Pipes(at)


# ---- the control port -----------------------------------------------------------


@attack("bodies", "requests to the control port with bodies without end")
def bodies(at):
    head = (f"POST /api/v1/pause HTTP/1.1\r\nHost: {at.control[0]}:"
            f"{at.control[1]}\r\nContent-Length: 1000000000000\r\n\r\n").encode()
    return Press(at.control, at.run_id, 60,
                 lambda link: bytes(1 << 16) if link.n_said else head,
                 once="connect", reads=False)


@attack("silent-control", "200 connections to the control port, half a request")
def silent_control(at):
    return Press(at.control, at.run_id, 200,
                 lambda link: 5 if link.n_said else b"GET /healthz HT",
                 once="connect")


# ---- 1,000 strangers ------------------------------------------------------------


@attack("crowd", "1,000 strangers, each of which does something else")
def crowd(at):
    names = [n for n in MESSAGES if n not in POLITE]
    loud = over_and_over(of_any(at, names, 3000))
    ask = frame("GET_MANIFEST", [0])

    def say(link):
        if link.number % 4:  # it only holds its link
            return 3 if link.n_said % 2 == 0 else ask
        return loud(link) if link.number % 8 else ask * 100

    # Who waits for a second dials again: the kernel would wait ever longer.
    return at.press(1000, say, shake_s=1)


# ---- the program ----------------------------------------------------------------


def place(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def is_over():
    """Another line, or the end of the input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("name", choices=ATTACKS)
    p.add_argument("run_id", type=bytes.fromhex)
    p.add_argument("targets", type=place, nargs="+")
    p.add_argument("--control", type=place)
    p.add_argument("--sources", nargs="*")
    p.add_argument("--seconds", type=float)
    a = p.parse_args()
    soft = 1 << 16
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (
        min(soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    press = ATTACKS[a.name][1](At(a.targets, a.run_id, a.control, a.sources))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    while not is_over() and (a.seconds is None or
                             time.monotonic() - began < a.seconds):
        press.step(0.2)
    print(json.dumps({**press.counts, "up_now": getattr(press, "n_up", None),
                      "seconds": time.monotonic() - began}), flush=True)
    os._exit(0)  # the kernel closes what is open at once


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""attack_soak.py - every message of PROTOCOL.md, as a stranger and as a member
that lies, for so many minutes.

use: LOCO_BUILD=build-clang-asan LOCO_TIME_SCALE=3
         tests/interop/attack_soak.py [--minutes 120] [--seed N] [--links 24]
         [--json FILE]

Three daemons train. Strangers send them messages with random and with heard
values, signed, half of them altered as bytes. The member is a fourth daemon
that is killed every 40 s: its place is taken by somebody with its key and its
life, who keeps the seat with pulses and lies. Then the daemon comes back.

Printed every 30 s: rounds, memory, messages. Exit 1 on a report of a
sanitizer, a daemon that ended, no new round for 60 s (times LOCO_TIME_SCALE),
or anonymous memory more than --grows MB above that after the first minute.
"""
import argparse
import collections
import json
import os
import random
import re
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import interop  # noqa: E402

if __name__ == "__main__" and not os.environ.get("LOCO_INTEROP_VENV"):
    PYTHON, WHY = interop.environment()
    if PYTHON is None:
        sys.exit(f"attack_soak: skipped: {WHY}")
    os.environ["LOCO_INTEROP_VENV"] = interop.VENV
    os.execv(PYTHON, [PYTHON, *sys.argv])

import peer  # noqa: E402
from messages import MESSAGES, Maker  # noqa: E402
from press import Press, Scout, frame  # noqa: E402
from swarm import PACED, SCALE, Failed, Swarm, check, not_built  # noqa: E402

NAMES = {number: name for name, (number, _) in MESSAGES.items()}
POLITE = ("HELLO", "REFUSED", "ADMISSION")  # they only end the link
REPORT = re.compile(r".*(?:AddressSanitizer|LeakSanitizer|runtime error:|"
                    r"Assertion).*")
STALL_S = 60 * SCALE
MEMBER_S = 40 * SCALE
PULSE_S = 0.6
# Freed memory comes back soon, so that what grows is seen.
os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=16:"
                      "detect_stack_use_after_return=1")
os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")


def altered(rng, whole):
    """A frame with something wrong in its bytes."""
    data = bytearray(whole)
    how = rng.randrange(6)
    if how == 0:  # bytes of the payload
        for _ in range(rng.choice((1, 1, 2, 8))):
            if len(data) > 8:
                data[rng.randrange(8, len(data))] = rng.randrange(256)
    elif how == 1:  # one bit anywhere
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
    elif how == 2:  # cut, with the length that is left
        del data[rng.randrange(8, len(data) + 1):]
        data[:4] = struct.pack("<I", len(data) - 8)
    elif how == 3:  # longer
        at = rng.randrange(8, len(data) + 1)
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
        data[:4] = struct.pack("<I", len(data) - 8)
    elif how == 4:  # another type
        data[4] = rng.choice(list(NAMES))
    else:  # a length of msgpack
        marks = [i for i in range(8, len(data))
                 if data[i] in (0xc4, 0xc5, 0xc6, 0xcc, 0xcd, 0xce, 0xcf, 0xdc,
                                0xdd) or data[i] >> 4 == 9]
        if marks:
            at = rng.choice(marks)
            data[at] = rng.choice((0x90, 0x9f, 0xc0, 0xc4, 0xc6, 0xcf, 0xdc,
                                   0xdd, data[at] ^ 1))
    return bytes(data)


class Liar:
    """Says anything, over one link or many."""

    def __init__(self, soak, who, target, n_links, wait_s, identity=None,
                 life=None):
        self.soak, self.who, self.rng = soak, who, soak.rng
        self.wait_s = wait_s
        self.pulsed = 0
        self.press = Press(target, soak.run_id, n_links, self.say,
                           on_frame=self.hear, identity=identity)
        if life is not None:
            for link in self.press.links:
                link.life = life
        self.makers = []
        for link in self.press.links:
            maker = Maker(self.rng, link.identity)
            maker.known = soak.known
            self.makers.append(maker)

    def hear(self, link, number, values):
        name = NAMES.get(number)
        if name is not None:
            self.soak.heard[name] += 1
            self.makers[link.number].hear(MESSAGES[name][1], values)
            if name == "HEARTBEAT":
                self.soak.beat = values

    def seat(self, link):
        """What a member says that does not want to be lost."""
        names = [n for n, _ in MESSAGES["HEARTBEAT"][1]]
        beat = dict(zip(names, self.soak.beat), life=link.life,
                    number=link.n_said % 256)
        now = int(time.monotonic() * 1000) // 16 % 65536
        return frame("HEARTBEAT", list(beat.values())) + frame("PULSE", [
            1, link.n_said % 256, now,
            struct.unpack("<H", beat["view"][:2])[0], (1 << 64) - 1])

    def say(self, link):
        if self.who == "member" and self.soak.beat and (
                link.n_said < 3 or time.monotonic() - self.pulsed > PULSE_S):
            self.pulsed = time.monotonic()
            return self.seat(link)
        if link.n_said % 2 == 0:
            link.n_said += 1
            return self.wait_s * self.rng.random() * 2
        return b"".join(self.one(link)
                        for _ in range(self.rng.choice((1, 1, 1, 4))))

    def one(self, link):
        name = self.rng.choice(self.soak.names)
        whole = frame(name, self.makers[link.number].message(name)[1])
        wrong = self.rng.random() < 0.5
        self.soak.sent[self.who, "altered" if wrong else "valid"][name] += 1
        return altered(self.rng, whole)[:65000] if wrong else whole[:65000]


class Soak:
    def __init__(self, a, swarm):
        self.a, self.swarm = a, swarm
        self.rng = random.Random(a.seed)
        self.run_id = bytes.fromhex(swarm.run_id)
        self.known, self.beat = {}, None
        self.names = [n for n in MESSAGES if n not in POLITE]
        self.sent = collections.defaultdict(collections.Counter)
        self.heard = collections.Counter()
        self.counts = collections.Counter()
        self.began = time.monotonic()
        self.newest, self.newest_at = 0, self.began
        self.memory = {}
        self.rows = []
        self.turns = []  # seconds for which somebody had a seat and lied

    def honest(self):
        return self.swarm.peers[:3]

    # ---- what must hold -------------------------------------------------

    def reports(self):
        found = []
        for p in self.swarm.peers:
            with open(p.log_path, encoding="utf-8", errors="replace") as f:
                found += [f"{p.name}: {x[0]}" for x in REPORT.finditer(f.read())]
        return found

    def look(self):
        now = time.monotonic()
        for p in self.honest():
            check(p.process.poll() is None, f"{p.name} ended with "
                  f"{p.process.poll()}: {p.log(whole=True)[-6000:]}")
        found = self.reports()
        check(not found, "\n".join(found[:20]))
        rounds = max((p.status() or {}).get("round", 0) for p in self.honest())
        if rounds > self.newest:
            self.newest, self.newest_at = rounds, now
        check(now - self.newest_at < STALL_S,
              f"no round for {now - self.newest_at:.0f} s after {self.newest}; "
              + "; ".join(f"{p.name} {p.brief()}" for p in self.honest()))
        held = [p.memory_anon_bytes() for p in self.honest()]
        if now - self.began > 60 and not self.memory:
            self.memory = held
        for p, bytes_now, bytes_then in zip(self.honest(), held,
                                            self.memory or held):
            check(bytes_now - bytes_then < self.a.grows * 1e6,
                  f"{p.name}: memory {bytes_then >> 20} MiB after a minute, "
                  f"{bytes_now >> 20} MiB now")
        return rounds, held

    def tell(self):
        rounds, held = self.look()
        dropped = [(p.status() or {}).get("strangers", {}).get("frames_dropped")
                   for p in self.honest()]
        row = {"s": round(time.monotonic() - self.began), "rounds": rounds,
               "MB": [x // 10**6 for x in held], "dropped": dropped,
               "sent": {" ".join(k): sum(c.values())
                        for k, c in self.sent.items()}}
        self.rows.append(row)
        print(row, flush=True)

    # ---- strangers and the member ---------------------------------------

    def strangers(self):
        return [Liar(self, "stranger", ("127.0.0.1", p.port),
                     self.a.links // 3, 0.05) for p in self.honest()]

    def member(self):
        """The fourth daemon is killed; somebody has its key and its life."""
        p = self.swarm.peers[3]
        scout = Scout(("127.0.0.1", p.port), self.run_id).wait("HEARTBEAT")
        life = scout.beat()["life"]
        scout.press.close_all()
        p.kill()
        with open(os.path.join(p.state, "identity.key"), "rb") as f:
            key = f.read()[:32]
        return [Liar(self, "member", ("127.0.0.1", q.port), 1, 0.004,
                     lambda i: peer.Identity(key), life)
                for q in self.honest()]

    def is_seated(self):
        them = [p.status() for p in self.honest()]
        return all(t and t["peers_in_round"] == 4 for t in them)

    def run(self, minutes):
        crowd, liars, until, told = self.strangers(), [], 0, 0
        back = None  # since when the daemon is on its way back
        self.swarm.peers[3].process = self.swarm.peers[3].process
        while time.monotonic() - self.began < minutes * 60:
            now = time.monotonic()
            for liar in crowd + liars:
                liar.press.step(0.02)
            if now - told > 30:
                told = now
                self.tell()
                if liars and not self.is_seated() and until > now + 1:
                    until = now + 1
            if liars and now > until:
                self.turns.append(now - self.seat_at)
                for liar in liars:
                    self.counts.update(liar.press.counts)
                    liar.press.close_all()
                liars, back = [], now
                self.swarm.peers[3].start("--join", self.swarm.uri(), *PACED)
                self.swarm.peers[3].wait_up()
            elif not liars and (self.is_seated() or (
                    back and now - back > MEMBER_S)):
                if self.is_seated():
                    liars = self.member()
                    self.seat_at, until = now, now + MEMBER_S
                else:
                    back = now
        for liar in crowd + liars:
            self.counts.update(liar.press.counts)
            liar.press.close_all()

    def end(self):
        self.tell()
        for p in self.honest():
            p.drain()  # leaks are reported now
        found = self.reports()
        check(not found, "\n".join(found[:20]))

    def show(self):
        kinds = sorted(self.sent)
        print(f"\n| message | {' | '.join(' '.join(k) for k in kinds)} | heard "
              "|\n" + "|---" * (len(kinds) + 2) + "|")
        for name in self.names:
            print(f"| {name} | " + " | ".join(
                str(self.sent[k][name]) for k in kinds)
                + f" | {self.heard[name]} |")
        print("| all | " + " | ".join(
            str(sum(self.sent[k].values())) for k in kinds)
            + f" | {sum(self.heard.values())} |")
        print(f"\n{time.monotonic() - self.began:.0f} s, {self.newest} rounds, "
              f"links {dict(self.counts)}; {len(self.turns)} times somebody "
              f"lied from a seat, {sum(self.turns):.0f} s in all")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--minutes", type=float, default=120)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--links", type=int, default=24)
    p.add_argument("--grows", type=float, default=128)
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    if not_built():
        sys.exit(f"attack_soak: {not_built()} is not built")
    with Swarm(peers=4, rounds=10**6, period=10, min_peers=3,
               settings={"inner.steps": 10**8}.items()) as s:
        s.start(*PACED)
        s.wait_training()
        soak = Soak(a, s)
        try:
            soak.run(a.minutes)
            soak.end()
            code = 0
        except Failed as why:
            print(f"FAILED: {why}")
            code = 1
        soak.show()
        if a.json:
            with open(a.json, "w", encoding="ascii") as f:
                json.dump({"rows": soak.rows, "sent": {
                    " ".join(k): c for k, c in soak.sent.items()}}, f)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""audit_soak.py - honest daemons of mixed kinds repeat each other's sums for
hours, under the faults of every day: nobody honest is convicted.

An open run as `run create` makes it (a robust mean, audits of sums) with a
gate. The daemons differ in what must not change a bit of a sum: the set of the
codec, the kernels of the model, threads, the compiler (--also), the line. Every
10 to 60 s one of them is killed and started again, stopped and continued, or
drained and started again; one goes for good, or a newcomer comes.

What must hold, looked at all the time: nobody holds a proof against an honest
peer, and no sum of one was found wrong, nor work of one bad (--audit work, in
which the liar makes half of its steps); no contribution of one was refused;
rounds go on; who is not disturbed takes part; a round has one hash; memory is
bounded. Where a liar joins at the end (locod_liar), it alone is convicted.

The short form is in the suite. The long one runs by itself:

    python3 tests/e2e/audit_soak.py [--minutes 120] [--seed N] [--json FILE]
        [--wires fp16,int8,e3m0] [--liar-minutes 5] [--also BUILD]
        [--audit sums|work]

one run for each wire type, in equal parts of the time.
"""
import argparse
import collections
import json
import os
import re
import resource
import signal
import sys
import time

from crowd import COUNTS, KINDS, Faults, Kind, Member, evidence_of, others
from crowd import value
from e2e_registry import test
from swarm import BUILD, LOCO, SCALE, Failed, Swarm, check, prose, run
from swarm import wait_for

LIAR = os.path.join(BUILD, "tests", "locod_liar")
SECONDS = int(os.environ.get("LOCO_SOAK_S", "60")) // 5  # of the short form
STILL_S = 90  # a round comes by then
BACK_S = 150  # who is not disturbed so long takes part again
ASK_S = 5  # so often everybody is asked about all others
BEHIND = 10  # rounds: who is further behind does not take part
GROWS_MB = 48  # above the most that a daemon had in the first minutes
SETTLED_S = 180
# About 100,000 parameters, 98 blocks of int8. The short form has a third of it:
# a liar alters one block of its slice, which is found sooner among few.
MODEL = {"model.dim": 64, "model.ffn": 128}
PERIOD, BATCH = 5, 1
WORK_PERIOD = 100  # what is asked for comes within a round
WRONG = re.compile(r"round \d+: (\S+) summed elements .* wrongly")
REJECTED = re.compile(r"round \d+: the (?:contribution|sum) of ([^ ,]+)"
                      r"(?:, our own,)? is not .*; the round begins again")


def ended_cpu_s():
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Soak:
    def __init__(self, swarm, n, kinds, audit):
        self.swarm, self.n, self.kinds = swarm, n, kinds
        self.lie = {"LOCO_WORK": "half"} if audit == "work" else {
            "LOCO_LIES": "1"}
        self.honest, self.liar = [], None
        self.hash_of, self.newest = {}, 0
        self.began = self.newest_at = time.monotonic()
        self.still_s = self.back_s = self.stopped_s = 0
        self.liar_came, self.out_s = 0, None
        self.most = self.settled = 0
        self.cpu_before_s = ended_cpu_s()

    # ---- members ----------------------------------------------------------

    def uri(self, but=None):
        """Of somebody who is there."""
        return self.swarm.uri(next(m.peer for m in self.honest
                                   if m.up() and m is not but))

    def add(self, kind, now):
        m = Member(self.swarm.peer(), kind)
        m.start("--join", self.uri())
        self.honest.append(m)

    def found(self):
        for i in range(self.n):
            m = Member(self.swarm.peer(), self.kinds[i % len(self.kinds)])
            m.start(*(("--join", self.swarm.uri()) if i else
                      ("--run", self.swarm.yaml)))
            self.honest.append(m)
        wait_for(self.together, lambda: f"all are in one view: {self.brief()}",
                 120)
        for m in self.honest:
            m.disturbed()
        self.began = time.monotonic()

    def brief(self):
        return [f"{m.peer.name} {m.peer.brief()}" for m in self.honest
                if m.up()]

    # ---- what must hold ---------------------------------------------------

    def look(self):
        now = time.monotonic()
        for m in self.honest:
            if not m.up():
                continue
            check(m.peer.process.poll() is None, f"{m.peer.name} ended with "
                  f"{m.peer.process.poll()}: {m.peer.log()[-3000:]}")
            status = m.status()
            if status:
                self.note(m, status, now)
            self.check_memory(m, now)
            absent = now - max(m.well, min(m.fine, m.seen))
            check(absent < BACK_S * SCALE, f"{m.peer.name} ({m.kind.name}) "
                  f"takes no part for {absent:.0f} s: {m.peer.brief()}")
        self.still_s = max(self.still_s, now - self.newest_at)
        check(now - self.newest_at < STILL_S * SCALE, f"no round for {STILL_S} "
              f"s after {self.newest}: {self.brief()}")

    def note(self, m, status, now):
        number, own = status["round"], status["params_hash"]
        check(value(status, "audits.wrong") + value(status, "audits.bad") == 0
              or self.liar, f"{m.peer.name} found somebody wrong: "
              f"{status['audits']}")
        if own and number and not status["fork"]:
            known = self.hash_of.setdefault(number, own)
            check(known == own, f"round {number} is {own[:16]} on "
                  f"{m.peer.name} and {known[:16]} elsewhere")
            if number > self.newest:
                self.newest, self.newest_at = number, now
        if (status["state"] in ("training", "averaging") and not status["fork"]
                and number + BEHIND > self.newest):
            m.fine = now
            if m.waits and status["peers_in_round"] > self.n // 2:
                m.waits = False
                self.back_s = max(self.back_s, now - m.well)

    def check_memory(self, m, now):
        most, anonymous = m.memory()
        self.most = max(self.most, most)
        if now - self.began < SETTLED_S * SCALE:
            self.settled = max(self.settled, anonymous)
        check(anonymous < self.settled + GROWS_MB * 1e6,
              f"{m.peer.name}: {anonymous >> 20} MiB, at first at most "
              f"{self.settled >> 20} MiB")

    def check_honour(self):
        """Nobody says anything against an honest peer, anywhere."""
        liar = self.liar and self.liar.id
        up = [m for m in self.honest if m.up()]
        seated = collections.Counter()
        for m in up:
            for p in (m.ask("peers") or {}).get("peers", []):
                seated[p["peer_id"]] += p["in_view"]
                check(not p["convicted"] or p["peer_id"] == liar,
                      f"{m.peer.name} holds a proof against {p}")
        for m in self.honest:
            if 2 * seated[m.id] > len(up):
                m.seen = time.monotonic()
            for path in evidence_of(m.peer):
                check(liar and liar in os.path.basename(path),
                      f"there is {path}")
            text = m.new_log()
            for pattern in (WRONG, REJECTED):
                for found in pattern.finditer(text):
                    check(self.liar and found[1] == self.liar.short,
                          f"{m.peer.name}: {found[0]}")

    def together(self):
        """All honest ones are in one view, of one round."""
        up = [m for m in self.honest if m.up()]
        seen = [m.status() for m in up]
        for m, status in zip(up, seen):
            if status:
                self.note(m, status, time.monotonic())
        return all(t and not t["fork"] and t["peers_in_round"] == len(up)
                   and t["state"] in ("training", "averaging")
                   for t in seen) and len({t["round"] for t in seen}) == 1

    # ---- a liar -----------------------------------------------------------

    def add_liar(self):
        self.liar = Member(self.swarm.peer(),
                           Kind("liar", LIAR, self.lie, ()))
        self.liar.start("--join", self.uri(), "--cpu-percent", "10")
        self.liar_came = time.monotonic()

    def liar_is_out(self):
        """Of every view, by the proofs of most."""
        up = [m for m in self.honest if m.up()]
        said = [p for m in up for p in (m.ask("peers") or {}).get("peers", [])
                if p["peer_id"] == self.liar.id]
        out = (2 * sum(p["convicted"] for p in said) > len(up)
               and not any(p["in_view"] for p in said))
        if out and self.out_s is None:
            self.out_s = round(time.monotonic() - self.liar_came, 1)
        return out

    def check_evidence(self):
        """Whoever reads it finds the same."""
        paths = [p for m in self.honest for p in evidence_of(m.peer)]
        check(paths, "there is no evidence")
        for path in paths:
            found = json.loads(run(LOCO, "verify", "--evidence", path,
                                   "--json").stdout)
            check(found["peer_id"] == self.liar.id, f"{path}: {found}")
        return len(paths)

    def pardon(self, now, seconds):
        """Nothing happened for so long."""
        self.stopped_s += seconds
        self.newest_at = now
        for m in self.honest:
            m.disturbed()

    # ---- figures ----------------------------------------------------------

    def figures(self, faults):
        total = collections.Counter()
        for m in self.honest:
            total.update(m.counted())
        return {
            "s": round(time.monotonic() - self.began), "rounds": self.newest,
            "hashes": len(self.hash_of), **{k: total[k] for k in COUNTS},
            **faults.done, "daemons": sum(m.up() for m in self.honest),
            "identities": len(self.honest),
            "stopped_s": round(self.stopped_s),
            "longest_still_s": round(self.still_s, 1),
            "longest_back_s": round(self.back_s, 1),
            "most_rss_mb": self.most // 10**6,
            "cpu_s": round(ended_cpu_s() - self.cpu_before_s + sum(
                m.peer.cpu_s() for m in self.honest
                if m.peer.process.poll() is None)),
            "own_cpu_s": round(time.process_time())}


def settings_of(wire, model, audit):
    return {"sync.robust": None, "sync.audit": audit,
            "sync.wire": wire, "sync.rollback": 0.5, "inner.batch": BATCH,
            "inner.micro_batch": BATCH, "inner.steps": 10**8, **model}


# How long, in seconds: all honest; with the liar; between faults and of a
# freeze (least, most); between two lines.
Plan = collections.namedtuple("Plan", "honest_s liar_s every_s frozen_s tell_s")


def one_run(wire, model, n, kinds, seed, plan, audit="sums"):
    """The figures of one run."""
    with Swarm(peers=n, rounds=10**6, min_peers=n // 2 + 1,
               period=WORK_PERIOD if audit == "work" else PERIOD,
               text=prose(2_000_000) if audit == "work" else None,
               settings=settings_of(wire, model, audit)) as s:
        soak = Soak(s, n, kinds, audit)
        soak.found()
        faults = Faults(soak, seed, plan.every_s, plan.frozen_s)
        try:
            return through(soak, faults, plan)
        except Failed:
            print(wire, soak.figures(faults), flush=True)
            raise


def through(soak, faults, plan):
    phase(soak, faults, plan.honest_s, plan.tell_s)
    soak.check_honour()
    if plan.liar_s:
        soak.add_liar()
        phase(soak, faults, plan.liar_s, plan.tell_s)
    return last_look(soak, faults)


# Not empty: somebody stopped this process and its daemons, and has continued
# them. What was not done meanwhile is nobody's fault.
CONTINUED = []


def phase(soak, faults, seconds, tell_s):
    began = told = asked = last = time.monotonic()
    while True:
        now = time.monotonic()
        if CONTINUED:
            CONTINUED.clear()
            began += now - last
            soak.pardon(now, now - last)
        if now > began + seconds:
            return
        last = now
        faults.step()
        soak.look()
        if soak.liar and soak.out_s is None:
            soak.liar_is_out()
        if now - asked > ASK_S:
            asked = now
            soak.check_honour()
        if now - told > tell_s:
            told = now
            print(json.dumps(soak.figures(faults)), flush=True)
        time.sleep(1)  # between two looks: nothing is waited for but the end


def last_look(soak, faults):
    faults.end()

    def all_well():
        soak.check_honour()  # who is in the view of most, too
        soak.look()
        return soak.together() and (not soak.liar or soak.liar_is_out())
    wait_for(all_well, lambda: "all honest ones are in one view at last, and a "
             f"liar is in none: liar out after {soak.out_s} s, "
             f"{soak.brief()}", BACK_S)
    soak.check_honour()
    found = soak.figures(faults)
    check(found["sums"] > 0, f"nobody repeated a sum: {found}")
    check("LOCO_WORK" not in soak.lie or found["leases"] > 0,
          f"nobody made work again: {found}")
    if soak.liar:
        found.update(liar_out_s=soak.out_s, evidence=soak.check_evidence())
    return found


@test("daemons of mixed kinds that die, freeze, leave and come convict nobody "
      "who is honest, and the liar among them", 240)
def audit_soak():
    print(one_run("int8", {}, 6, KINDS, 1,
                  Plan(SECONDS * SCALE, 1, (1, 3), (1, 4), 5)))


def main(arguments):
    ask = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ask.add_argument("--minutes", type=float, default=120)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--peers", type=int, default=8)
    ask.add_argument("--wires", default="fp16,int8,e3m0")
    ask.add_argument("--liar-minutes", type=float, default=5)
    ask.add_argument("--also", action="append", default=[], metavar="BUILD")
    ask.add_argument("--audit", choices=("sums", "work"), default="sums")
    ask.add_argument("--json", metavar="FILE")
    ask = ask.parse_args(arguments)
    wires = ask.wires.split(",")
    share_s = ask.minutes * 60 / len(wires)
    liar_s = min(ask.liar_minutes * 60, share_s / 2)
    signal.signal(signal.SIGCONT, lambda *_: CONTINUED.append(1))
    plan = Plan(share_s - liar_s, liar_s, (10, 60), (3, 20), 60)
    kinds = KINDS + others(ask.also)
    found, code = {}, 0
    for i, wire in enumerate(wires):
        try:
            found[wire] = one_run(wire, MODEL, ask.peers, kinds, ask.seed + i,
                                  plan, ask.audit)
        except Failed as why:  # the other wire types have their turn all the same
            found[wire], code = {"failed": str(why)}, 1
        print(wire, json.dumps(found[wire]), flush=True)
        if ask.json:
            with open(ask.json, "w", encoding="ascii") as f:
                json.dump({"seed": ask.seed, "peers": ask.peers,
                           "kinds": [k.name for k in kinds], "runs": found}, f,
                          indent=1)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

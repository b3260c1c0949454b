#!/usr/bin/env python3
"""press.py - what strangers cost a daemon and its run.

use: LOCO_BUILD=build tests/bench/press.py [--seconds 15] [--turns 2]
         [--members 3] [--core 0.5] [--json FILE] [--list] [ATTACK...]
     LOCO_BUILD=build tests/bench/press.py --newcomers 3 [--sources]

Real daemons of a tiny run on loopback. Quiet phases and phases in which
strangers press on the first daemon alternate, so that what else the machine
does is in both. The strangers are a process of ../interop/presses.py in a
control group of half a core (--core); where no control group can be made, the
process is stopped and continued so that it runs that part of the time; the
first line says which. Strangers are on other machines: so the members come
before all other programs here (SCHED_RR, where that is allowed). A row has:

    rounds      under attack, of those in the quiet phases: of the member that
                has fewest
    core        more processor time of the daemon, share of a core
    MB          more anonymous memory at its highest
    afterwards  MB, some seconds after the strangers left
    seats       that strangers held in a view
    said, heard, links, their core: what the strangers did

Exit 1: a daemon ended, or a figure is beyond the aim of .github/SECURITY.md
(rounds 0.9, core 0.1, 64 MB) and --strict was said. A line that ends with "!"
is beyond the aim.
"""
import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "e2e"), os.path.join(TESTS, "interop")]
import interop  # noqa: E402
from swarm import Swarm, check, not_built, wait_for  # noqa: E402

PRESSES = os.path.join(TESTS, "interop", "presses.py")
AIM = {"rounds": 0.9, "core": 0.1, "MB": 64}
NEWCOMER_S = 30
ELSEWHERE = "127.9.9.9"
SAMPLE_S = 0.05
REST_S = 3  # what a crowd held is given back
TEXT_BYTES = 4_000_000
PERIOD = 20  # inner steps: a round lasts about half a second
# Each on a run of its own: after one the run is not what it was before; the
# other needs what strangers may fetch, which `fetch` uses up.
ALONE = ("fetch-unread", "joins")
PACED = ("--cpu-percent", "10")


# ---- the strangers' part of a core ----------------------------------------------


class Pen:
    """A control group, of version 2 or 1, with that part of a core."""

    def __init__(self, core):
        self.core = core
        self.folder = None
        self.how = "stopped and continued"
        for base, name, text, how in (
                ("/sys/fs/cgroup", "cpu.max", "{q} {p}", "cgroup v2"),
                ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "{q}", "cgroup v1"),
                ("/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", "{q}",
                 "cgroup v1")):
            folder = os.path.join(base, f"loco-press-{os.getpid()}")
            try:
                os.mkdir(folder)
                with open(os.path.join(folder, name), "r+",
                          encoding="ascii") as f:  # never a new file
                    f.write(text.format(q=int(core * 100000), p=100000))
            except OSError:
                if os.path.isdir(folder):
                    os.rmdir(folder)
                continue
            self.folder, self.how = folder, f"{how}, {name}"
            break

    def enter(self):
        """For a child, between fork and exec."""
        if self.folder:
            with open(os.path.join(self.folder, "cgroup.procs"), "w",
                      encoding="ascii") as f:
                f.write(str(os.getpid()))

    def hold(self, process):
        """Without a control group: a part of each 100 ms."""
        if self.folder is None:
            threading.Thread(target=self.throttle, args=(process,),
                             daemon=True).start()

    def throttle(self, process):
        while process.poll() is None:
            for what, part in ((signal.SIGCONT, self.core),
                               (signal.SIGSTOP, 1 - self.core)):
                if process.poll() is None:
                    process.send_signal(what)
                time.sleep(0.1 * part)

    def remove(self):
        if self.folder:
            wait_for(self.removed, "the control group is empty", 10)

    def removed(self):
        try:
            os.rmdir(self.folder)
        except OSError:
            return False
        return True


class Strangers:
    def __init__(self, pen, python, name, swarm, sources=()):
        p = swarm.peers[0]
        self.process = subprocess.Popen(
            [python, PRESSES, name, swarm.run_id,
             *map(address_of, swarm.peers), "--control",
             ":".join(control_of(p)), *(["--sources", *sources] if sources
                                        else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=pen.enter)
        check(self.process.stdout.readline() == "ready\n",
              f"{name}: it is not ready")
        pen.hold(self.process)
        self.before = self.cpu_s()

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        """What it did; the share of a core that it used is in it."""
        used = self.cpu_s() - self.before
        self.process.stdin.write("end\n")
        self.process.stdin.flush()
        self.process.stdin.close()
        did = json.loads(self.process.stdout.read())
        self.process.wait(30)
        return {**did, "core": used / did["seconds"]}


def scheduled(policy, priority):
    """This thread and the children that it starts now; False: not allowed."""
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def address_of(p):
    return f"127.0.0.1:{p.port}"


def control_of(p):
    with open(os.path.join(p.state, "control"), encoding="ascii") as f:
        return f.read().strip().rsplit(":", 1)


# ---- what the members do --------------------------------------------------------


class Watch:
    """Samples of all members, taken all the time in a thread of its own."""

    def __init__(self, peers):
        self.peers = peers
        self.links = [http.client.HTTPConnection(*control_of(p), timeout=30)
                      for p in peers]
        self.heads = [{"Host": ":".join(control_of(p))} for p in peers]
        self.edges = [[] for _ in peers]  # (when, rounds) as they grew
        self.samples = []  # (when, processor seconds, bytes) of the first
        self.most_peers = 0  # in one view
        self.ends = False
        self.failed = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.ends:
                self.look()
                time.sleep(SAMPLE_S)
        except Exception as why:  # pylint: disable=broad-except
            self.failed = why

    def rounds(self, i):
        """None: the control port does not answer now."""
        try:
            self.links[i].request("GET", "/api/v1/status",
                                  headers=self.heads[i])
            status = json.loads(self.links[i].getresponse().read())
            self.most_peers = max(self.most_peers, status["peers_in_round"])
            return status["rounds_committed"]
        except (OSError, http.client.HTTPException, ValueError):
            self.links[i].close()
            return None

    def look(self):
        for i, edges in enumerate(self.edges):
            n, now = self.rounds(i), time.monotonic()
            if n is not None and (not edges or edges[-1][1] != n):
                edges.append((now, n))
        p = self.peers[0]
        self.samples.append((time.monotonic(), p.cpu_s(),
                             p.memory_anon_bytes()))

    def stop(self):
        self.ends = True
        self.thread.join(60)

    def check(self):
        for p in self.peers:
            check(p.process.poll() is None,
                  f"{p.name} ended with {p.process.poll()}: {p.log()[-800:]}")
        check(self.failed is None, f"watching: {self.failed}")

    def at(self, i, when, usual):
        """Rounds of a member by then; a round under way is a part of one."""
        edges = [e for e in self.edges[i] if e[0] <= when]
        t, n = edges[-1]
        return n + min(0.99, (when - t) / usual)

    def usual_s(self, first, last):
        """A round, in that time."""
        times = [e[0] for e in self.edges[0] if first <= e[0] <= last]
        gaps = [b - a for a, b in zip(times, times[1:])]
        return statistics.median(gaps) if gaps else 1

    def between(self, first, last, usual):
        """(rounds a second of each member, share of a core, highest bytes)"""
        seen = [x for x in self.samples if first <= x[0] <= last]
        rates = [(self.at(i, last, usual) - self.at(i, first, usual)) /
                 (last - first) for i in range(len(self.peers))]
        return rates, (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]), \
            max(x[2] for x in seen)


def phase(watch, seconds):
    first = time.monotonic()
    time.sleep(seconds)  # the window that is measured
    watch.check()
    return first, time.monotonic()


def measure(a, name, s, watch, pen, python):
    """A row: quiet, pressed, a rest, and again."""
    quiet, pressed, did, after = [], [], {}, []
    for _ in range(a.turns):
        crowd = Strangers(pen, python, name, s)
        quiet.append(phase(watch, a.seconds))
        crowd.go()
        pressed.append(phase(watch, a.seconds))
        did = crowd.end()
        phase(watch, REST_S)
        after.append(s.peers[0].memory_anon_bytes())
    usual = statistics.median(watch.usual_s(*q) for q in quiet)
    q = [watch.between(*x, usual) for x in quiet]
    p = [watch.between(*x, usual) for x in pressed]
    n = len(watch.peers)
    quiet_rate = [sum(x[0][i] for x in q) for i in range(n)]
    ratio = min(sum(x[0][i] for x in p) / quiet_rate[i] for i in range(n))
    return {"attack": name, "quiet_rounds_per_s": quiet_rate[0] / len(q),
            "rounds": ratio,
            "core": statistics.mean(y[1] - x[1] for x, y in zip(q, p)),
            "quiet_core": statistics.mean(x[1] for x in q),
            "MB": max(y[2] - x[2] for x, y in zip(q, p)) / 1e6,
            "afterwards_MB": max(z - x[2] for x, z in zip(q, after)) / 1e6,
            "seats": watch.most_peers - len(watch.peers), "strangers": did}


def is_within(row):
    return (row["rounds"] >= AIM["rounds"] and row["core"] <= AIM["core"] and
            row["MB"] <= AIM["MB"])


def sentences():
    """name: sentence, of presses.py, which needs packages that we may lack."""
    import re
    with open(PRESSES, encoding="utf-8") as f:
        return dict(re.findall(r'@attack\("([\w-]+)", "(.*)"\)', f.read()))


def table(a, names, python):
    pen = Pen(a.core)
    print(f"{a.members} members, the strangers have {a.core} of a core: "
          f"{pen.how}; {a.turns} turns of {a.seconds} s\n\n| attack | rounds | "
          "core | MB | afterwards | seats | said | heard | links | their core |\n" +
          "|---" * 10 + "|", flush=True)
    rows = []
    try:
        for group in ([n for n in names if n not in ALONE],
                      *([n] for n in names if n in ALONE)):
            if group:
                rows += pressed(a, group, pen, python)
    finally:
        pen.remove()
    print(f"\nquiet: "
          f"{statistics.mean(r['quiet_rounds_per_s'] for r in rows):.2f} "
          f"rounds a second, "
          f"{100 * statistics.mean(r['quiet_core'] for r in rows):.1f} % of a "
          f"core; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} "
          "cores")
    return rows


def pressed(a, names, pen, python):
    """Rows of attacks on one swarm."""
    rows = []
    with Swarm(peers=a.members, rounds=10**6, period=PERIOD,
               text_bytes=TEXT_BYTES,
               settings={"inner.steps": 10**8}.items()) as s:
        if not scheduled(os.SCHED_RR, 1):
            print("(members share the processors with all other programs)")
        s.start(*PACED)
        scheduled(os.SCHED_OTHER, 0)
        s.wait_training()
        s.peers[0].wait_round(3)
        watch = Watch(s.peers)
        for name in names:
            r = measure(a, name, s, watch, pen, python)
            rows.append(r)
            x = r["strangers"]
            print(f"| {name} | {r['rounds']:.2f} | {100 * r['core']:.1f} % | "
                  f"{r['MB']:.1f} | {r['afterwards_MB']:.1f} | {r['seats']} | "
                  f"{x.get('bytes', 0) / 1e6:.1f} MB | "
                  f"{x.get('heard', 0) / 1e6:.1f} MB | "
                  f"{x.get('dialled', x.get('legs'))} | "
                  f"{100 * x['core']:.0f} % |{'' if is_within(r) else ' !'}",
                  flush=True)
        watch.stop()
    return rows


def elsewhere(verb):
    """Give this machine one more address, or take it away: who dials it comes
    from it. From 127.0.0.1, where members are, a newcomer need not wait."""
    return subprocess.run(
        ["ip", "address", verb, ELSEWHERE + "/32", "dev", "lo"],
        capture_output=True, check=False).returncode == 0


def newcomers(a, pen, python):
    """Seconds from the start of a daemon until it is in a view and trains,
    while the crowd presses on the only host that it knows."""
    elsewhere("del")  # left by one that was killed
    if not elsewhere("add"):
        print("press: no other address: newcomers come from where members are")
    try:
        return newcomers_from(a, pen, python)
    finally:
        elsewhere("del")


def newcomers_from(a, pen, python):
    sources = [f"127.0.{i // 250}.{1 + i % 250}" for i in range(1000)] \
        if a.sources else []
    rows, crowd = [], None
    try:
        with Swarm(peers=a.members, rounds=10**6, period=PERIOD,
                   text_bytes=TEXT_BYTES,
                   settings={"inner.steps": 10**8}.items()) as s:
            scheduled(os.SCHED_RR, 1)
            s.start(*PACED, listen="0.0.0.0:0")
            scheduled(os.SCHED_OTHER, 0)
            s.wait_training()
            crowd = Strangers(pen, python, "crowd", s, sources)
            crowd.go()
            wait_for(lambda: s.peers[0].status()["strangers"][
                "waiting"] > 300, "the crowd is there", 60)
            for _ in range(a.newcomers):
                began = time.monotonic()
                scheduled(os.SCHED_RR, 1)
                late = s.peer().start(
                    "--join", s.uri().replace("127.0.0.1", ELSEWHERE), *PACED)
                scheduled(os.SCHED_OTHER, 0)
                late.wait_up().wait_status(
                    lambda t: t["peers_in_round"] == a.members + 1 and
                    t["state"] in ("training", "averaging"),
                    "it is in the view", 300)
                rows.append({"seconds": time.monotonic() - began})
                print(f"in after {rows[-1]['seconds']:.1f} s", flush=True)
                if rows[-1]["seconds"] > 10:
                    print(late.log()[-3000:])
                late.drain()
                s.peers[0].wait_status(
                    lambda t: t["peers_in_round"] == a.members, "it is out")
            print(json.dumps(crowd.end()))
            print(json.dumps(s.peers[0].status()["strangers"]["refused"]))
            crowd = None
    finally:
        if crowd is not None:
            crowd.process.kill()
        pen.remove()
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("attacks", nargs="*")
    p.add_argument("--seconds", type=float, default=15)
    p.add_argument("--turns", type=int, default=2)
    p.add_argument("--members", type=int, default=3)
    p.add_argument("--core", type=float, default=0.5)
    p.add_argument("--newcomers", type=int, default=0, metavar="N",
                   help="time until N daemons are in, beside 1,000 strangers")
    p.add_argument("--sources", action="store_true",
                   help="the strangers come from 1,000 addresses")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--list", action="store_true")
    p.add_argument("--strict", action="store_true")
    a = p.parse_args()
    known = sentences()
    if a.list:
        print("\n".join(f"{n:16}{s}" for n, s in known.items()))
        return 0
    unknown = [n for n in a.attacks if n not in known]
    if unknown or not_built():
        print(f"press: no attack {unknown}, see --list" if unknown else
              f"press: {not_built()} is not built", file=sys.stderr)
        return 2
    python, why = interop.environment()
    if python is None:
        print(f"press: skipped: {why}")
        return 0
    if a.newcomers:
        rows = newcomers(a, Pen(a.core), python)
    else:
        rows = table(a, a.attacks or list(known), python)
    if a.json:
        with open(a.json, "w", encoding="ascii") as f:
            json.dump(rows, f, indent=1)
    return int(a.strict and not all(
        r["seconds"] <= NEWCOMER_S if a.newcomers else is_within(r)
        for r in rows))


if __name__ == "__main__":
    sys.exit(main())

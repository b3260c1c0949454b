"""router_tests.py - home routers, and neighbours in the LAN, that lie; see
netlab.py and hostile_router.py. A daemon asks the router for a port by itself,
so everybody in the same LAN can answer.
"""
import os
import re
import sys
import tempfile
import threading
import time

from lab import NATPMP_PORT, SSDP_PORT, Lab, LabSwarm, wait_bound
from registry import test
from swarm import SCALE, check, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_BYTES = 8 << 20  # more than this is not what a router's answer needs
JOB_S = 25  # all that a worker may spend on one question to the router
NO_MAPPING = "no router maps a port to us"


class Counter:
    """A listener that counts who connects and what they say."""

    def __init__(self, space, port):
        self.heard = []
        self.listener = space.listener(port)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            c, _ = self.listener.accept()
            self.heard.append("")
            c.settimeout(2)
            try:
                self.heard[-1] = c.recv(1000).decode("ascii", "replace")
            except OSError:
                pass
            c.close()


class Hostile:
    """A daemon behind such a router. with Hostile(kind) as h: h.peer .."""

    def __init__(self, kind, elsewhere=None):
        self.kind = kind
        self.elsewhere = elsewhere
        self.lab = Lab()

    def __enter__(self):
        lab = self.lab.__enter__()
        lab.hub("net")
        outside = lab.host("a", "net")
        site = lab.site("box", "net", nat="restricted")
        self.pc = site.host("pc")
        self.third = site.host("third")
        self.counter = Counter(self.third, 5000)
        self.log = tempfile.NamedTemporaryFile("w", prefix="loco-router-")
        lab.start(site.box, sys.executable,
                  os.path.join(HERE, "hostile_router.py"), self.kind,
                  f"{site.lan}.254", self.elsewhere or self.third.address,
                  stdout=self.log)
        wait_bound(site.box, NATPMP_PORT if self.kind.endswith("-lies")
                   else SSDP_PORT)
        self.swarm = LabSwarm([self.pc, outside], rounds=100000,
                              period=300).__enter__()
        return self

    def start(self):
        self.peer = self.swarm.peer().start("--run", self.swarm.yaml)
        return self.peer.wait_up()

    def asked(self):
        with open(self.log.name, encoding="ascii") as f:
            return f.read().splitlines()

    def __exit__(self, *what):
        self.swarm.__exit__(*what)
        self.lab.__exit__(*what)
        self.log.close()


def endless(kind):
    with Hostile(kind) as h:
        peer = h.start()
        wait_for(lambda: any(x.startswith("http") for x in h.asked()),
                 "the router is asked")
        before, cpu = peer.memory_anon_bytes(), peer.cpu_s()
        began = time.monotonic()
        wait_for(lambda: NO_MAPPING in peer.log(), "the daemon gives up",
                 JOB_S)
        print(f"{kind}: gave up after {time.monotonic() - began:.1f} s, memory "
              f"+{(peer.memory_anon_bytes() - before) >> 10} KiB, CPU "
              f"{peer.cpu_s() - cpu:.2f} s")
        check(peer.memory_anon_bytes() - before < MEMORY_BYTES * SCALE,
              "memory grew")
        peer.drain()


@test("a router's description without an end costs little memory and time",
      90)
def giant():
    endless("giant")


@test("a router that says a byte now and then is given up", 90)
def slow():
    endless("slow")


@test("an answer that names another host of the LAN sends nobody there", 90)
def elsewhere():
    with Hostile("elsewhere") as h:
        peer = h.start()
        wait_for(lambda: NO_MAPPING in peer.log(), "the daemon gives up",
                 JOB_S)
        check(not h.counter.heard, f"the third host heard {h.counter.heard}")
        check(not h.asked(), f"the description was asked for: {h.asked()}")
        print("connections to the host that was named: 0")


@test("a flood of answers to the search ends the search", 90)
def flood():
    with Hostile("flood") as h:
        peer = h.start()
        wait_for(lambda: re.search("maps (a port|\\S+:7700) to us", peer.log()),
                 "the search is over", 60)
        asked = [x for x in h.asked() if x.startswith("http")]
        sent = len(h.asked()) - len(asked)
        print(f"{len(asked)} questions, {sent},000 answers sent, CPU "
              f"{peer.cpu_s():.2f} s")
        # A search that heard them all would end 2 s after the last one.
        check(sent < 5, f"{sent},000 answers until the search ended")


def lies(kind, outer):
    """What the log says of the mapping that such a router claims."""
    with Hostile(kind, outer) as h:
        peer = h.start()
        said = wait_for(lambda: re.search(r"the router maps (\S+) to us",
                                          peer.log()),
                        "the answer counts", JOB_S)[1]
        print(f"{kind} {outer}: {said}, {len(h.asked())} questions, "
              f"{len(re.findall('to us', peer.log()))} lines")
        check("11.9.9.9" not in peer.log(), "a stranger's answer was taken")
        check(f"loco://{outer}" not in peer.log(),
              "that address stands in an invitation")
        peer.drain()


@test("a PCP answer with another nonce, or from another port, is no answer; an "
      "outer address that nobody can have is not told to people", 90)
def pcp():
    lies("pcp-lies", "224.0.0.1")


@test("a NAT-PMP answer from another port is no answer; loopback is no outer "
      "address", 90)
def natpmp():
    lies("pmp-lies", "127.0.0.1")

"""storm_tests.py - many connections of nobody; see e2e.py."""
import contextlib
import resource
import socket
import threading
import urllib.request

from e2e_registry import test
from swarm import Swarm, check

SILENT = 1000
STORM_PER_S = 200


def room_for(n):
    """Descriptors of this process for so many connections more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n + 256:
        resource.setrlimit(resource.RLIMIT_NOFILE,
                           (min(n + 256, hard), hard))


def begin(port):
    """A connection on its way that will never say anything."""
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", port))
    return s


def storm(port, over):
    """Dial again and again until `over`; the last ones stay open."""
    held = []
    while not over.wait(1 / STORM_PER_S):
        held.append(begin(port))
        if len(held) > 100:
            held.pop(0).close()
    for s in held:
        s.close()


def turned_away(status):
    """Silent ones, for others that came later or at their deadline."""
    return status["refused"]["connections"] + status["refused"]["handshakes"]


def metrics(peer):
    with open(f"{peer.state}/control", encoding="ascii") as f:
        address = f.read().strip()
    with urllib.request.urlopen(f"http://{address}/metrics",
                                timeout=20) as answer:
        return answer.read().decode("utf-8")


@test("1,000 silent connections and a dial storm keep no honest peer out", 200)
def dial_storm():
    room_for(SILENT + 200)
    with Swarm(peers=2, rounds=100000, period=200) as s, \
            contextlib.ExitStack() as stack:
        s.start()
        s.wait_training()
        target = s.peers[0]
        target.wait_round(1)
        before = target.memory_anon_bytes()
        for _ in range(SILENT):
            stack.enter_context(begin(target.port))
        over = threading.Event()
        thread = threading.Thread(target=storm, args=(target.port, over))
        thread.start()
        try:
            target.wait_status(lambda x: turned_away(x) > 300,
                               "the storm has begun", 60)
            late = s.peer().start("--join", s.uri())
            late.wait_status(lambda x: x["rounds_committed"] > 0,
                             "it contributed to a round", 60)
            grown = target.memory_anon_bytes() - before
        finally:
            over.set()
            thread.join()
        check(grown < 32_000_000, f"memory grew by {grown} bytes")
        text = metrics(target)
        check('loco_refused_total{what="connections"}' in text,
              "the metrics do not name it")
        for peer in s.peers:
            lost = peer.status()["peers_lost"]
            check(not lost, f"{peer.name} lost an honest peer: {lost}")

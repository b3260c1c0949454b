"""stranger_tests.py - connections of nobody, an idle daemon, local HTTP; see
e2e.py.
"""
import os
import random
import socket
import time

from e2e_registry import test
from swarm import SCALE, Swarm, check


def connect(peer):
    return socket.create_connection(("127.0.0.1", peer.port), timeout=10)


def send_all(peer, data):
    """Bytes to the peer's port; the connection, or None when it was cut."""
    s = connect(peer)
    try:
        s.sendall(data)
        return s
    except OSError:
        s.close()
        return None


@test("garbage, oversize, truncated and silent connections change nothing")
def strangers():
    rng = random.Random(7)
    with Swarm(peers=2, rounds=60) as s:
        s.start()
        s.wait_training()
        target = s.peers[0]
        before = target.memory_anon_bytes()
        held = [connect(target) for _ in range(20)]  # silent
        for _ in range(300):
            kind = rng.randrange(3)
            if kind == 0:
                data = rng.randbytes(rng.randrange(1, 4096))
            elif kind == 1:  # a header that announces 4 GiB
                data = b"\xff\xff\xff\xff" + bytes(4) + rng.randbytes(64)
            else:  # a truncated one
                data = b"\x40\x00\x00\x00"
            one = send_all(target, data)
            if one is not None and kind == 2 and len(held) < 40:
                held.append(one)  # half-open: the rest never comes
            elif one is not None:
                one.close()
        s.wait_finished()
        grown = target.memory_anon_bytes() - before
        check(grown < 24_000_000, f"memory grew by {grown} bytes")
        began = target.cpu_s()
        time.sleep(3)  # the window that is measured
        used = target.cpu_s() - began
        check(used < 0.3 * SCALE, f"{used} s of CPU in 3 s of silence")
        for one in held:
            one.close()
        target.drain()


@test("an idle daemon uses under 1 % of a core and under 40 MB")
def idle():
    with Swarm(peers=2, rounds=3) as s:
        s.start()
        s.wait_finished()
        began = s.peers[0].cpu_s()
        time.sleep(6)  # the window that is measured
        used = s.peers[0].cpu_s() - began
        check(used <= 0.06 * SCALE, f"{used} s of CPU in 6 s")
        memory = s.peers[0].memory_anon_bytes()
        check(memory < 40_000_000 * (4 if SCALE > 1 else 1),
              f"{memory} bytes of memory")


@test("the control server answers only its own names and methods", smoke=True)
def control():
    with Swarm(peers=1, rounds=3) as s:
        s.start()
        with open(os.path.join(s.peers[0].state, "control"),
                  encoding="ascii") as f:
            host, port = f.read().strip().rsplit(":", 1)

        def ask(request):
            with socket.create_connection((host, int(port)), timeout=10) as c:
                c.sendall(request.encode("ascii"))
                return c.recv(65536).decode("utf-8").split("\r\n")[0]

        head = f"Host: {host}:{port}\r\nConnection: close\r\n"
        check("200" in ask(f"GET /healthz HTTP/1.1\r\n{head}\r\n"), "healthz")
        check("200" in ask(f"GET /metrics HTTP/1.1\r\n{head}\r\n"), "metrics")
        check("403" in ask("GET /api/v1/status HTTP/1.1\r\n"
                           "Host: evil.example\r\n\r\n"), "a foreign host")
        check("403" in ask(f"POST /api/v1/drain HTTP/1.1\r\n{head}"
                           "Origin: http://evil.example\r\n"
                           "Content-Length: 0\r\n\r\n"), "a foreign origin")
        check("405" in ask(f"GET /api/v1/drain HTTP/1.1\r\n{head}\r\n"),
              "GET of a command")
        s.wait_finished()

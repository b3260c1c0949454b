"""newcomer_tests.py - what hosts that lie tell a newcomer, who joins by them."""
import os
import re
import resource
import socket
import subprocess
import threading
import time

from e2e_registry import test
from swarm import LOCO, PACED, SCALE, Swarm, check, wait_for

RESOURCES, UNREACHABLE = 9, 6  # exit codes
FETCH_S = 60  # that `loco join` looks for the manifest
MEMORY_MAX = 400 << 20  # of all that ran here: the run's daemons, too


def wire_of(s):
    """The manifest of a running swarm, as it goes over the wire."""
    path = os.path.join(s.peers[0].state, "run.manifest")
    wait_for(lambda: os.path.exists(path), "it keeps the manifest")
    with open(path, "rb") as f:
        return f.read()


def authored(wire, change):
    """(run id, wire) of that manifest with other values, by an author of ours."""
    import peer
    body, public, _ = peer.msgpack.unpackb(wire, raw=False)
    m = peer.msgpack.unpackb(body, raw=False)
    author = peer.Identity()
    m["author"] = author.public if m["author"] == public else author.id
    change(m)
    body = peer.msgpack.packb(m, use_bin_type=True)
    signature = author.sign(b"loco-manifest-1", body)
    return (peer.hash_in(b"loco-run-1", body), peer.msgpack.packb(
        [body, author.public, signature], use_bin_type=True))


class Host:
    """It listens, shakes hands as one of that run, and gives `answer(offset)`
    for the manifest: [offset, total, bytes], or None."""

    def __init__(self, run_id, answer):
        self.run_id, self.answer, self.n_asked = run_id, answer, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.at = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            sock, _ = self.listener.accept()
            threading.Thread(target=self.talk, args=(sock,),
                             daemon=True).start()

    def talk(self, sock):
        import peer
        sock.settimeout(90)
        try:
            c = peer.Connection(sock, peer.Identity(), self.run_id).respond()
            c.send_frame(peer.HELLO, [7, [bytes(10) + b"\xff\xff\x7f\0\0\1", 0],
                                      0, peer.VERSION, peer.VERSION])
            while True:
                kind, fields = c.recv_frame()
                if kind == peer.GET_MANIFEST:
                    self.n_asked += 1
                    reply = self.answer(fields[0])
                    if reply is not None:
                        c.send_frame(peer.MANIFEST, reply)
        except Exception:  # pylint: disable=broad-except
            sock.close()


def whole(wire):
    return lambda at: [at, len(wire), wire[at:at + 32768]]


def join(s, run_id, hosts, name):
    """(exit code, what it said, seconds, what is left in its state directory)"""
    state = s.path(name)
    began = time.monotonic()
    done = subprocess.run(
        [LOCO, "join", f"loco://{','.join(h.at for h in hosts)}/{run_id.hex()}",
         "--state", state, "--listen", "127.0.0.1:0"], text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=170 * SCALE)
    left = set(os.listdir(state)) if os.path.exists(state) else set()
    return (done.returncode, done.stdout + done.stderr,
            time.monotonic() - began, left)


@test("loco join by hosts that lie: another run's manifest, none that is right, "
      "pieces without end, silence; it says so and remembers nothing", 240)
def liars():
    with Swarm(peers=1, rounds=100000) as s, \
            Swarm(peers=1, rounds=100000, period=10) as other:
        s.start(*PACED)
        other.start(*PACED)
        run_id, right = bytes.fromhex(s.run_id), wire_of(s)
        half = len(right) // 2
        lies = {
            "another run": whole(wire_of(other)),
            "noise": whole(os.urandom(500)),
            "altered": whole(right[:half] + bytes([right[half] ^ 1]) +
                             right[half + 1:]),
            "4 GB": lambda at: [at, 2**32 - 1, right[:1000]],
            "drops": lambda at: [at, 1 << 20, b"x"],
            "another place": lambda at: [at + 7, len(right), right[:100]],
            "silence": lambda at: None,
        }
        hosts = [Host(run_id, answer) for answer in lies.values()]
        with socket.create_server(("127.0.0.1", 0)) as mute:
            class Mute:
                at = f"127.0.0.1:{mute.getsockname()[1]}"
            rv, said, seconds, left = join(s, run_id, hosts + [Mute], "joiner")
        check(rv == UNREACHABLE, f"{rv}: {said}")
        check("no peer gave the manifest of the run within" in said, said)
        check(f"not believed: {hosts[0].at} shows the manifest of another run"
              in said, said)
        for h in hosts[1:3]:
            check(f"not believed: {h.at} shows no manifest of this run: " in said,
                  said)
        check(seconds < FETCH_S + 30 * SCALE, f"{seconds:.0f} s")
        check(not left & {"run.manifest", "consent", "shards", "peers"}, left)
        for lie, h in zip(lies, hosts):
            check(h.n_asked > 0, f"{lie} was not asked")
        # One of many is honest: it is found at once.
        honest = Host(run_id, whole(right))
        rv, said, seconds, left = join(s, run_id, hosts[:5] + [honest], "second")
        check(rv == 0 and "Join this run?" in said and "not joined" in said, said)
        check(not left & {"run.manifest", "consent"}, left)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"at most {most >> 20} MiB")
        check(most < MEMORY_MAX, f"{most} bytes")


@test("loco join in a run whose author makes it absurdly large refuses it with the "
      "figures, or the manifest, and takes no memory for it", 240)
def absurd():
    def huge(m):
        m["model"].update(dim=32768, ffn=131072, heads=128, kv_heads=128,
                          layers=512, seq=131072, vocab=1 << 20)
        m["inner"].update(seq=131072, batch=512, micro_batch=512)

    def a_lot_of_text(m):
        m["data"]["shards"][0]["bytes"] = 9 * 10**17

    def wraps(m):  # 19 of them have 0.5 * 10^18 more bytes than 2^64
        one = m["data"]["shards"][0]
        m["data"]["shards"] += [dict(one, name=f"more-{k}", bytes=10**18)
                                for k in range(19)]

    with Swarm(peers=1, rounds=100000) as s:
        s.start(*PACED)
        for name, change, words in (
                ("huge", huge, "still needs 423.9 TB"),
                ("text", a_lot_of_text, r"still needs 1800\d{3}\.\d TB")):
            run_id, wire = authored(wire_of(s), change)
            rv, said, seconds, left = join(s, run_id,
                                           [Host(run_id, whole(wire))], name)
            check(rv == RESOURCES and re.search(words, said),
                  f"{name}: {rv}: {said}")
            check(not left & {"run.manifest", "consent", "identity.key"}, left)
            check(seconds < 30 * SCALE, f"{seconds:.0f} s")
        run_id, wire = authored(wire_of(s), wraps)
        rv, said, _, left = join(s, run_id, [Host(run_id, whole(wire))], "wraps")
        check(rv != 0 and "have more than 10^18 bytes or tokens" in said, said)
        check(not left & {"run.manifest", "consent"}, left)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"at most {most >> 20} MiB")
        check(most < MEMORY_MAX, f"{most} bytes")

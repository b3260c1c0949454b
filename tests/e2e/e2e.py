#!/usr/bin/env python3
"""e2e.py - what must hold of real daemons, as sentences.

use: tests/e2e/e2e.py [--list] [--jobs N] [WORD...]

Each test runs in a process of its own with a deadline and is independent of
the others; WORDs choose the tests whose sentence holds one of them. The last
line is "e2e: N passed, N failed, N skipped"; exit 0 only when none failed.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from xml.etree import ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e_registry import TESTS, Skipped, test  # noqa: E402
from swarm import (LOCO, LOCOD, SCALE, Failed, Swarm, check,  # noqa: E402
                   run, text_of, wait_for)
import command_tests  # noqa: E402, F401 registers its tests
import courtesy_tests  # noqa: E402, F401
import cuda_tests  # noqa: E402, F401
import dashboard_tests  # noqa: E402, F401
import doctor_tests  # noqa: E402, F401
import join_tests  # noqa: E402, F401
import metrics_tests  # noqa: E402, F401
import package_tests  # noqa: E402, F401
import pairs_tests  # noqa: E402, F401
import rounds_tests  # noqa: E402, F401
import soak  # noqa: E402, F401
import storm_tests  # noqa: E402, F401

FREEZE_S = 20
SKIPPED = 77  # exit code of one test
DETECT_MS = 3000  # a dead or frozen member is known to the others by then


def lost_entry(status, peer_id):
    for entry in status["peers_lost"]:
        if entry["peer_id"] == peer_id:
            return entry
    return None


def check_lost(survivors, victim):
    """Status and log of every survivor name the victim, noticed in time."""
    who = victim.peer_id()
    for peer in survivors:
        status = peer.wait_status(lambda s: lost_entry(s, who["peer_id"]),
                                  "the lost peer is named")
        entry = lost_entry(status, who["peer_id"])
        check(entry["detected_ms"] <= DETECT_MS * SCALE,
              f"{peer.name} noticed after {entry['detected_ms']} ms")
        check(entry["reason"], f"{peer.name} gives no reason")
        log = peer.log(whole=True)
        check(who["peer_id"][:8] in log or who["short"] in log,
              f"the log of {peer.name} does not name the lost peer")


# ---- the main job ------------------------------------------------------------


@test("four peers of which three know only the URI end with equal hashes")
def main_job():
    with Swarm(rounds=10) as s:
        s.start()
        done = s.wait_finished()
        for status in done:
            check(status["rounds_committed"] == 10, "a round was missed")
            check(status["fork"] is False, "a fork without a cut")
            check(status["replicas_equal"] is True, "replicas_equal is false")
            check(status["progress"] == 1, "progress is not 1")
        for peer in s.peers:
            peer.drain()


@test("status holds every field of the contract")
def status_fields():
    want = set("""version peer_id run_id run_name state fork round inner_step
        tokens tokens_per_s loss bits_per_byte peers_alive peers_in_round
        params_hash replicas_equal bytes_sent bytes_received last_round_ms
        rounds_committed rounds_aborted tokens_dropped peers_lost reachability
        reason progress eta_s caps""".split())
    with Swarm(peers=2, rounds=4) as s:
        s.start()
        for status in s.wait_finished():
            check(want <= set(status), f"missing: {want - set(status)}")
            check(status["run_id"] == s.run_id, "another run id")
            check(status["run_name"] == "e2e", "another name")
            check(status["bits_per_byte"] < 8, "nothing was learnt")
            check(status["loss"] < 5.5, "nothing was learnt")
            check(status["bytes_sent"] > 0, "nothing was sent")


@test("a finished run can be verified, evaluated, exported and sampled")
def after_the_run():
    with Swarm(peers=2, rounds=6) as s:
        s.start()
        s.wait_finished()
        for peer in s.peers:
            peer.drain()
        state, out = s.peers[1].state, s.path("model")
        run(LOCO, "verify", "--state", state)
        first = run(LOCO, "eval", "--state", state, "--text",
                    s.path("text.txt")).stdout
        check(float(first.split()[0]) < 6, f"nothing was learnt: {first}")
        run(LOCO, "export", "--state", state, "--out", out)
        again = run(LOCO, "eval", "--model", out, "--text",
                    s.path("text.txt")).stdout
        check(first == again, "the export is another model")
        run(LOCO, "export", "--state", s.peers[0].state, "--out", out + "2")
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            with open(os.path.join(out, name), "rb") as a, \
                    open(os.path.join(out + "2", name), "rb") as b:
                check(a.read() == b.read(), f"{name} differs between peers")
        run(LOCO, "generate", "--model", out, "--prompt", "the ",
            "--max-tokens", 16)


@test("SIGTERM drains with exit code 0 and the others finish")
def sigterm_drains():
    with Swarm(peers=3, rounds=30) as s:
        s.start()
        s.wait_training()
        s.peers[2].drain()
        s.wait_finished(s.peers[:2])


@test("a second SIGTERM stops at once")
def second_sigterm():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        # A frozen partner keeps the round open, so that draining must wait.
        s.peers[1].signal(signal.SIGSTOP)
        s.peers[0].signal(signal.SIGTERM)
        wait_for(lambda: "drain" in s.peers[0].log(), "it drains")
        s.peers[0].signal(signal.SIGTERM)
        s.peers[0].wait_exit(0, seconds=5)


@test("--rounds drains and exits 0 after that round")
def rounds_flag():
    with Swarm(peers=2, rounds=100000) as s:
        s.start("--rounds", "3")
        for peer in s.peers:
            peer.wait_exit(0, seconds=60)


@test("pause stops training and resume takes it up")
def pause_resume():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        for peer in s.peers:
            run(LOCO, "pause", "--state", peer.state)
        for peer in s.peers:
            peer.wait_state("paused")
        before = s.peers[0].status()["round"]
        for peer in s.peers:
            run(LOCO, "resume", "--state", peer.state)
        s.peers[0].wait_round(before + 2)
        run(LOCO, "drain", "--state", s.peers[0].state)
        s.peers[0].wait_exit(0)


# ---- deaths -------------------------------------------------------------------


def kill_one(index, at_round):
    with Swarm(rounds=40) as s:
        s.start()
        s.wait_training()
        if at_round:
            s.peers[index].wait_round(at_round)
        victim = s.peers[index]
        victim.kill()
        rest = [p for p in s.peers if p is not victim]
        check_lost(rest, victim)
        s.wait_finished(rest)


@test("kill -9 of the first peer in round 1: the other three finish equal")
def kill_first():
    kill_one(0, 0)


@test("kill -9 of the second peer later: the other three finish equal")
def kill_second():
    kill_one(1, 3)


@test("kill -9 of the third peer later: the other three finish equal")
def kill_third():
    kill_one(2, 7)


@test("kill -9 of the fourth peer at a random moment: the rest finish equal")
def kill_fourth():
    seed = random.randrange(1 << 30)
    at_round = random.Random(seed).randrange(1, 20)
    print(f"moment: round {at_round}")
    kill_one(3, at_round)


def butterfly_kill(wire, index, at_round, **settings):
    """As kill_one, where the wire type needs a butterfly."""
    values = {"sync.wire": wire,
              **{f"sync.{k}": v for k, v in settings.items()}}
    with Swarm(rounds=25, settings=values.items()) as s:
        shown = run(LOCO, "run", "show", s.yaml).stdout
        check("butterfly" in shown, f"run show does not name it:\n{shown}")
        s.start()
        s.wait_training()
        s.peers[index].wait_round(at_round)
        victim = s.peers[index]
        victim.kill()
        rest = [p for p in s.peers if p is not victim]
        check_lost(rest, victim)
        for status in s.wait_finished(rest):
            check(status["bits_per_byte"] < 7, "nothing was learnt")


@test("int8 takes the butterfly by itself: kill -9 of one of four, equal hashes")
def butterfly_int8():
    butterfly_kill("int8", 1, 3)


@test("E3M0 with error feedback and norm clip: kill -9 of one, equal hashes")
def butterfly_e3m0():
    butterfly_kill("e3m0", 3, 4, error_feedback="true", norm_clip=3)


@test("fp16 by butterfly: kill -9 of the first peer, equal hashes")
def butterfly_fp16():
    butterfly_kill("fp16", 0, 2, topology="butterfly")


@test("a ring that is to carry int8 is refused with a sentence")
def ring_refuses_int8():
    with Swarm(peers=2) as s:
        create = [LOCO, "run", "create", "--name", "x", "--model",
                  s.path("model.yaml"), "--data", s.data, "--set",
                  "sync.wire=int8", "--set", "sync.topology=ring", "--out",
                  s.path("other.yaml")]
        done = subprocess.run(create, text=True, capture_output=True,
                              timeout=60)
        check(done.returncode == 3, f"exit code {done.returncode}")
        check("sync.topology=butterfly" in done.stderr,
              f"the way out is not named: {done.stderr}")


@test("a peer frozen for 20 s is named, and catches up when it wakes", 240)
def freeze():
    with Swarm(rounds=400) as s:
        s.start()
        s.wait_training()
        victim, rest = s.peers[3], s.peers[:3]
        victim.wait_round(2)
        began = time.monotonic()
        victim.signal(signal.SIGSTOP)
        check_lost(rest, victim)
        ahead = rest[0].status()["round"] + 1
        rest[0].wait_round(ahead)
        # The fault itself lasts this long: not a wait for a condition.
        time.sleep(max(0, FREEZE_S - (time.monotonic() - began)))
        victim.signal(signal.SIGCONT)
        s.wait_finished(seconds=180)


@test("two peers of which one dies: the other goes on by the rules")
def one_of_two():
    with Swarm(peers=2, rounds=40) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        survivor, victim = s.peers[0], s.peers[1]
        victim.kill()
        status = survivor.wait_state("finished", seconds=90)
        # Half and half: the side with the lowest id is the run, the other
        # side waits and goes on as a fork.
        lowest = survivor.peer_id()["peer_id"] < victim.peer_id()["peer_id"]
        check(status["fork"] is not lowest,
              f"fork is {status['fork']}, lowest id survived: {lowest}")
        check(status["round"] == 40, f"round {status['round']}")


@test("a lone survivor of four waits, says it is a fork, and finishes")
def lone_survivor():
    with Swarm(rounds=40) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(2)
        for victim in s.peers[1:]:
            victim.kill()
        status = s.peers[0].wait_state("finished", seconds=90)
        check(status["fork"] is True, "it does not say that it is a fork")
        check(status["round"] == 40, f"round {status['round']}")


@test("a killed peer that starts again on its state ends with the same hash",
      240)
def restart():
    with Swarm(rounds=150) as s:
        s.start()
        s.wait_training()
        victim, rest = s.peers[2], [s.peers[i] for i in (0, 1, 3)]
        victim.wait_round(3)
        victim.kill()
        check_lost(rest, victim)
        victim.start("--join", s.uri()).wait_up()
        s.wait_finished()
        check(victim.status()["rounds_committed"] > 0,
              "it took part in no round after its return")


@test("the first peer, killed and started again, ends with the same hash",
      240)
def restart_first():
    with Swarm(rounds=150) as s:
        s.start()
        s.wait_training()
        victim = s.peers[0]
        victim.wait_round(3)
        victim.kill()
        check_lost(s.peers[1:], victim)
        victim.start("--join", s.uri(s.peers[1])).wait_up()
        s.wait_finished()


@test("a peer whose bootstrap is gone for good comes back by its peers cache",
      240)
def restart_by_cache():
    with Swarm(rounds=150) as s:
        s.start()
        s.wait_training()
        first, victim, rest = s.peers[0], s.peers[2], [s.peers[1], s.peers[3]]
        victim.wait_round(3)
        wait_for(lambda: os.path.exists(os.path.join(victim.state, "peers")),
                 "the peers cache is written")
        uri = s.uri(first)
        first.kill()
        check_lost([*rest, victim], first)
        victim.kill()
        check_lost(rest, victim)
        victim.start("--join", uri).wait_up()
        s.wait_finished([*rest, victim])
        check(victim.status()["rounds_committed"] > 0,
              "it took part in no round after its return")


@test("loco sim prints one object, and suggests the scenario that was meant")
def sim_command():
    done = run(LOCO, "sim", "dht", "--peers", "20", "--seeds", "2", "--json")
    figures = json.loads(done.stdout)
    check(figures["violations"] == 0 and figures["success"] == 1,
          f"figures are {figures}")
    check(len(figures["trace_hash"]) == 16, "no trace hash")
    wrong = run(LOCO, "sim", "eclispe", code=2)
    check("did you mean 'eclipse'" in wrong.stderr, wrong.stderr)
    wrong = run(LOCO, "sim", "dht", "--set", "link.los=1", code=2)
    check("did you mean 'link.loss'" in wrong.stderr, wrong.stderr)
    check("example:" in run(LOCO, "sim", "--help").stdout, "no example")


@test("a fifth peer that joins half way ends with the same hash", 240)
def fifth():
    with Swarm(rounds=150) as s:
        s.start()
        s.wait_training()
        s.peers[0].wait_round(20)
        late = s.peer().start("--join", s.uri(s.peers[1])).wait_up()
        s.wait_finished()
        check(late.status()["rounds_committed"] > 0,
              "it took part in no round")


# ---- mistakes -----------------------------------------------------------------


def refuses(code, *arguments, words=(), seconds=60, **options):
    """locod ends with `code` and one sentence that holds the words."""
    done = subprocess.run([LOCOD, *map(str, arguments)], text=True,
                          capture_output=True, timeout=seconds * SCALE,
                          **options)
    check(done.returncode == code,
          f"exit code {done.returncode}, not {code}: {done.stderr}")
    last = done.stderr.strip().split("\n")[-1]
    for word in words:
        check(word in done.stderr, f"'{word}' is not said: {done.stderr}")
    check(len(last) > 20, f"that is no sentence: {last!r}")


def daemon_arguments(s, name="other"):
    return ("--state", s.path(name), "--listen", "127.0.0.1:0", "--control",
            "127.0.0.1:0")


@test("a wrong run id is refused with exit code 7")
def wrong_run():
    with Swarm(peers=1, rounds=3) as s:
        s.start()
        wrong = s.uri()[:-8] + "00000000"
        refuses(7, *daemon_arguments(s), "--join", wrong)


@test("an unreachable bootstrap is exit code 6")
def unreachable():
    with Swarm(peers=1) as s:
        with socket.socket() as held:  # bound, not listening: refused
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            refuses(6, *daemon_arguments(s), "--join",
                    f"loco://127.0.0.1:{port}/{s.run_id}", words=[str(port)])


@test("a port in use is exit code 6")
def port_in_use():
    with Swarm(peers=1) as s, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        refuses(6, "--state", s.path("other"), "--listen",
                f"127.0.0.1:{port}", "--run", s.yaml, words=[str(port)])


@test("a second daemon on one state directory is exit code 4")
def second_daemon():
    with Swarm(peers=1, rounds=3) as s:
        s.start()
        refuses(4, "--state", s.peers[0].state, "--listen", "127.0.0.1:0",
                "--run", s.yaml)
        check(s.peers[0].status() is not None, "the first one suffered")
        s.wait_finished()


@test("a run that does not fit into memory is exit code 9 with the figures")
def too_large():
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    if subprocess.run([LOCO, "--version"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL,
                      preexec_fn=limit).returncode != 0:
        print("AddressSanitizer needs a larger address space: not tried")
        return
    with Swarm(peers=1) as s:
        path = os.path.join(s.data, "large.yaml")
        done = subprocess.run(
            [LOCO, "run", "create", "--name", "large", "--model", "llama-150m",
             "--data", s.data, "--sync", "opendiloco", "--out", path],
            capture_output=True, text=True, timeout=60 * SCALE)
        check(done.returncode == 0, done.stderr)
        refuses(9, *daemon_arguments(s), "--run", path, preexec_fn=limit,
                words=["needs", "MB", "2048 MB"])
    done = subprocess.run(
        [LOCO, "bench", "train", "--config", "llama-150m", "--dry-run"],
        capture_output=True, text=True, timeout=60 * SCALE, preexec_fn=limit)
    check(done.returncode == 9, f"the dry run ended with {done.returncode}")
    check("214983680 parameters" in done.stdout and "2048 MB" in done.stderr,
          done.stdout + done.stderr)


@test("an unknown key in locod.yaml is exit code 3 and names the nearest")
def unknown_setting():
    with Swarm(peers=1) as s:
        with open(s.path("locod.yaml"), "w", encoding="ascii") as f:
            f.write("threads: 1\nlsiten: 127.0.0.1:0\n")
        refuses(3, *daemon_arguments(s), "--run", s.yaml, "--config",
                s.path("locod.yaml"), words=["lsiten", "listen", ":2"])


def edited_yaml(s, old, new):
    with open(s.yaml, encoding="utf-8") as f:
        text = f.read()
    check(old in text, f"run.yaml holds no '{old}'")
    path = os.path.join(s.data, "edited.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    return path


@test("an unknown key in run.yaml is exit code 3 and names the nearest")
def unknown_key():
    with Swarm(peers=1) as s:
        path = edited_yaml(s, "  period:", "  peroid:")
        refuses(3, *daemon_arguments(s), "--run", path,
                words=["peroid", "period"])


@test("an altered manifest is exit code 3")
def altered():
    with Swarm(peers=1, period=40) as s:
        path = edited_yaml(s, "  period: 40", "  period: 41")
        refuses(3, *daemon_arguments(s), "--run", path)


@test("a shard with a wrong hash is exit code 3 and names the file")
def wrong_shard():
    with Swarm(peers=1) as s:
        path = os.path.join(s.data, "train-0000.ltk")
        with open(path, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
        refuses(3, *daemon_arguments(s), "--run", s.yaml,
                words=["train-0000.ltk"])


@test("a full disk during a checkpoint is exit code 9 and damages nothing",
      240)
def full_disk():
    def small_files():
        # Checkpoints of 30,000 parameters are larger, all else is smaller.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    with Swarm(peers=2, rounds=200, min_peers=2) as s:
        first = s.peer().start("--run", s.yaml).wait_up()
        second = s.peer().start("--join", s.uri(), before=small_files)
        second.wait_exit(9, seconds=90)
        check("checkpoint of round" in second.log(),
              "it does not say what happened")
        second.start("--join", s.uri()).wait_up()
        s.wait_finished([first, second], seconds=120)


# ---- strangers ----------------------------------------------------------------


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


@test("the control server answers only its own names and methods")
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


def preset_rows():
    """The table of named methods, as the program has it."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "..", "..", "train", "sync", "presets.def")
    with open(path, encoding="ascii") as f:
        return re.findall(r'^PRESET\("([^"]+)"', f.read(), re.MULTILINE)


# Preset -> rounds, what is set beside the swarm's usual settings.
METHODS = {
    "opendiloco": (6, {}),
    "diloco": (6, {}),
    "localsgd": (6, {}),
    "favg-keep": (6, {}),
    "favg-reset": (6, {}),
    "local-adam": (8, {"sync.period": 20, "sync.period_u": 20,
                       "sync.period_v": 20}),
    # Rounds of x, of u, of x, of x with u and v: 4, 6, 8, 12 steps.
    "desloc": (12, {"sync.period": 20, "sync.period_u": 30,
                    "sync.period_v": 60}),
    "ddp": (40, {"sync.period": 1, "sync.wire": "bf16"}),
    "streaming": (12, {"sync.period": 40, "sync.fragments": 2,
                       "sync.overlap": 5, "sync.outer_lr": 0.7,
                       "sync.outer_momentum": 0.9}),
    "eager": (8, {"sync.period": 20, "sync.outer_lr": 0.7,
                  "sync.outer_momentum": 0.9}),
    # A window of 50 ms: some are in the middle of a task when it closes.
    "async-dn": (30, {"sync.period": 60, "sync.outer_lr": 0.7,
                      "sync.outer_momentum": 0.9, "round.grace_ms": 200}),
    "async-naive": (30, {"sync.period": 60, "sync.outer_lr": 0.1,
                         "sync.outer_momentum": 0.9, "round.grace_ms": 200}),
    "noloco": (12, {"sync.period": 100, "sync.outer_lr": 0.7,
                    "sync.outer_momentum": 0.5}),
    # Two models for two rounds, one from the third on.
    "adloco": (7, {"sync.outer_lr": 0.7, "sync.trainers": 2,
                   "sync.merge_every": 2, "sync.batch_test": "norm",
                   "sync.batch_most": 4}),
}


def method_survives(preset):
    """Kill one of three in the middle; what is left goes on, and the dead one
    comes back for the state: parameters, and whatever else the method's
    members hold alike."""
    rounds, settings = METHODS[preset]
    with Swarm(peers=3, rounds=rounds, sync=preset, settings=settings) as s:
        s.start()
        before = s.peers[0].wait_round(2)
        check(before["replicas_equal"] == (preset != "noloco"),
              f"{preset}: replicas_equal is {before['replicas_equal']}")
        s.peers[2].kill()
        s.peers[2].start("--join", s.uri()).wait_up()
        done = s.wait_finished()
        check(all(d["rounds_committed"] >= 3 for d in done[:2]),
              f"{preset}: fewer than three rounds")
        check(done[0]["bits_per_byte"] < 7.5,
              f"{preset}: {done[0]['bits_per_byte']} bits per byte")


for _preset in preset_rows():  # a row without settings here fails
    test(f"{_preset} survives a kill -9 in the middle", 240)(
        lambda preset=_preset: method_survives(preset))


@test("a lone peer goes on from its checkpoint, whatever the method", 240)
def checkpoints():
    """What the method's members share is in the checkpoint: the state of the
    round that was written, with its hash."""
    for preset in ("desloc", "ddp", "streaming", "async-dn", "adloco"):
        rounds, settings = METHODS[preset]
        with Swarm(peers=1, rounds=2 * rounds, sync=preset,
                   settings=settings) as s:
            peer = s.peer().start("--run", s.yaml).wait_up()
            peer.wait_round(4)
            peer.drain()  # the last state is on disk
            before = peer.log()
            peer.start("--run", s.yaml).wait_up()
            done = s.wait_finished()[0]
            check("another run" not in peer.log(),
                  f"{preset}: the checkpoint was not used")
            check(done["rounds_committed"] < 2 * rounds - 3,
                  f"{preset}: it began anew: {done['rounds_committed']} rounds "
                  f"of {2 * rounds} in its second life; {before[-300:]}")


@test("what a method cannot do is refused with a sentence")
def refused():
    with Swarm(peers=1, rounds=1) as s:
        for preset, settings, word in (
                ("desloc", ["sync.wire=fp16"], "bf16"),
                ("local-adam", ["sync.wire=e3m0"], "moments"),
                ("ddp", ["sync.period=4"], "sync.period must be 1"),
                ("streaming", ["sync.fragments=3"], "divide"),
                ("streaming", ["sync.overlap=25"], "overlap"),
                ("diloco", ["sync.gamma=0.5"], "sync.gamma")):
            sets = [w for v in settings for w in ("--set", v)]
            done = run(LOCO, "run", "create", "--name", "e2e", "--model",
                       s.path("model.yaml"), "--data", s.data, "--sync",
                       preset, *sets, "--out", s.path("no.yaml"), code=3)
            check(word in done.stderr, f"{preset} {settings}: {done.stderr}")
    # What only the model shows: its two layers make three fragments at most.
    with Swarm(peers=1, rounds=1, sync="streaming",
               settings={"sync.fragments": 4}) as s:
        peer = s.peer().start("--run", s.yaml)
        peer.wait_exit(3)
        check("take at most 3" in peer.log(), peer.log())


@test("loco sim train runs every method and prints what the contract names")
def sim_train():
    fields = ("bits_per_byte", "loss", "tokens", "bytes_sent", "virtual_hours",
              "rounds")
    with tempfile.TemporaryDirectory() as d:
        text = os.path.join(d, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write(text_of(60000))
        run(LOCO, "data", "pack", text, "--out", d + "/data",
            "--val-bytes", "4096")
        with open(d + "/tiny.yaml", "w", encoding="ascii") as f:
            f.write("dim: 16\nlayers: 4\nheads: 2\nkv_heads: 2\nffn: 32\n"
                    "vocab: 256\nseq: 16\ntied: true\nrope_theta: 10000\n"
                    "norm_eps: 0.00001\n")
        with open(d + "/members", "w", encoding="ascii") as f:
            f.write("800 die 1\n1200 join 9\n1500 speed 0 500\n")
        for preset in preset_rows():
            period = [] if preset == "ddp" else ["--set", "sync.period=4"]
            if preset == "streaming":
                period += ["--set", "sync.fragments=2"]
            if preset in ("local-adam", "desloc"):
                period += ["--set", "sync.period_u=8",
                           "--set", "sync.period_v=8"]
            out = run(LOCO, "sim", "train", "--sync", preset, "--peers", "3",
                      "--tokens", "3072", "--model", d + "/tiny.yaml",
                      "--data", d + "/data", "--members", d + "/members",
                      "--set", "inner.batch=2", "--set", "inner.micro_batch=2",
                      "--csv", d + "/points.csv", "--plot", d + "/plot.svg",
                      "--seed", "3", "--json", *period)
            answer = json.loads(out.stdout)
            for field in fields:
                check(isinstance(answer[field], (int, float)),
                      f"{preset}: {field} is missing")
            check(answer["tokens"] >= 3072, f"{preset}: too few tokens")
            check(answer["rounds"] > 0, f"{preset}: no round")
            ElementTree.parse(d + "/plot.svg")
        never = run(LOCO, "sim", "train", "--sync", "diloco", "--peers", "2",
                    "--tokens", "1024", "--model", d + "/tiny.yaml",
                    "--data", d + "/data", "--json")
        check(json.loads(never.stdout)["never_synchronised"] is True,
              "a run shorter than the period says nothing")
        run(LOCO, "sim", "train", "--sync", "noloco", "--set", "sync.gamma=0",
            "--data", d + "/data", code=3)


# ---- runner -------------------------------------------------------------------


def run_one(sentence):
    """In a process group of its own, which dies with the deadline."""
    _, seconds = TESTS[sentence]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--one", sentence],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds * SCALE)
    except subprocess.TimeoutExpired:
        process.terminate()  # it fails, shows the logs and cleans up
        try:
            output, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    return sentence, process.returncode, output, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("words", nargs="*")
    a = parser.parse_args()
    if a.one:
        def too_late(number, frame):
            raise Failed(f"no end after {TESTS[a.one][1] * SCALE} s")

        signal.signal(signal.SIGTERM, too_late)
        try:
            TESTS[a.one][0]()
        except Failed as why:
            print(f"failed: {why}")
            return 1
        except Skipped as why:
            print(why)
            return SKIPPED
        return 0
    chosen = [t for t in TESTS
              if not a.words or any(w in t for w in a.words)]
    if a.list:
        print("\n".join(chosen))
        return 0
    if not (os.access(LOCO, os.X_OK) and os.access(LOCOD, os.X_OK)):
        print(f"e2e: {LOCO} and {LOCOD} are not built")
        print(f"e2e: 0 passed, {len(chosen)} failed, 0 skipped")
        return 1
    failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for sentence, code, output, seconds in pool.map(run_one, chosen):
            if code == SKIPPED:
                skipped += 1
                print(f"skip  {sentence}: {output.strip()}", flush=True)
                continue
            print(f"{'ok  ' if code == 0 else 'FAIL'} {seconds:6.1f} s  "
                  f"{sentence}", flush=True)
            if code != 0:
                failed += 1
                print("    " + output.strip().replace("\n", "\n    "))
    print(f"e2e: {len(chosen) - failed - skipped} passed, {failed} failed, "
          f"{skipped} skipped")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

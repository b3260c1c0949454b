"""mistake_tests.py - what is refused, its exit code and its sentence; see
e2e.py.
"""
import os
import resource
import signal
import socket
import subprocess

from e2e_registry import Skipped, test
from swarm import LOCO, LOCOD, PACED, SCALE, Swarm, check, run


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


@test("too little text is refused when it is packed and when a run is made")
def too_little_text():
    with Swarm() as s:  # its model has a context of 64 tokens
        text, data = s.path("short.txt"), s.path("short")

        def pack(n, code=0):
            with open(text, "w", encoding="ascii") as f:
                f.write("x" * n)
            return run(LOCO, "data", "pack", text, "--out", data,
                       "--val-bytes", 0, code=code).stderr

        def create(*words, code=3):
            return run(LOCO, "run", "create", "--name", "short", "--model",
                       s.path("model.yaml"), "--data", data, "--out",
                       data + "/run.yaml", *words, code=code).stderr

        check("at least 3 tokens" in pack(2, code=3), "2 tokens are packed")
        pack(64)
        said = create()
        check("train-0000.ltk has 64 tokens" in said and "takes 65" in said
              and "inner.seq to at most 63" in said, said)
        pack(65)
        said = create("--set", "inner.batch=2")
        check("1 window of 64 tokens" in said and "step takes 2" in said
              and "inner.batch to at most 1" in said, said)
        create("--set", "inner.batch=1", code=0)
        create("--set", "inner.batch=2", "--set", "inner.seq=32", code=0)
        with open(data + "/run.yaml", encoding="utf-8") as f:
            edited = f.read().replace("seq: 32", "seq: 64")
        with open(data + "/run.yaml", "w", encoding="utf-8") as f:
            f.write(edited)
        said = run(LOCO, "run", "sign", data + "/run.yaml", code=3).stderr
        check("run sign: the data has 1 window of" in said, said)


@test("a run that does not fit into memory is exit code 9 with the figures")
def too_large():
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    if subprocess.run([LOCO, "--version"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL,
                      preexec_fn=limit).returncode != 0:
        raise Skipped("AddressSanitizer needs a larger address space")
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

    with Swarm(peers=2, rounds=30, period=20) as s:
        first = s.peer().start("--run", s.yaml, *PACED).wait_up()
        second = s.peer().start("--join", s.uri(), *PACED, before=small_files)
        second.wait_exit(9, seconds=90)
        check("checkpoint of round" in second.log(),
              "it does not say what happened")
        second.start("--join", s.uri(), *PACED).wait_up()
        s.wait_finished([first, second], seconds=120)


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

"""terms_tests.py - what `loco join` says that a run takes, and the question."""
import json
import os
import re
import socket

from command_tests import Terminal
from doctor_tests import tmpfs
from e2e_registry import test
from swarm import LOCO, LOCOD, Swarm, check, run, wait_for

ASKED = "Join this run? [y/N]"
RESOURCES = 9  # exit code


def join(s, state, *settings):
    """On a terminal, with settings as NAME=VALUE of the environment."""
    return Terminal("/usr/bin/env", *settings, LOCO, "join", s.uri(),
                    "--state", state, "--listen", "127.0.0.1:0")


def answer(t, word):
    os.write(t.fd, word + b"\n")


@test("loco join shows disk, memory, traffic and hours, and asks once", 240)
def asks_once():
    with Swarm(peers=2, rounds=100000) as s:
        s.start()
        s.wait_training()
        state = s.peer().state
        t = join(s, state)
        t.until(ASKED)
        for line in (r"disk +[\d.]+ .B free at \S+; the run still needs [\d.]+",
                     r"memory +[\d.]+ .B of [\d.]+ .B available.*; the run "
                     r"needs [\d.]+", r"traffic +about [\d.]+ .?B a day each",
                     r"hours +always, 100 % of 1 thread, not on battery"):
            check(re.search(line, t.seen), f"{line}: {t.seen}")
        answer(t, b"y")
        t.until("this peer")
        os.write(t.fd, b"\x03")
        check(t.end() == 0, "it left with another code")
        for kept in (True, False):  # the same again: it joins
            if not kept:  # only the answer, then
                os.remove(state + "/run.manifest")
            t = join(s, state)
            t.until("this peer")
            check(ASKED not in t.seen and
                  kept == ("fetching the manifest" not in t.seen),
                  f"it asks again: {t.seen}")
            # on the disk for the joins below, before Ctrl-C
            wait_for(lambda: os.path.exists(state + "/run.manifest"),
                     "the manifest of the run is not kept")
            os.write(t.fd, b"\x03")
            check(t.end() == 0, "it left with another code")
        # Less than what was agreed to, and more.
        less = join(s, state, "LOCO_SCHEDULE=mon 3-4")
        less.until("joining;")
        os.write(less.fd, b"\x03")
        less.end()
        t = join(s, state, "LOCO_UPLOAD_BYTES_PER_S=100", "LOCO_KEEP=20",
                 "LOCO_SCHEDULE=mon-fri 18-8")
        t.until(ASKED)
        check("at most 3.6 MB sent by your cap" in t.seen and
              "mon-fri 18-8 (local time)" in t.seen, t.seen)
        answer(t, b"n")
        t.end()
        with Swarm(peers=1, rounds=100000, period=10) as other:
            other.start()
            said = run(LOCO, "join", other.uri(), "--state", state,
                       code=4).stderr
            check("is the state of another run" in said, said)


@test("loco join asks in a run for invited peers, too, and nothing is begun "
      "before the answer in others", 120)
def before_the_answer():
    for settings in ({}, {"invited": "true"}):
        with Swarm(peers=1, rounds=100000, settings=settings) as s:
            s.start()
            s.wait_training()
            uri = s.uri()
            if settings:
                uri = run(LOCO, "run", "invite", s.yaml, "--host",
                          f"127.0.0.1:{s.peers[0].port}").stdout.strip()
            state = s.path("joiner")
            t = Terminal(LOCO, "join", uri, "--state", state, "--listen",
                         "127.0.0.1:0")
            t.until(ASKED)
            check(re.search(r"memory .*the run needs [\d.]+", t.seen), t.seen)
            # An invitation is shown by a daemon, with an identity.
            check(bool(settings) == os.path.exists(state + "/identity.key"),
                  f"{settings}: {os.listdir(state)}")
            answer(t, b"n")
            check(t.end() == 0, "no is no error")


@test("Ctrl-C while loco join visits the hosts begins nothing", 120)
def leaves_early():
    with Swarm(peers=1) as s, socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)
        state = s.path("joiner")
        t = Terminal(LOCO, "join", f"loco://127.0.0.1:{mute.getsockname()[1]}/"
                     f"{s.run_id}", "--state", state, "--listen", "127.0.0.1:0")
        t.until("fetching the manifest")
        os.write(t.fd, b"\x03")
        check(t.end() == 0, "to leave is no error")
        check(not os.path.exists(state + "/identity.key"), os.listdir(state))


@test("what the author says that a run takes is a warning, and a name cannot "
      "turn the text around", 120)
def stated():
    with Swarm(peers=1, rounds=100000,
               settings={"limits.disk_bytes": 10**15,
                         "limits.memory_bytes": 10**15,
                         "name": "nice\u202egnp"}) as s:
        s.start()
        t = join(s, s.path("joiner"))
        t.until(ASKED)
        check(t.seen.count("the author of the run says that it takes "
                           "1000.0 TB") == 2, t.seen)
        check("nice?gnp" in t.seen and "\u202e" not in t.seen, t.seen)
        answer(t, b"n")
        check(t.end() == 0, "no is no error")


@test("loco join refuses what cannot suffice before it asks", 240)
def refuses():
    with Swarm(peers=1, rounds=100000) as s:
        s.start()

        def refused(at, words, **env):
            said = run(LOCO, "join", at.uri(), "--state", at.path("joiner"),
                       "--listen", "127.0.0.1:0", code=RESOURCES,
                       env={**os.environ, **env})
            check(ASKED not in said.stdout and re.search(words, said.stderr),
                  f"{said.stdout}{said.stderr}")
        refused(s, r"needs [\d.]+ MB of memory, at least [\d.]+ MB, and the "
                r"setting memory_bytes has "
                r"1\.0 MB: use", LOCO_MEMORY_BYTES="1000000")
        refused(s, r"needs [\d.]+ MB of disk and the setting disk_bytes allows "
                r"1\.0 MB: raise it", LOCO_DISK_BYTES="1000000")


@test("loco join refuses a disk that is too small before it asks", 120)
def small_disk():
    with Swarm(peers=1, rounds=100000) as s, \
            tmpfs(s.path("small"), "size=1m") as small:
        s.start()
        said = run(LOCO, "join", s.uri(), "--state", small, "--listen",
                   "127.0.0.1:0", code=RESOURCES)
        check(ASKED not in said.stdout and
              re.search("the disk does not suffice: .* free at .*small; the run "
                        r"still needs [\d.]+ MB. Free .* there, or choose",
                        said.stderr), f"{said.stdout}{said.stderr}")


@test("what a run is said to need is what a daemon in it counts", 120)
def same_sums():
    for sync, settings in (("opendiloco", {}), ("muon-avg", {}),
                           ("local-adam", {"sync.robust": None,
                                           "sync.audit": None}),
                           ("noloco", {"round.min_peers": 2})):
        with Swarm(peers=1, rounds=10, sync=sync, settings=settings,
                   min_peers=1) as s:
            s.peer().start("--run", s.yaml).wait_up()
            caps = s.peers[0].wait_status(
                lambda t: t["caps"]["memory_bytes_needed"] > 0,
                "it knows the run")["caps"]
            said = run(LOCO, "run", "show", s.yaml).stdout
            shown = float(re.search(r"memory +([\d.]+) MB", said)[1])
            check(abs(shown * 1e6 - caps["memory_bytes_needed"]) <= 5e4,
                  f"{sync}: {shown} MB, {caps['memory_bytes_needed']} bytes")
            disk = float(re.search(r"disk +([\d.]+) MB", said)[1])
            # A little less is refused by the daemon, which has the data
            # elsewhere: in the folder of run.yaml.
            sizes = [f["bytes"] for f in json.loads(run(
                LOCO, "run", "show", s.yaml, "--json").stdout)["data"]["shards"]]
            disk -= (sum(sizes) + max(sizes)) / 1e6
            done = run(LOCOD, "--state", s.path("small"), "--listen",
                       "127.0.0.1:0", "--run", s.yaml, "--disk-bytes",
                       int(disk * 1e6 - 1e5), code=RESOURCES)
            need = re.search(r"needs ([\d.]+) MB of disk", done.stderr)
            check(need and abs(float(need[1]) - disk) < 0.11,
                  f"{sync}: {disk} MB, {done.stderr}")

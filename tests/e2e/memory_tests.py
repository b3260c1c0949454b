"""memory_tests.py - what a daemon takes of memory, and what it says that it
takes; see e2e.py."""
import re

import swarm
from e2e_registry import test
from loop_tests import Loop, Looped
from swarm import SCALE, check, wait_for

# 4.3 million parameters: a vector of fp32 is 17 MB, what a locod takes without
# a run less than two of them.
LARGE = {"dim": 256, "layers": 4, "heads": 4, "kv_heads": 4, "ffn": 1024}
# What it says, by what it takes. More happens at a time here than in long
# rounds: the next one begins before the disk has the one before.
OFF_MOST = 1.25


def large_model(s):
    path = s.path("large.yaml")
    text = swarm.MODEL
    for key, value in LARGE.items():
        text = re.sub(rf"(?m)^{key}: .*$", f"{key}: {value}", text)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    return ["--model", path]


def most_bytes(peer):
    with open(f"/proc/{peer.process.pid}/status", encoding="ascii") as f:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", f.read())[1])


def says_what_it_takes(preset, **settings):
    """While somebody fetches a state for longer than rounds take, so that the
    state is pinned."""
    if SCALE > 1:
        return  # a sanitizer takes memory of its own
    with Looped(peers=2, rounds=4000, period=4, sync=preset, model=large_model,
                settings={"sync.outer_lr": None, "sync.outer_momentum": None,
                          **settings}.items()) as s:
        s.start()
        for p in s.peers:
            Loop(p, "--still", "--step-s", 0.05)
        s.peers[0].wait_round(2)
        says = s.peers[0].status()["caps"]["memory_bytes_needed"]
        s.peer().start("--join", s.uri(), "--trainer", "socket",
                       "--download-bytes-per-s", "200000")

        def took():
            return max(most_bytes(p) for p in s.peers[:2])
        wait_for(lambda: says <= OFF_MOST * took(),
                 lambda: f"{preset}: it says {says} bytes and takes {took()}",
                 100)
        s.peers[0].wait_round(s.peers[0].status()["round"] + 3)
        check(took() <= OFF_MOST * says,
              f"{preset}: it takes {took()} bytes and says {says}")
        print(f"{preset}: says {says / 1e6:.1f} MB, takes {took() / 1e6:.1f} MB")


@test("a locod with a training loop takes the memory that it says: an open run "
      "of OpenDiLoCo", 300)
def opendiloco():
    says_what_it_takes("opendiloco", **{"sync.robust": None,
                                        "sync.audit": None})


@test("a locod with a training loop takes the memory that it says: plain "
      "averages in a ring, and fragments", 400)
def others():
    says_what_it_takes("favg-keep")
    says_what_it_takes("streaming", **{"sync.period": 16})

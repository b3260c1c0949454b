#!/usr/bin/env python3
"""restart.py - from SIGKILL to training again.

use: LOCO_BUILD=build tests/bench/restart.py [WIDTH [SHARD_MB [THREADS]]]

A lone daemon trains a Llama of 4 layers and that width (768: 31 M parameters,
checkpoints of 0.37 GB) on a text of so many MB (1), is killed after it has written a round, and started
again. Until it trains: seconds of processor time of the whole process, which
hold on a busy machine, and of the clock, which hold on an idle one.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "e2e"))
import swarm  # noqa: E402
from swarm import Swarm, text_of, wait_for  # noqa: E402

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 768
SHARD_MB = int(sys.argv[2]) if len(sys.argv) > 2 else 1
THREADS = sys.argv[3] if len(sys.argv) > 3 else "1"
swarm.MODEL = f"""dim: {WIDTH}
layers: 4
heads: 4
kv_heads: 4
ffn: {3 * WIDTH}
vocab: 256
seq: 128
tied: true
rope_theta: 10000
norm_eps: 1.0e-5
"""


def newest(peer):
    folder = os.path.join(peer.state, "checkpoints")
    if not os.path.isdir(folder):
        return None
    names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    return os.path.join(folder, names[-1]) if names else None


with Swarm(peers=1, rounds=100_000, period=1,
           text=text_of(1_000_000) * SHARD_MB,
           settings={"inner.batch": 1, "inner.micro_batch": 1,
                     "inner.steps": 100_000, "eval.every_rounds": 0}) as s:
    peer = s.peer().start("--run", s.yaml, "--threads", THREADS).wait_up()
    peer.wait_round(3, seconds=300)
    path = wait_for(lambda: newest(peer), "a checkpoint is there", 300)
    for _ in range(3):
        peer.kill()
        size = os.path.getsize(newest(peer))
        begin = time.monotonic()
        peer.start("--run", s.yaml, "--threads", THREADS).wait_up()
        up = time.monotonic() - begin
        peer.wait_status(lambda t: t["round"] > 0 and
                         t["state"] in ("training", "averaging"),
                         "it trains again", 300)
        print(f"a checkpoint of {size / 1e9:.3f} GB: answers after {up:.2f} s, "
              f"trains after {time.monotonic() - begin:.2f} s of the clock, "
              f"{peer.cpu_s():.2f} s of processor", flush=True)
        peer.wait_round(peer.status()["round"] + 1, seconds=300)

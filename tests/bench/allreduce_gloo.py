#!/usr/bin/env python3
"""allreduce_gloo.py - torch.distributed's gloo all-reduce of fp32 vectors, to
stand beside `loco bench allreduce`.

use: allreduce_gloo.py RANKS ELEMENTS ROUNDS

One process a rank over loopback TCP, in place, refilled before each round, a
barrier before the clock starts, the slowest rank counts. Prints one JSON line.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import time

WARMUP = 3


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def spawn(ranks):
    port = str(free_port())
    children = [
        subprocess.Popen([sys.executable] + sys.argv,
                         env=dict(os.environ, GLOO_RANK=str(rank),
                                  GLOO_PORT=port, GLOO_SOCKET_IFNAME="lo",
                                  OMP_NUM_THREADS="1"))
        for rank in range(ranks)]
    while any(c.poll() is None for c in children):
        time.sleep(0.1)
        if any(c.poll() not in (None, 0) for c in children):
            for c in children:
                if c.poll() is None:
                    c.kill()
    return max(abs(c.wait()) for c in children)


def rank_main(ranks, elements, rounds):
    import torch
    import torch.distributed as dist
    rank = int(os.environ["GLOO_RANK"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", rank=rank, world_size=ranks,
        init_method="tcp://127.0.0.1:" + os.environ["GLOO_PORT"])
    ramp = (torch.arange(1 << 18) % 1024).float()
    v = torch.empty(elements)
    seconds, wrong = [], 0
    for k in range(-WARMUP, rounds):
        for at in range(0, elements, len(ramp)):
            end = min(elements, at + len(ramp))
            v[at:end] = ramp[:end - at] + (rank + 1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(v)
        own = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        if k >= 0:
            seconds.append(own.item())
        index = torch.arange(0, elements, 4099)
        want = ranks * (ranks + 1) / 2 + ranks * (index % 1024).double()
        wrong += int(((v[::4099].double() - want).abs() > 1e-3 * want).sum())
    if rank == 0:
        print(json.dumps({"seconds_median": statistics.median(seconds),
                          "wrong": wrong}))
    dist.barrier()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    ranks, elements, rounds = (int(x) for x in sys.argv[1:])
    if "GLOO_RANK" in os.environ:
        rank_main(ranks, elements, rounds)
        return 0
    return spawn(ranks)


if __name__ == "__main__":
    sys.exit(main())

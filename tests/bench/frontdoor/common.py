"""common.py - what the four programs share: model, data, clock.

The model is gpt2 (deploy/python/examples/gpt2.py) or flat: 64 Mi parameters
whose step takes two seconds and no processor, as that of a GPU would. A line
of JSON at the end has the seconds of each step, those of this process on a
processor, and those of one copy of 64 Mi fp32 numbers.
"""
import json
import os
import sys
import time

import torch
from torch import nn

import gpt2
import loco

KIND = os.environ["BENCH_MODEL"]
RANK = int(os.environ["BENCH_RANK"])
ROUNDS = int(os.environ["BENCH_ROUNDS"])
PERIOD = int(os.environ["BENCH_PERIOD"])
WIRE = os.environ["BENCH_WIRE"]
FOLDER = os.environ["BENCH_FOLDER"]
PEERS_LEAST = int(os.environ["BENCH_PEERS_LEAST"])
BATCH = 8
times, cpu, began, used = [], [], None, None


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1))
        self.rest = nn.ParameterList(
            nn.Parameter(torch.zeros(4 << 20)) for _ in range(16))


def model():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    return gpt2.GPT2() if KIND == "gpt2" else Flat()


def optimizer(m):
    return torch.optim.AdamW(m.parameters(), lr=1e-3)


def loss_of(m, batch):
    if KIND == "gpt2":
        return gpt2.loss_of(m, batch)
    time.sleep(2)
    return (m.first ** 2).sum()


def batches():
    """Random text, as long as the bench lasts."""
    global began, used
    draw = torch.Generator().manual_seed(RANK)
    began, used = time.monotonic(), time.process_time()
    for _ in range(ROUNDS * PERIOD):
        text = torch.randint(256, (BATCH, gpt2.CONTEXT + 1), generator=draw)
        yield loco.Batch(text[:, :-1], text[:, 1:])


def stepped():
    global began, used
    now, used_now = time.monotonic(), time.process_time()
    times.append(now - began)
    cpu.append(used_now - used)
    began, used = now, used_now
    print("step", len(times), f"{now:.3f}", flush=True)


def copy_s():
    """The fastest of five, for memory that was touched before."""
    a, b, took = torch.zeros(64 << 20), torch.ones(64 << 20), []
    for _ in range(5):
        at = time.process_time()
        a.copy_(b)
        took.append(time.process_time() - at)
    return min(took)


def finished():
    print(json.dumps({"times": times, "cpu": cpu, "copy_s": copy_s()}),
          flush=True)
    sys.stdout.flush()
    os._exit(0)  # no program waits for the threads of the other systems


def shared(name, text=None):
    """Rank 0 tells the others a word through a file."""
    path = os.path.join(FOLDER, name)
    if text is not None:
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.rename(path + ".new", path)
        return text
    while not os.path.exists(path):
        time.sleep(0.1)
    with open(path, encoding="utf-8") as f:
        return f.read()

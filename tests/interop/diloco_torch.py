"""diloco_torch.py - DiLoCo in torch alone, to compare a run with.

use: diloco_torch.py TEXT VAL_BYTES PEERS ROUNDS PERIOD SEED   prints bits per byte
     diloco_torch.py --bits RUN.YAML   joins as the only peer, and makes each
                                       outer step again: must be the same bits

The first has PEERS replicas of gpt2.py's model in one process: each makes
PERIOD AdamW steps on windows of TEXT, none twice before all were read, then all
take the outer step (Nesterov momentum, 0.7 and 0.9) with the mean. VAL_BYTES at
the end of TEXT are held out. No line of it is loco's but the model.
"""
import math
import sys

import torch

import gpt2
import loco

LR, MU = 0.7, 0.9


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95),
                             weight_decay=0.1)


def windows(data, starts):
    rows = torch.stack([data[s:s + gpt2.CONTEXT + 1] for s in starts])
    return loco.Batch(rows[:, :-1], rows[:, 1:])


def order(n, seed):
    """Starts of windows that do not overlap, 8 a step, in a new order when
    all were read."""
    draw = torch.Generator().manual_seed(seed)
    left = []
    while True:
        while len(left) < 8:
            grid = (n - 1) // gpt2.CONTEXT
            left += (gpt2.CONTEXT * torch.randperm(
                grid, generator=draw)).tolist()
        yield left[:8]
        left = left[8:]


@torch.no_grad()
def outer_step(phi, momentum, thetas):
    """In place: lists of tensors, and one list for each replica."""
    for i, p in enumerate(phi):
        g = sum(p - theta[i] for theta in thetas) / len(thetas)
        momentum[i] = MU * momentum[i] + g
        p -= LR * (g + MU * momentum[i])


def reference(path, val_bytes, peers, rounds, period, seed):
    with open(path, "rb") as f:
        text = torch.tensor(list(f.read()), dtype=torch.int64)
    train, val = text[:-val_bytes], text[-val_bytes:]
    torch.manual_seed(1)
    anchor = gpt2.GPT2()
    models = [gpt2.GPT2() for _ in range(peers)]
    optimizers = [adamw(m) for m in models]
    reads = order(len(train), seed)
    phi = [p.detach().clone() for p in anchor.parameters()]
    momentum = [torch.zeros_like(p) for p in phi]
    for _ in range(rounds):
        for model, optimizer in zip(models, optimizers):
            with torch.no_grad():
                for p, x in zip(model.parameters(), phi):
                    p.copy_(x)
            for _ in range(period):
                gpt2.loss_of(model, windows(train, next(reads))).backward()
                optimizer.step()
                optimizer.zero_grad()
        outer_step(phi, momentum, [list(m.parameters()) for m in models])
    with torch.no_grad():
        for p, x in zip(anchor.parameters(), phi):
            p.copy_(x)
        starts = range(0, len(val) - gpt2.CONTEXT, gpt2.CONTEXT)
        nats = sum(gpt2.loss_of(anchor, windows(val, [s]), "sum").item()
                   for s in starts)
    print(nats / (len(starts) * gpt2.CONTEXT) / math.log(2))


def bits(path):
    model = gpt2.GPT2()
    optimizer = adamw(model)
    compared = 0

    def now():
        return [p.detach().clone() for p in model.parameters()]

    with loco.join(None, model, optimizer, run=path,
                   args=["--listen", "127.0.0.1:0"]) as run:
        phi, at = now(), run.round
        momentum = [torch.zeros_like(p) for p in phi]
        for batch in run.batches():
            loss = gpt2.loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            theta = now()
            try:
                run.step(loss, tokens=batch.tokens.numel())
            finally:  # the last one ends by loco.Stopped
                if run.round != at:
                    outer_step(phi, momentum, [theta])
                    at, compared = run.round, compared + 1
                    same = [torch.equal(a, b) for a, b in zip(phi, now())]
                    print(f"round {at}: {sum(same)} of {len(same)} tensors "
                          "have the same bits", flush=True)
                    assert all(same)
    print(f"compared {compared} rounds")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "--bits":
        bits(sys.argv[2])
    else:
        reference(sys.argv[1], *map(int, sys.argv[2:]))

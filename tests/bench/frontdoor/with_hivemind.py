"""with_hivemind.py - the loop with hivemind's averager, parameters every PERIOD
steps: 1.1.12 has no outer optimizer."""
import json

import hivemind
import torch
from hivemind.averaging import DecentralizedAverager
from hivemind.compression import Float16Compression, NoCompression

import common

model = common.model()
optimizer = common.optimizer(model)
first = None if common.RANK == 0 else json.loads(common.shared("maddrs"))
dht = hivemind.DHT(initial_peers=first, start=True,
                   host_maddrs=["/ip4/127.0.0.1/tcp/0"])
if common.RANK == 0:
    common.shared("maddrs", json.dumps([str(a) for a in
                                        dht.get_visible_maddrs()]))
averager = DecentralizedAverager(
    [p.detach().clone() for p in model.parameters()], dht, start=True,
    prefix="bench", target_group_size=2, min_matchmaking_time=1.0,
    request_timeout=0.5, next_chunk_timeout=10,
    compression=Float16Compression() if common.WIRE == "fp16"
    else NoCompression())
with torch.no_grad():
    copies = list(model.parameters())
for i, batch in enumerate(common.batches()):
    loss = common.loss_of(model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (i + 1) % common.PERIOD == 0:
        with averager.get_tensors() as own, torch.no_grad():
            for a, p in zip(own, copies):
                a.copy_(p)
        done = averager.step(timeout=60)
        with averager.get_tensors() as mean, torch.no_grad():
            for a, p in zip(mean, copies):
                p.copy_(a)
        print("group of", None if done is None else len(done), flush=True)
    common.stepped()
common.finished()

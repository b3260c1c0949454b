"""group_torch.py - several processes train the GPT-2 of the examples as one peer.

use: torchrun --nproc-per-node N group_torch.py KIND run RUN.YAML [WORD ..]
     torchrun --nproc-per-node N group_torch.py KIND join URI [WORD ..]

     torchrun --nproc-per-node N group_torch.py settle

KIND is ddp (every process has the model) or fsdp (in shards). Words go to
locod. Each process prints the sum of its parameters at the end. settle: is a
forward behind new parameters one of these, whatever ran before?
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import loco
from loco._group import Processes
from gpt2 import GPT2, loss_of


def in_shards(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def end_of(model):
    whole = (p.full_tensor() if hasattr(p, "full_tensor") else p
             for p in model.parameters())
    return sum(p.detach().double().sum().item() for p in whole)


def settle():
    """A forward without a backward leaves whole tensors of FSDP2 behind."""
    torch.manual_seed(1)
    plain, model = GPT2(), in_shards(GPT2())
    shared = Processes(model, None).model
    tokens = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        for times in (1.0, 1.5):
            for p in plain.parameters():
                p.mul_(times)
            shared.settle()
            for name, p in plain.named_parameters():
                shared.get(name, p.numpy() if dist.get_rank() == 0 else None)
            assert torch.allclose(model(tokens), plain(tokens), atol=1e-5)
    print(f"process {dist.get_rank()} settled", flush=True)


def main():
    if sys.argv[1] == "settle":
        dist.init_process_group("gloo")
        settle()
        return
    kind, way, where, words = sys.argv[1], *sys.argv[2:4], sys.argv[4:]
    dist.init_process_group("gloo")
    me = dist.get_rank()
    torch.manual_seed(me)  # each has a model of its own before it joins
    model = GPT2()
    model = in_shards(model) if kind == "fsdp" else DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3,
                                  betas=(0.9, 0.95), weight_decay=0.1)

    @torch.no_grad()
    def evaluate(tokens, targets):
        return loss_of(model, loco.Batch(tokens, targets), "sum").item()

    with loco.join(where if way == "join" else None, model, optimizer,
                   run=where if way == "run" else None, args=words,
                   evaluate=evaluate) as run:
        for batch in run.batches():
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"process {me} round {run.round} step {run.inner_step} rows "
                  f"{len(batch.tokens)} loss {loss.item():.4f}", flush=True)
            run.step(loss, tokens=batch.tokens.numel())
    print(f"process {me} end {end_of(model):.12g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

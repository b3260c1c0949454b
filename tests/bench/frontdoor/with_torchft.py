"""with_torchft.py - the loop in torchft's DiLoCo; a lighthouse runs beside."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

import common

model = common.model()
optimizer = common.optimizer(model)
outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
    load_state_dict=lambda s: (model.load_state_dict(s["model"]),
                               outer.load_state_dict(s["outer"])),
    state_dict=lambda: {"model": model.state_dict(),
                        "outer": outer.state_dict()},
    min_replica_size=common.PEERS_LEAST, use_async_quorum=False, rank=0,
    world_size=1, store_addr="127.0.0.1", store_port=store.port,
    replica_id=f"bench_{common.RANK}")
with DiLoCo(manager, [model], optimizer, outer, sync_every=common.PERIOD,
            pin_memory=False, should_quantize=False):
    for batch in common.batches():
        loss = common.loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        common.stepped()
common.finished()

"""The processes that train one model: this one, or those of torch.distributed.

A group of processes is one peer. Its first process has the daemon; what that
says, and what goes wrong there, is said to all, so that all make the same calls
in the same order. Each of them hears something at least every SLICE_MS, however
long the run waits: no collective runs into its time limit.
"""
import os
from typing import Any, Callable, Optional, Tuple

import numpy as np

from . import _model
from ._daemon import Pair
from ._lib import Error


class Alone:
    """A loop of one process."""
    first = True
    size = 1
    fragile = False  # it may fail for what happened in another process

    def __init__(self, model: Any) -> None:
        self.model = _model.of(model)

    def said(self, work: Callable[[], Any]) -> Any:
        """What `work` returned at the first process."""
        return work()

    def total(self, tokens: int, loss: float) -> Tuple[int, float]:
        """Tokens of all processes and the mean loss over them."""
        return tokens, loss

    def part(self, batch: Pair) -> Pair:
        """The rows of the batch that this process has."""
        return batch


class Processes(Alone):
    """A loop in every process of a group of torch.distributed: data-parallel,
    or the model in shards (FSDP2)."""
    fragile = True

    def __init__(self, model: Any, group: Any) -> None:
        import torch.distributed as dist
        self._dist = dist
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.first = self.rank == 0
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        self._source = ranks[0]
        # Small things go past the device, and past its queue. The processes
        # outside the group do not come here.
        self._cpu = dist.new_group(
            ranks, backend="gloo",
            use_local_synchronization=len(ranks) < dist.get_world_size())
        self.model = Shared(model, group, self._cpu, self._source)

    def said(self, work: Callable[[], Any]) -> Any:
        answer: Any = None
        failure: Optional[Exception] = None
        if self.first:
            try:
                answer = work()
            except Exception as why:  # noqa: BLE001  said to all, then raised
                failure = why
        box = [answer, None if failure is None else str(failure)]
        try:
            self._dist.broadcast_object_list(box, src=self._source,
                                             group=self._cpu)
        except RuntimeError as why:
            if failure is None:
                raise self._lost(why) from why
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise Error(box[1])
        return box[0]

    def _lost(self, why: Any) -> Error:
        return Error(f"process {self.rank} of {self.size} that train this "
                     f"model lost the others, one of them has ended: {why}")

    def total(self, tokens: int, loss: float) -> Tuple[int, float]:
        torch = self.model.torch
        sums = torch.tensor([tokens, loss * tokens, loss], dtype=torch.float64)
        try:
            self._dist.all_reduce(sums, group=self._cpu)
        except RuntimeError as why:
            raise self._lost(why) from why
        n, nats, losses = sums.tolist()
        return int(n), nats / n if n > 0 else losses / self.size

    def part(self, batch: Pair) -> Pair:
        rows = len(batch[0])
        if rows % self.size != 0:
            raise Error(f"a batch of this run has {rows} rows: {self.size} "
                        "processes cannot have the same number of them")
        mine = slice(self.rank * rows // self.size,
                     (self.rank + 1) * rows // self.size)
        return batch[0][mine], batch[1][mine]


class Shared(_model.Module):
    """A module that every process of a group has, whole or in shards. put()
    and get() are collective; only the first process has theta."""

    def __init__(self, model: Any, group: Any, cpu: Any, source: int) -> None:
        super().__init__(model)
        import torch.distributed as dist
        self._dist, self._source = dist, source
        self._group, self._cpu = group, cpu

    def put(self, name: str, out: Optional[np.ndarray]) -> None:
        tensor = self.tensors[name].detach()
        if hasattr(tensor, "full_tensor"):
            tensor = tensor.full_tensor()
        if out is not None:
            self.torch.from_numpy(out).copy_(tensor)

    def settle(self) -> None:
        """FSDP2 keeps whole tensors behind a forward without a backward, and
        would use them again."""
        for module in self.model.modules():
            if hasattr(module, "reshard"):
                module.reshard()

    def get(self, name: str, value: Optional[np.ndarray]) -> None:
        mine = self.tensors[name]
        on_cpu = mine.device.type == "cpu"
        if value is None:
            new = self.torch.empty(mine.shape, dtype=self.torch.float32,
                                   device=mine.device)
        else:
            new = self.torch.from_numpy(value).to(mine.device)
        self._dist.broadcast(new, src=self._source,
                             group=self._cpu if on_cpu else self._group)
        with self.torch.no_grad():
            mine.copy_(self._as(mine, new))

    def _as(self, mine: Any, new: Any) -> Any:
        """The whole tensor `new` as `mine` is laid out; says nothing to
        others."""
        if not hasattr(mine, "full_tensor"):
            return new
        from torch.distributed.tensor import DTensor, Replicate
        mesh = mine.device_mesh
        return DTensor.from_local(new, mesh, [Replicate()] * mesh.ndim,
                                  run_check=False).redistribute(
                                      placements=mine.placements)


def of(model: Any, group: Any) -> Alone:
    """Who trains `model`: this process alone, or with those of `group`. None:
    all that torch.distributed knows, where it was started."""
    if isinstance(model, dict) or group is False:
        return Alone(model)
    import torch.distributed as dist
    if dist.is_available() and dist.is_initialized() and \
            dist.get_rank(group) < 0:
        raise Error("this process is not in the group that was given to join()")
    if not dist.is_available() or not dist.is_initialized() or \
            dist.get_world_size(group) <= 1:
        if group is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise Error("one of several processes (WORLD_SIZE is "
                        f"{os.environ['WORLD_SIZE']}): call torch.distributed."
                        "init_process_group() before join(), or give "
                        "group=False if each of them is a peer")
        return Alone(model)
    return Processes(model, group)

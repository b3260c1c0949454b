"""A model as named tensors that can be written to theta and read from it."""
from typing import Any, Dict, List, Tuple

import numpy as np

from ._lib import Error


class Arrays:
    """A dict of numpy arrays, changed in place."""

    def __init__(self, model: Dict[str, np.ndarray]) -> None:
        self.model = model

    def shapes(self) -> List[Tuple[str, Tuple[int, ...]]]:
        return [(name, a.shape) for name, a in self.model.items()]

    def put(self, name: str, out: np.ndarray) -> None:
        """The tensor `name` into out, fp32, of its shape."""
        out[...] = self.model[name]

    def get(self, name: str, value: np.ndarray) -> None:
        self.model[name][...] = value

    def settle(self) -> None:
        """Before get(): nothing but the tensors has their values."""

    def reset(self, optimizer: Any) -> None:
        """The user's own optimizer; see Run.on_reset."""


class Module:
    """A torch.nn.Module: its parameters, tied ones once, and its persistent
    buffers of floating point (BatchNorm's statistics); others stay."""

    def __init__(self, model: Any) -> None:
        import torch
        self.torch = torch
        self.model = model = _inner(model)
        self.tensors = dict(model.named_parameters())
        kept = model.state_dict().keys()
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and name in kept:
                self.tensors[name] = buffer

    def shapes(self) -> List[Tuple[str, Tuple[int, ...]]]:
        return [(n, tuple(t.shape)) for n, t in self.tensors.items()]

    def settle(self) -> None:
        """See Arrays."""

    def put(self, name: str, out: np.ndarray) -> None:
        with self.torch.no_grad():
            self.torch.from_numpy(out).copy_(self.tensors[name].detach())

    def get(self, name: str, value: np.ndarray) -> None:
        with self.torch.no_grad():
            self.tensors[name].copy_(self.torch.from_numpy(value))

    def reset(self, optimizer: Any) -> None:
        """Moments begin anew; parameter groups and learning rates stay."""
        if optimizer is not None:
            optimizer.state.clear()


def _inner(model: Any) -> Any:
    """The user's module, without what wraps it (DDP, torch.compile): its names
    are the run's."""
    for _ in range(4):
        kind = type(model).__name__
        if kind == "FullyShardedDataParallel":
            raise Error("this model is wrapped by FSDP1, which hides its "
                        "tensors: use fully_shard() of torch.distributed.fsdp")
        if kind == "DistributedDataParallel":
            model = model.module
        elif kind == "OptimizedModule":
            model = model._orig_mod
    return model


def of(model: Any) -> Any:
    return Arrays(model) if isinstance(model, dict) else Module(model)

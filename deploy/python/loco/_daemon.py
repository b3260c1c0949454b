"""One locod, by loco.h: its answers as values of Python."""
import ctypes as c
import math
import os
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Sequence,
                    Tuple)

import numpy as np

from . import _lib
from ._lib import Error

SLICE_MS = 200  # a signal's Python handler runs between two waits
Shapes = List[Tuple[str, Tuple[int, ...]]]
Pair = Tuple[np.ndarray, np.ndarray]  # tokens and targets, (rows, seq) int64


class Order(NamedTuple):
    """What the loop shall do now; see loco_next()."""
    action: int
    round: int
    inner_step: int
    reset: bool
    code: int
    text: str
    batch: Optional[Pair]


class Way(NamedTuple):
    """How to reach a daemon: what loco.join() was told."""
    uri: Optional[str]
    run: Optional[str]
    state: Optional[str]
    listen: Optional[str]
    name: str
    args: Sequence[str]
    keep: bool
    measures: bool
    log: Optional[Callable[[str], None]]


def _pair(it: Any) -> Pair:
    tokens, targets = (
        np.ctypeslib.as_array(p, (it.rows, it.seq)).astype(np.int64)
        for p in (it.tokens, it.targets))
    targets[targets == 0xffffffff] = -100
    return tokens, targets


def _options(way: Way) -> Any:
    more = (["--listen", way.listen] if way.listen else []) + list(way.args)
    words = (c.c_char_p * (len(more) + 1))(*[a.encode() for a in more], None)
    told = _lib.LOG(lambda _, text: way.log(text.decode(errors="replace"))
                    if way.log is not None else None)
    o = _lib.Options(size=c.sizeof(_lib.Options), locod_args=words,
                     name=way.name.encode(), keep=way.keep, log=told,
                     measures=way.measures)
    o.state = os.fsencode(way.state) if way.state is not None else None
    o.join = way.uri.encode() if way.uri is not None else None
    o.run = os.fsencode(way.run) if way.run is not None else None
    return o


class Daemon:
    """A connection to locod, which is started where none runs. Every call
    fails by Error, with the library's sentence."""

    def __init__(self, way: Way) -> None:
        self._lib, self._l = _lib.load(), c.c_void_p()
        self._options = _options(way)  # the library calls its log
        self._tensors: Dict[str, Any] = {}
        self._n = 0
        why = c.create_string_buffer(_lib.ERRMSG_MAX)
        if self._lib.loco_open(c.byref(self._l), c.byref(self._options),
                               why) < 0:
            raise Error(why.value.decode(errors="replace"))

    def _error(self) -> Error:
        return Error(self._lib.loco_errmsg(self._l).decode(errors="replace"))

    def _ok(self, rv: int) -> int:
        if rv < 0:
            raise self._error()
        return rv

    def ready(self) -> bool:
        """Whether this peer may train; waits a moment for it."""
        return self._ok(self._lib.loco_ready(self._l, SLICE_MS)) != 0

    def check(self, shapes: Shapes) -> List[str]:
        """The run's tensors by name, in their order; they are those of
        `shapes`."""
        info = _lib.Info()
        self._ok(self._lib.loco_info(self._l, c.byref(info)))
        mine = (_lib.Tensor * max(len(shapes), 1))()
        for at, (name, shape) in zip(mine, shapes):
            if len(shape) > 8:
                raise Error(f"tensor {name} has more than 8 dimensions")
            at.name, at.n_dims = name.encode(), len(shape)
            at.shape[:len(shape)] = shape
        self._ok(self._lib.loco_check(self._l, mine, len(shapes)))
        for i in range(info.n_tensors):
            t = _lib.Tensor()
            self._ok(self._lib.loco_tensor(self._l, i, c.byref(t)))
            self._tensors[t.name.decode()] = t
        self._n = info.n
        return list(self._tensors)

    def theta(self, name: str) -> np.ndarray:
        """That tensor in theta: fp32, shared with the daemon."""
        at = self._lib.loco_theta(self._l)
        if not at:
            raise self._error()
        t = self._tensors[name]
        floats = (c.c_float * self._n).from_address(at)
        all_of_it = np.frombuffer(floats, dtype=np.float32)
        return all_of_it[t.offset:t.offset + t.numel].reshape(
            tuple(t.shape[:t.n_dims]))

    def next(self) -> Order:
        """What to do; waits a moment for it."""
        todo = _lib.Todo()
        action = self._ok(self._lib.loco_next(self._l, SLICE_MS,
                                              c.byref(todo)))
        return Order(action, todo.round, todo.inner_step, todo.reset != 0,
                     todo.code, (todo.text or b"").decode(errors="replace"),
                     _pair(todo) if action == _lib.SCORE else None)

    def step(self, tokens: int, loss: float = math.nan) -> None:
        self._ok(self._lib.loco_step(self._l, tokens, loss))

    def read(self) -> Optional[Pair]:
        """Text of the next step; None: do what next() says first."""
        text = _lib.Text()
        rv = self._ok(self._lib.loco_read(self._l, SLICE_MS, c.byref(text)))
        return _pair(text) if rv != 0 else None

    def scored(self, nats: float) -> None:
        self._ok(self._lib.loco_scored(self._l, nats))

    def stop(self) -> None:
        """Leave in order: a locod that was started drains first."""
        while self._lib.loco_stop(self._l, SLICE_MS) == 0:
            pass

    def keep(self) -> None:
        """A locod that was started goes on after close(), for ten minutes."""
        self._lib.loco_keep(self._l)

    def close(self) -> None:
        if self._l:
            handle, self._l = self._l, c.c_void_p()
            self._lib.loco_close(handle)

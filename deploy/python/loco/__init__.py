"""Let a training loop of your own be a peer of a loco run.

    with loco.join("loco://HOST:7700/RUNID", model, optimizer) as run:
        for batch in run.batches():
            loss = train_on(batch.tokens, batch.targets)
            run.step(loss, tokens=batch.tokens.size)

`model` is a torch.nn.Module, or a dict of numpy arrays that is changed in
place. The loop leaves by loco.Stopped, which `with` swallows.
"""
import ctypes as c
import json
import math
import os
import subprocess
import weakref
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional,
                    Sequence)

import numpy as np

from . import _bin, _lib, _model
from ._create import create
from ._lib import Error

__all__ = ["Batch", "Error", "Run", "Stopped", "create", "join"]
SLICE_MS = 200  # a signal's Python handler runs between two waits


class Stopped(Exception):
    """The run has ended, or the daemon was told to stop."""


class Batch(NamedTuple):
    """Text of one step: tokens and targets, (rows, seq) int64; a target of -100
    is not scored. numpy, or torch where the model is a module."""
    tokens: Any
    targets: Any


class Run:
    """One loop at one daemon; see join(). One thread at a time."""

    def __init__(self, lib: Any, handle: Any, model: Any, optimizer: Any,
                 state: Optional[str],
                 evaluate: Optional[Callable[[Any, Any], float]],
                 on_reset: Optional[Callable[[], None]]) -> None:
        self._lib, self._l, self._pid = lib, handle, os.getpid()
        self._model, self._optimizer = _model.of(model), optimizer
        self._state, self._evaluate = state, evaluate
        self._on_reset = on_reset
        self._tensors: Dict[str, _lib.Tensor] = {}
        self._info = _lib.Info()
        self._going = False
        self.round = 0       #: of the parameters that the model has
        self.inner_step = 0  #: steps that this peer has made

    # ---- the way in --------------------------------------------------------

    def _error(self) -> Error:
        return Error(self._lib.loco_errmsg(self._l).decode(errors="replace"))

    def _ok(self, rv: int) -> int:
        if rv < 0:
            raise self._error()
        return rv

    def _begin(self) -> None:
        while self._ok(self._lib.loco_ready(self._l, SLICE_MS)) == 0:
            pass
        self._ok(self._lib.loco_info(self._l, c.byref(self._info)))
        shapes = self._model.shapes()
        mine = (_lib.Tensor * max(len(shapes), 1))()
        for at, (name, shape) in zip(mine, shapes):
            if len(shape) > 8:
                raise Error(f"tensor {name} has more than 8 dimensions")
            at.name, at.n_dims = name.encode(), len(shape)
            at.shape[:len(shape)] = shape
        self._ok(self._lib.loco_check(self._l, mine, len(shapes)))
        for i in range(self._info.n_tensors):
            t = _lib.Tensor()
            self._ok(self._lib.loco_tensor(self._l, i, c.byref(t)))
            self._tensors[t.name.decode()] = t
        self._advance()

    # ---- the loop ----------------------------------------------------------

    def _views(self) -> Iterator[Any]:
        """Name and fp32 view in theta of each tensor, one at a time."""
        at = self._lib.loco_theta(self._l)
        if not at:
            raise self._error()
        floats = (c.c_float * self._info.n).from_address(at)
        theta = np.frombuffer(floats, dtype=np.float32)
        for name, t in self._tensors.items():
            part = theta[t.offset:t.offset + t.numel]
            yield name, part.reshape(tuple(t.shape[:t.n_dims]))

    def _batch(self, it: Any) -> Batch:
        shape = (it.rows, it.seq)
        pair = [np.ctypeslib.as_array(p, shape).astype(np.int64)
                for p in (it.tokens, it.targets)]
        pair[1][pair[1] == 0xffffffff] = -100
        if isinstance(self._model, _model.Module):
            pair = [self._model.torch.from_numpy(a) for a in pair]
        return Batch(*pair)

    def _take(self, todo: Any) -> None:
        for name, view in self._views():
            self._model.get(name, view)
        self.round = todo.round
        if todo.reset:
            self._model.reset(self._optimizer)
            if self._on_reset is not None:
                self._on_reset()

    def _do(self, action: int, todo: Any) -> None:
        if action == _lib.GIVE:
            for name, view in self._views():
                self._model.put(name, view)
        elif action == _lib.TAKE:
            self._take(todo)
        elif action == _lib.SCORE:
            nats = float(self._evaluate(*self._batch(todo)))
            self._ok(self._lib.loco_scored(self._l, nats))
        elif action == _lib.GO:
            self._going, self.inner_step = True, todo.inner_step
        elif action == _lib.END:
            text = (todo.text or b"").decode(errors="replace")
            if todo.code != 0:
                raise Error(f"locod stopped, exit code {todo.code}: {text}")
            raise Stopped(text)

    def _advance(self) -> None:
        """Do what the daemon asks until a step may be made."""
        self._alive()
        self._going = False
        todo = _lib.Todo()
        while not self._going:
            self._do(self._ok(self._lib.loco_next(self._l, SLICE_MS,
                                                  c.byref(todo))), todo)

    def _alive(self) -> None:
        if self._l is None:
            raise Error("this run was left, or this is a child of fork()")

    def step(self, loss: Any = None, tokens: int = 0) -> None:
        """One inner step was made: `tokens` of it (or samples), `loss` its mean
        in nats. Averages when it is time; raises Stopped at the end. After a
        round the model has new parameters. Moving a loss from a GPU waits for
        that GPU; None leaves it out."""
        self._alive()
        self._ok(self._lib.loco_step(
            self._l, int(tokens), math.nan if loss is None else float(loss)))
        self._advance()

    def batches(self, device: Any = None) -> Iterator[Batch]:
        """The run's text, a batch for each step(). With `device` the tensors
        are moved there (torch)."""
        text = _lib.Text()
        while True:
            self._alive()
            while self._ok(self._lib.loco_read(self._l, SLICE_MS,
                                               c.byref(text))) == 0:
                self._advance()
            batch = self._batch(text)
            yield batch if device is None else Batch(
                *(t.to(device) for t in batch))

    @property
    def status(self) -> Dict[str, Any]:
        """What `loco status --json` says of the daemon."""
        command = [os.environ.get("LOCO_COMMAND") or _bin.path("loco"),
                   "status", "--json"]
        if self._state is not None:
            command += ["--state", self._state]
        done = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise Error(done.stderr.decode(errors="replace").strip())
        return json.loads(done.stdout)

    # ---- the way out -------------------------------------------------------

    def close(self) -> None:
        """Leave. A locod that join() started drains and ends, unless keep."""
        if self._l is None:
            return
        while self._lib.loco_stop(self._l, SLICE_MS) == 0:
            pass
        self._let_go()

    def _let_go(self) -> None:
        if self._l is not None:
            handle, self._l = self._l, None
            self._lib.loco_close(handle)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self.close()
        return kind is not None and issubclass(kind, Stopped)


def _say(sentence: str) -> None:
    print(f"loco: {sentence}", flush=True)


def _after_fork(run: Any) -> None:
    if run() is not None:
        run()._let_go()  # a data loader's worker must not hold the socket


def join(uri: Optional[str], model: Any, optimizer: Any = None, *,
         state: Optional[str] = None, run: Optional[str] = None,
         listen: Optional[str] = None, name: str = "python",
         args: Sequence[str] = (), keep: bool = False,
         evaluate: Optional[Callable[[Any, Any], float]] = None,
         on_reset: Optional[Callable[[], None]] = None,
         log: Optional[Callable[[str], None]] = _say) -> Run:
    """Join the run behind `uri` (or start that of the file `run`), and fill the
    model with its parameters. Waits until this peer may train.

    model      torch.nn.Module, or dict of name -> numpy array
    optimizer  of torch: its state is cleared when the run says so
    state      the daemon's state directory; None: as locod has it
    listen     HOST:PORT of a locod that is started; args: more arguments
    keep       such a locod goes on when the loop ends
    evaluate   (tokens, targets) -> sum of nats over scored targets
    on_reset   called after new parameters that want a new optimizer
    """
    lib, handle = _lib.load(), c.c_void_p()
    more: List[str] = (["--listen", listen] if listen else []) + list(args)
    words = (c.c_char_p * (len(more) + 1))(*[a.encode() for a in more], None)
    told = _lib.LOG(lambda _, text: log(text.decode(errors="replace"))
                    if log is not None else None)
    o = _lib.Options(size=c.sizeof(_lib.Options), locod_args=words,
                     name=name.encode(), keep=keep, log=told,
                     measures=evaluate is not None)
    o.state = os.fsencode(state) if state is not None else None
    o.join = uri.encode() if uri is not None else None
    o.run = os.fsencode(run) if run is not None else None
    why = c.create_string_buffer(_lib.ERRMSG_MAX)
    if lib.loco_open(c.byref(handle), c.byref(o), why) < 0:
        raise Error(why.value.decode(errors="replace"))
    made = Run(lib, handle, model, optimizer, state, evaluate, on_reset)
    made._told = told  # the library calls it as long as the handle lives
    os.register_at_fork(
        after_in_child=lambda ref=weakref.ref(made): _after_fork(ref))
    try:
        made._begin()
    except BaseException:
        made.close()
        raise
    return made

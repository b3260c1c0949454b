"""Let a training loop of your own be a peer of a loco run.

    with loco.join("loco://HOST:7700/RUNID", model, optimizer) as run:
        for batch in run.batches():
            loss = train_on(batch.tokens, batch.targets)
            run.step(loss, tokens=batch.tokens.size)

`model` is a torch.nn.Module, or a dict of numpy arrays that is changed in
place. The loop leaves by loco.Stopped, which `with` swallows.
"""
import json
import math
import os
import re
import subprocess
import time
import weakref
from typing import (Any, Callable, Dict, Iterator, NamedTuple, Optional,
                    Sequence)

from . import _bin, _group, _lib, _model
from ._create import create
from ._daemon import Daemon, Order, Pair, Way
from ._lib import Error

__all__ = ["Batch", "Error", "Run", "Stopped", "create", "join"]


#: A step() that waits as long, in seconds, says what for, if it is news.
PATIENCE_S = 10.0


class Stopped(Exception):
    """The run has ended, or the daemon was told to stop."""


class Batch(NamedTuple):
    """Text of one step: tokens and targets, (rows, seq) int64; a target of -100
    is not scored. numpy, or torch where the model is a module."""
    tokens: Any
    targets: Any


class Run:
    """One loop at one daemon; see join(). One thread at a time. In a group of
    processes the first one has the daemon, and each method is collective:
    step(), batches() and join() are called by all."""

    def __init__(self, group: Any, optimizer: Any, way: Way,
                 evaluate: Optional[Callable[[Any, Any], float]],
                 on_reset: Optional[Callable[[], None]]) -> None:
        self._group, self._model = group, group.model
        self._optimizer, self._way = optimizer, way
        self._evaluate, self._on_reset = evaluate, on_reset
        self._daemon: Optional[Daemon] = None  # in the first process
        self._left = self._was_going = False
        self._ended: Optional[Stopped] = None  # by the first orders
        self._names: Sequence[str] = ()
        self._said = ""  # what a wait was for, as was said last
        self.round = 0       #: of the parameters that the model has
        self.inner_step = 0  #: steps that this peer has made

    # ---- the way in --------------------------------------------------------

    def _open(self) -> None:
        self._daemon = Daemon(self._way)

    def _begin(self) -> None:
        said, shapes = self._group.said, self._model.shapes()
        n, _ = self._group.total(int(self._evaluate is not None), 0.0)
        if n not in (0, self._group.size):
            raise Error(f"evaluate= is given in {n} of {self._group.size} "
                        "processes: give it in all of them")
        said(self._open)
        while not said(lambda: self._daemon.ready()):
            pass
        self._names = said(lambda: self._daemon.check(shapes))
        try:
            self._advance()
        except Stopped as why:  # the model has what the run ended with
            self._ended = why

    # ---- the loop ----------------------------------------------------------

    def _theta(self, name: str) -> Any:
        return self._daemon.theta(name) if self._daemon is not None else None

    def _batch(self, pair: Pair) -> Batch:
        if isinstance(self._model, _model.Module):
            return Batch(*(self._model.torch.from_numpy(a) for a in pair))
        return Batch(*pair)

    def _fill(self) -> None:
        self._model.settle()
        for name in self._names:
            self._model.get(name, self._theta(name))

    def _take(self, order: Order) -> None:
        self._fill()
        self.round = order.round
        if order.reset:
            self._model.reset(self._optimizer)
            if self._on_reset is not None:
                self._on_reset()

    def _score(self, order: Order) -> None:
        nats = float(self._evaluate(*self._batch(order.batch)))
        if self._daemon is not None:
            self._daemon.scored(nats)

    def _do(self, order: Order) -> None:
        if order.action == _lib.GIVE:
            for name in self._names:
                self._model.put(name, self._theta(name))
        elif order.action == _lib.TAKE:
            self._take(order)
        elif order.action == _lib.SCORE:
            self._score(order)
        elif order.action == _lib.GO:
            self.inner_step, self._was_going = order.inner_step, True
        elif order.action == _lib.END:
            if order.code != 0:
                raise Error(f"locod stopped, exit code {order.code}: "
                            f"{order.text}")
            raise Stopped(order.text)

    def _advance(self, first: Callable[[], None] = lambda: None) -> None:
        """After `first`, do what the daemon asks until a step may be made."""
        self._alive()
        since = None  # the first of the waits that followed each other
        while True:
            order = self._group.said(lambda: (first(), self._daemon.next())[1])
            first = lambda: None  # noqa: E731
            self._do(order)
            if order.action == _lib.GO:
                return
            if order.action != _lib.WAIT:
                since = None
            elif since is None:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                since = time.monotonic()
                self._say_why()

    def _say_why(self) -> None:
        """What the daemon waits for, unless that was said last. A help for
        people: whatever goes wrong with it, training goes on."""
        if self._daemon is None or self._way.log is None or not self._was_going:
            return
        try:
            status = self._ask_status(2.0)
            state, reason = str(status["state"]), str(status["reason"])
        except (Error, OSError, ValueError, LookupError, TypeError,
                subprocess.SubprocessError):
            return
        sentence = ": ".join(filter(None, (state, reason)))
        kind = re.sub(r"\d+", "", sentence)  # a count that goes on is no news
        if kind != self._said:
            self._way.log("step() waits, locod is " + sentence)
        self._said = kind

    def _alive(self) -> None:
        if self._left:
            raise Error("this run was left, or this is a child of fork()")
        if self._ended is not None:
            raise self._ended

    def step(self, loss: Any = None, tokens: int = 0) -> None:
        """One inner step was made: `tokens` of it (or samples), `loss` its mean
        in nats; in a group of processes those of this process. Averages when it
        is time; raises Stopped at the end. After a round the model has new
        parameters. Moving a loss from a GPU waits for that GPU; None leaves it
        out."""
        if self._ended is not None and not self._left:
            self._fill()  # without the step that was made since
        self._alive()
        n, mean = self._group.total(
            int(tokens), math.nan if loss is None else float(loss))
        self._advance(lambda: self._daemon.step(n, mean))

    def batches(self, device: Any = None) -> Iterator[Batch]:
        """The run's text, a batch for each step(): in a group of processes the
        rows of this one. With `device` the tensors are moved there (torch)."""
        while True:
            self._alive()
            pair = self._group.said(lambda: self._daemon.read())
            if pair is None:
                self._advance()
                continue
            batch = self._batch(self._group.part(pair))
            yield batch if device is None else Batch(
                *(t.to(device) for t in batch))

    @property
    def status(self) -> Dict[str, Any]:
        """What `loco status --json` says of the daemon."""
        return self._ask_status(None)

    def _ask_status(self, limit_s: Optional[float]) -> Dict[str, Any]:
        command = [os.environ.get("LOCO_COMMAND") or _bin.path("loco"),
                   "status", "--json"]
        if self._way.state is not None:
            command += ["--state", self._way.state]
        done = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False,
                              timeout=limit_s)
        if done.returncode != 0:
            raise Error(done.stderr.decode(errors="replace").strip())
        return json.loads(done.stdout)

    # ---- the way out -------------------------------------------------------

    def close(self) -> None:
        """Leave. A locod that join() started drains and ends, unless keep. In a
        group of processes nobody waits for the others."""
        if self._daemon is not None and not self._left:
            self._daemon.stop()
        self._let_go()

    def _leave(self, why: Optional[type]) -> None:
        """After an exception, or none. One process that ended early fails all
        others of its group: their locod waits for the group to be started
        again, as it waits for a program that was killed."""
        in_order = why is None or issubclass(
            why, (Stopped, KeyboardInterrupt, SystemExit))
        if self._group.fragile and self._was_going and not in_order and \
                self._daemon is not None and not self._left:
            self._daemon.keep()
        self.close()

    def _let_go(self) -> None:
        self._left = True
        if self._daemon is not None:
            self._daemon.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self._leave(kind)
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
         on_reset: Optional[Callable[[], None]] = None, group: Any = None,
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
    group      of torch.distributed: its processes train the model together,
               data-parallel (DDP) or in shards (FSDP2), and are one peer; all
               of them call join() and have the Run. None: all processes, where
               torch.distributed is initialised. False: this one alone
    """
    way = Way(uri, run, state, listen, name, args, keep, evaluate is not None,
              log)
    made = Run(_group.of(model, group), optimizer, way, evaluate, on_reset)
    os.register_at_fork(
        after_in_child=lambda ref=weakref.ref(made): _after_fork(ref))
    try:
        made._begin()
    except BaseException as why:
        made._leave(type(why))
        raise
    return made

"""transformers' Trainer as a peer.

    trainer = Trainer(model, args, train_dataset=..., callbacks=[
        loco.hf.Callback("loco://HOST:7700/RUNID")])
    trainer.train()

The Trainer keeps its data, its loss and its optimizer; its steps are the run's
inner steps. It stops when the run has ended.
"""
from typing import Any, Optional

from transformers import TrainerCallback

from . import Run, Stopped, join

__all__ = ["Callback"]


class Callback(TrainerCallback):
    """uri and options: as loco.join() has them. `tokens`: what one step counts,
    by default its sequences (batch a device x accumulation); with several
    processes (torchrun, accelerate) those of one, which are added."""

    def __init__(self, uri: Optional[str], *, tokens: Optional[int] = None,
                 **options: Any) -> None:
        self._uri, self._tokens, self._options = uri, tokens, options
        self.run: Optional[Run] = None  #: while it trains

    def on_train_begin(self, args: Any, state: Any, control: Any,
                       model: Any = None, optimizer: Any = None,
                       **_: Any) -> None:
        self.run = join(self._uri, model, optimizer, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any,
                    **_: Any) -> None:
        tokens = self._tokens
        if tokens is None:
            tokens = state.train_batch_size * args.gradient_accumulation_steps
        try:
            self.run.step(None, tokens=tokens)
        except Stopped:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any,
                     **_: Any) -> None:
        run, self.run = self.run, None
        run.close()

    def __del__(self) -> None:
        if self.run is not None:
            self.run._leave(Exception)  # the Trainer failed: no on_train_end

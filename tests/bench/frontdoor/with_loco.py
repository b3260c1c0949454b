"""with_loco.py - the loop in a run of loco."""
import os

import common
import loco

model = common.model()
optimizer = common.optimizer(model)
with loco.join(os.environ.get("BENCH_URI"), model, optimizer,
               run=os.environ.get("BENCH_RUN"),
               args=os.environ["BENCH_ARGS"].split()) as run:
    for batch in common.batches():
        loss = common.loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss, tokens=batch.tokens.numel())
        common.stepped()
common.finished()

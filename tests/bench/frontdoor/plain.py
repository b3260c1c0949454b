"""plain.py - the loop alone."""
import common

model = common.model()
optimizer = common.optimizer(model)
for batch in common.batches():
    loss = common.loss_of(model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    common.stepped()
common.finished()

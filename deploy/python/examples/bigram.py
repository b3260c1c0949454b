"""bigram.py - the smallest language model, trained with others by loco.

use: bigram.py --create DATA RUN.YAML [KEY=VALUE ..]   make the run
     bigram.py --run RUN.YAML [LOCOD WORD ..]          be its first peer
     bigram.py --join URI [LOCOD WORD ..]              be another one

One table of 256 x 256 numbers says which byte follows which. numpy computes the
gradient; loco brings text, network, averaging and checkpoints, and asks now and
then how good the common model is on held-out text. DATA is a folder
that `loco data pack` wrote, KEY a setting of the run; words behind --run's
RUN.YAML or --join's URI go to locod.
"""
import sys

import numpy as np

import loco

model = {"table": np.zeros((256, 256), dtype=np.float32)}
RATE = 20.0


def predict(x):
    """Probabilities (len(x), 256) of the byte after each of x."""
    z = model["table"][x]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def evaluate(tokens, targets):
    """The sum of the losses in nats; a target of -100 is not scored."""
    scored = targets != -100
    p, y = predict(tokens[scored]), targets[scored]
    return -np.log(p[np.arange(y.size), y]).sum()


def train_on(batch):
    """One step of gradient descent; the mean loss in nats."""
    x, y = batch.tokens.ravel(), batch.targets.ravel()
    p = predict(x)
    loss = -np.log(p[np.arange(y.size), y]).mean()
    p[np.arange(y.size), y] -= 1
    grad = np.zeros_like(model["table"])
    np.add.at(grad, x, p / y.size)
    model["table"] -= RATE * grad
    return float(loss)


def main():
    kind, words = sys.argv[1], sys.argv[2:]
    if kind == "--create":
        settings = {"inner.seq": 64, "inner.batch": 8, "sync.period": 10,
                    "stop.rounds": 4, "round.min_peers": 2}
        settings.update(word.split("=", 1) for word in words[2:])
        print(loco.create("bigram", model, data=words[0], out=words[1],
                          settings=settings))
        return
    where = {"run": words[0]} if kind == "--run" else {}
    with loco.join(None if where else words[0], model, args=words[1:],
                   evaluate=evaluate, **where) as run:
        for batch in run.batches():
            loss = train_on(batch)
            print(f"round {run.round} step {run.inner_step} loss {loss:.4f}",
                  flush=True)
            run.step(loss, tokens=batch.tokens.size)
    print(f"end {model['table'].sum():.9g} {abs(model['table']).sum():.9g}")


if __name__ == "__main__":
    main()

"""digits.py - handwritten digits, with data that is this peer's own.

use: digits.py --create RUN.YAML [KEY=VALUE ..]   make the run
     digits.py --run RUN.YAML [LOCOD WORD ..]     be its first peer
     digits.py --join URI [LOCOD WORD ..]         be another one

A small convolutional network with BatchNorm learns scikit-learn's 1,797 images
of 8 x 8. The run has no text: each peer draws its own batches, here from all
images but the last 360, which say at the end how good the model is. KEY is a
setting of the run; words behind --run's RUN.YAML or --join's URI go to locod.
"""
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import loco

BATCH, HELD_OUT = 64, 360


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def digits():
    """Images (1797, 1, 8, 8) between 0 and 1, and what they show."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32) / 16
    return images[:, None], torch.tensor(found.target, dtype=torch.int64)


def train(where, words):
    images, labels = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with loco.join(model=model, optimizer=optimizer, args=words,
                   **where) as run:
        while True:  # until the run has ended: step() raises loco.Stopped
            at = torch.randint(len(images) - HELD_OUT, (BATCH,))
            loss = F.cross_entropy(model(images[at]), labels[at])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, tokens=BATCH)
    model.eval()
    with torch.no_grad():
        right = model(images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    total = sum(t.double().sum().item() for t in model.state_dict().values()
                if t.is_floating_point())
    print(f"right {right.float().mean().item():.4f}\nend {total:.12g}")


def main():
    kind, words = sys.argv[1], sys.argv[2:]
    if kind == "--create":
        torch.manual_seed(1)
        settings = {"inner.batch": BATCH, "inner.seq": 1, "sync.period": 20,
                    "stop.rounds": 10, "round.min_peers": 2}
        settings.update(word.split("=", 1) for word in words[1:])
        print(loco.create("digits", network(), out=words[0],
                          settings=settings))
    elif kind == "--run":
        train({"uri": None, "run": words[0]}, words[1:])
    else:
        train({"uri": words[0]}, words[1:])


if __name__ == "__main__":
    main()

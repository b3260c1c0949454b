"""gpt2.py - a small GPT-2 in PyTorch, trained with others by loco.

use: gpt2.py --create DATA RUN.YAML [KEY=VALUE ..]   make the run
     gpt2.py --run RUN.YAML [LOCOD WORD ..]          be its first peer
     gpt2.py --join URI [LOCOD WORD ..]              be another one

The model is GPT-2's: learned positions, LayerNorm before attention and MLP,
GELU, output tied to the embedding. Text is bytes. DATA is a folder that `loco
data pack` wrote, KEY a setting of the run; words behind --run's RUN.YAML or
--join's URI go to locod. It trains on a GPU where PyTorch has one.
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F

import loco

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 256, 128, 128, 4, 4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):  # (B, T, WIDTH)
        b, t, _ = x.shape
        q, k, v = (a.view(b, t, HEADS, -1).transpose(1, 2)
                   for a in self.qkv(self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = (2 * LAYERS) ** -0.5
                out = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 * (scale if out else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens):  # (B, T) -> logits (B, T, VOCAB)
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1],
                                                     device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def loss_of(model, batch, reduction="mean"):
    """Nats; a target of -100 is not scored."""
    return F.cross_entropy(model(batch.tokens).flatten(0, 1),
                           batch.targets.flatten(), reduction=reduction)


def train(where, words):
    model = GPT2().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3,
                                  betas=(0.9, 0.95), weight_decay=0.1)

    @torch.no_grad()
    def evaluate(tokens, targets):
        return loss_of(model, loco.Batch(tokens.to(DEVICE),
                                         targets.to(DEVICE)), "sum").item()

    with loco.join(model=model, optimizer=optimizer, args=words,
                   evaluate=evaluate, **where) as run:
        for batch in run.batches(device=DEVICE):
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"round {run.round} step {run.inner_step} "
                  f"loss {loss.item():.4f}", flush=True)
            run.step(loss, tokens=batch.tokens.numel())
    total = sum(p.double().sum().item() for p in model.parameters())
    print(f"end {total:.12g}")


def main():
    kind, words = sys.argv[1], sys.argv[2:]
    if kind == "--create":
        torch.manual_seed(1)
        settings = {"inner.seq": CONTEXT, "inner.batch": 8, "sync.period": 20,
                    "stop.rounds": 20, "round.min_peers": 2}
        settings.update(word.split("=", 1) for word in words[2:])
        print(loco.create("gpt2", GPT2(), data=words[0], out=words[1],
                          settings=settings))
    elif kind == "--run":
        train({"uri": None, "run": words[0]}, words[1:])
    else:
        train({"uri": words[0]}, words[1:])


if __name__ == "__main__":
    main()

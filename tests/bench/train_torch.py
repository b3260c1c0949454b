#!/usr/bin/env python3
"""train_torch.py - one Llama-shaped model in plain PyTorch on the CPU.

use: train_torch.py DIM LAYERS HEADS FFN VOCAB SEQ BATCH THREADS STEPS DTYPE

Whole training steps on random tokens: forward, backward, AdamW. DTYPE bf16
is autocast, the optimizer stays fp32. Prints one JSON object: the median step
in wall time, the cheapest step in CPU time of all threads, peak memory. The
peer of `loco bench train`; tests/bench/train.py runs both.
"""
import json
import os
import resource
import statistics
import sys
import time

DIM, LAYERS, HEADS, FFN, VOCAB, SEQ, BATCH, THREADS, STEPS = map(
    int, sys.argv[1:10])
BF16 = sys.argv[10] == "bf16"
# PyTorch's best environment: threads that sleep instead of spinning against
# the other library's, and no pinned core type.
os.environ.update(OMP_NUM_THREADS=str(THREADS), OMP_WAIT_POLICY="PASSIVE",
                  OPENBLAS_NUM_THREADS=str(THREADS))
for name in "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE":
    os.environ.pop(name, None)
import torch  # noqa: E402  (reads the environment)
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(THREADS)
torch.manual_seed(1)
D = DIM // HEADS
ANGLE = torch.outer(torch.arange(SEQ).float(),
                    10000.0 ** (-torch.arange(0, D, 2).float() / D))
COS, SIN = ANGLE.cos(), ANGLE.sin()
FUTURE = torch.full((SEQ, SEQ), float("-inf")).triu(1)


def matrix(rows, columns):
    return torch.nn.Parameter(torch.randn(rows, columns) * 0.02)


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


def rotate(x):
    a, b = x[..., :D // 2], x[..., D // 2:]
    return torch.cat((a * COS - b * SIN, b * COS + a * SIN), -1)


def attention(q, k, v):
    """The fused kernel where this PyTorch has it."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.softmax(q @ k.transpose(-1, -2) / D ** 0.5 + FUTURE, -1) @ v


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.Parameter(torch.ones(DIM))
        self.norm2 = torch.nn.Parameter(torch.ones(DIM))
        self.qkv, self.o = matrix(3 * DIM, DIM), matrix(DIM, DIM)
        self.gate, self.up = matrix(FFN, DIM), matrix(FFN, DIM)
        self.down = matrix(DIM, FFN)

    def forward(self, x):
        qkv = F.linear(norm(x, self.norm1), self.qkv)
        q, k, v = (t.view(BATCH, SEQ, HEADS, D).transpose(1, 2)
                   for t in qkv.chunk(3, -1))
        y = attention(rotate(q).to(v.dtype), rotate(k).to(v.dtype), v)
        x = x + F.linear(y.transpose(1, 2).reshape(BATCH, SEQ, DIM), self.o)
        y = norm(x, self.norm2)
        return x + F.linear(F.silu(F.linear(y, self.gate)) *
                            F.linear(y, self.up), self.down)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = matrix(VOCAB, DIM), matrix(VOCAB, DIM)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.Parameter(torch.ones(DIM))

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.embed)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(norm(x, self.norm), self.head)
        return F.cross_entropy(logits.view(-1, VOCAB).float(),
                               targets.reshape(-1))


def main():
    model = Model()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                             weight_decay=0.1)
    text = torch.randint(0, VOCAB, (BATCH, SEQ + 1))
    wall, cpu = [], []
    for step in range(-2, STEPS):
        began, used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=BF16):
            loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        if step >= 0:
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
    print(json.dumps({
        "version": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "ms_per_step": statistics.median(wall) * 1e3,
        "cpu_ms_per_step": min(cpu) * 1e3,
        "max_rss_bytes":
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss": loss.item()}))


main()
